"""Device memory for kernels whose CTAs add up partial sums: what C asks torch's allocator for, and
a workspace of one's own for `launcher.launch`.

Which launch uses what is decided in csrc/launcher/cuda/workspace.c. torch is imported by the first
call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from . import neutral
from .settings import LOGGER

if TYPE_CHECKING:
    import torch

#: A buffer's address and the tensor that owns it.
Memory = tuple[int, "torch.Tensor"]

#: What a word holds before a launch and after it, as an int32.
ABSENT = -1


class Workspace:
    """Words that are all ABSENT, for launches that follow one another: each leaves them so.

    `Kernel.workspace(m, n)` says how many bytes a launch needs. Keep it while a captured graph may
    replay a launch that was given it.
    """

    def __init__(self, words: torch.Tensor) -> None:
        """`words` as `make_absent` makes them."""
        self.words = words
        self.room = words.numel() * words.element_size()  # bytes
        self.where = (words.data_ptr(), self.room)


def make_absent(size: int, device: torch.device) -> torch.Tensor:
    """`size` bytes for a workspace, filled on the current stream."""
    import torch

    return torch.full((-(-size // 4),), ABSENT, dtype=torch.int32, device=device)


def keep(
    relaxed: Callable[[Callable[[], object]], object],
    device_type: int,
    device: int,
    size: int,
    everywhere: int,
) -> Memory | None:
    """`size` bytes that outlive every capture and memory pool, ABSENT for the current stream, or
    for all streams with `everywhere`; None when there is no memory.

    In a thread of its own: what the caller's thread allocates may go to a pool that is not ours.
    """
    import torch

    def allocate(place: torch.device) -> Memory:
        memory = make_absent(size, place)
        if everywhere and place.type == "cuda":
            torch.cuda.current_stream(place).synchronize()
        return memory.data_ptr(), memory

    try:
        return neutral.call_on("cuda" if device_type == 2 else "cpu", device, relaxed, allocate)
    except RuntimeError as error:  # out of memory, mostly
        LOGGER.warning("no workspace of %d bytes on device %d: %s", size, device, error)
        return None
