"""States of torch that a random call may be made in. Those that watch write down what they see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Log = list[str]
State = Callable[[Log], AbstractContextManager[Any]]


class _Functions(TorchFunctionMode):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        self.log.append(getattr(func, "__name__", str(func)))
        return func(*args, **kwargs or {})


class _Operators(TorchDispatchMode):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        self.log.append(str(func))
        return func(*args, **kwargs or {})


class _Refusing(_Operators):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        self.log.append(str(func))
        raise PermissionError(str(func))


def _saving(log: Log) -> saved_tensors_hooks:
    def pack(tensor: torch.Tensor) -> torch.Tensor:
        log.append(f"saved {tuple(tensor.shape)}")
        return tensor

    return saved_tensors_hooks(pack, lambda x: x)


def _refuse_to_save(log: Log) -> saved_tensors_hooks:
    def pack(tensor: torch.Tensor) -> torch.Tensor:
        log.append(f"refused {tuple(tensor.shape)}")
        raise LookupError("no room")

    return saved_tensors_hooks(pack, lambda x: x)


@contextmanager
def _default_dtype(log: Log) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _within(outer: Any, inner: Any) -> Iterator[None]:
    with outer, inner:
        yield


STATES: dict[str, State] = {
    "none": lambda log: nullcontext(),
    "no_grad": lambda log: torch.no_grad(),
    "inference": lambda log: torch.inference_mode(),
    "grad in no_grad": lambda log: _within(torch.no_grad(), torch.enable_grad()),
    "grad in inference": lambda log: _within(torch.inference_mode(), torch.enable_grad()),
    "no inference in inference": lambda log: _within(
        torch.inference_mode(), torch.inference_mode(False)
    ),
    "autocast": lambda log: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast to half": lambda log: torch.autocast("cpu", dtype=torch.float16),
    "no autocast": lambda log: torch.autocast("cpu", enabled=False),
    "functions": _Functions,
    "operators": _Operators,
    "refusing": _Refusing,
    "saving": _saving,
    "refusing to save": _refuse_to_save,
    "default dtype": _default_dtype,
    "default device": lambda log: torch.device("cpu"),
    "no subclasses": lambda log: torch._C.DisableTorchFunctionSubclass(),
    "no functions": lambda log: torch._C.DisableTorchFunction(),
}
