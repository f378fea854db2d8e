"""A tensor that is told which function it is given to."""

from __future__ import annotations

from typing import Any

import torch


def watching(seen: list[Any]) -> type[torch.Tensor]:
    """A class of tensors whose __torch_function__ notes the function and goes on."""

    class Named(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    return Named
