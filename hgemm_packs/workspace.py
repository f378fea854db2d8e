"""Device memory for kernels whose CTAs add up partial sums: what C asks torch's allocator for, and
a workspace of one's own for `launcher.launch`.

Which launch uses what is decided in csrc/launcher/workspace.c. torch is imported by the first call.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .settings import LOGGER

if TYPE_CHECKING:
    import torch

#: A buffer's address and the tensor that owns it.
Memory = tuple[int, "torch.Tensor"]


class Workspace:
    """Counters, all zero, and room for partial sums, for launches that follow one another.

    `Kernel.workspace(m, n)` says how much a launch needs of each. Keep it while a captured graph
    may replay a launch that was given it.
    """

    def __init__(self, counters: torch.Tensor, partials: torch.Tensor) -> None:
        """`counters` int32, one for each CTA of the grid; `partials` float32."""
        self.counters, self.partials = counters, partials
        self.room = partials.numel() * partials.element_size()  # bytes
        self.where = (counters.data_ptr(), counters.numel(), partials.data_ptr(), self.room)


def keep(
    relaxed: Callable[[Callable[[], object]], object],
    device_type: int,
    device: int,
    size: int,
    zeroed: int,
    everywhere: int,
) -> Memory | None:
    """`size` bytes that outlive every capture and memory pool, the first `zeroed` of them zero for
    the current stream, or for all streams with `everywhere`; None when there is no memory.

    In a thread of its own: what the caller's thread allocates may go to a pool that is not ours,
    and `relaxed` calls a function while another thread's capture does not restrict this one.
    """
    import torch

    place = _place(device_type, device)
    stream = torch.cuda.current_stream(place) if place.type == "cuda" else None
    found: list[Memory] = []

    def allocate() -> None:
        with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
            memory = torch.empty(size, dtype=torch.uint8, device=place)
            memory[:zeroed].zero_()
            if stream is not None and everywhere:
                stream.synchronize()
        found.append((memory.data_ptr(), memory))

    def work() -> None:
        try:
            relaxed(allocate)
        except RuntimeError as error:  # out of memory, mostly
            LOGGER.warning("no workspace of %d bytes on device %d: %s", size, device, error)

    thread = threading.Thread(target=work, name="hgemm_packs")
    thread.start()
    thread.join()
    return found[0] if found else None


def borrow(device_type: int, device: int, size: int) -> Memory | None:
    """`size` bytes for one launch under capture, from the pool of its graph; None when there is no
    memory."""
    import torch

    try:
        memory = torch.empty(size, dtype=torch.uint8, device=_place(device_type, device))
    except RuntimeError as error:
        LOGGER.warning("no workspace of %d bytes on device %d: %s", size, device, error)
        return None
    return memory.data_ptr(), memory


def _place(device_type: int, device: int) -> torch.device:
    import torch

    return torch.device("cuda", device) if device_type == 2 else torch.device("cpu")
