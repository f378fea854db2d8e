"""Work in a thread of its own, where nothing reaches that the caller has set in torch: modes,
autocast, gradients, the default device, memory pools, and what captures forbid.

Called by `workspace`, `dispatch` and `torch_state`. Knows nothing of what is done in it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def call(function: Callable[[], T]) -> T:
    """What `function` returns in another thread; what it raises is raised here, whatever it is."""
    returned: list[T] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            returned.append(function())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, name="hgemm_packs")
    thread.start()
    thread.join()
    if raised:
        raise raised.pop()  # popped, or its traceback would keep itself and all tensors in it
    return returned.pop()


def call_on(
    kind: str,
    index: int,
    relaxed: Callable[[Callable[[], object]], object],
    function: Callable[[torch.device], T],
) -> T:
    """The same of a device, on the caller's stream there. `relaxed` calls a function while captures
    of other threads do not restrict the thread that it is called in."""
    import torch

    stream = torch.cuda.current_stream(index) if kind == "cuda" else None

    def work() -> T:
        place = torch.device(kind, index)  # here, for modes of the caller would see it made
        with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
            return function(place)

    return call(lambda: cast(T, relaxed(work)))
