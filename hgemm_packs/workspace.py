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

#: What a word holds before a launch and after it, as an int32.
ABSENT = -1


class Workspace:
    """Words that are all ABSENT, for launches that follow one another: each leaves them so.

    `Kernel.workspace(m, n)` says how many bytes a launch needs. Keep it while a captured graph may
    replay a launch that was given it.
    """

    def __init__(self, words: torch.Tensor) -> None:
        """`words` as `absent` makes them."""
        self.words = words
        self.room = words.numel() * words.element_size()  # bytes
        self.where = (words.data_ptr(), self.room)


def absent(size: int, device: torch.device) -> torch.Tensor:
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

    In a thread of its own: what the caller's thread allocates may go to a pool that is not ours,
    and `relaxed` calls a function while another thread's capture does not restrict this one.
    """
    import torch

    place = torch.device("cuda", device) if device_type == 2 else torch.device("cpu")
    stream = torch.cuda.current_stream(place) if place.type == "cuda" else None
    found: list[Memory] = []

    def allocate() -> None:
        with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
            memory = absent(size, place)
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
