"""Device memory with nobody's pages before and behind it, by the driver's virtual memory
management.

`places` lays operands out in it. An access to a page that is not mapped is a fault, which loses the
device's context: use it in a process of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from hgemm_packs import launcher
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.workspace import ABSENT, Workspace

#: Addresses before and behind a mapping that stay empty, in pages of it.
EMPTY_PAGES = 1


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of cuda.bindings answers behind its error code. Raises RuntimeError."""
    from cuda.bindings import driver

    error, *answer = function(*arguments)
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function.__name__}: {error.name}")
    return answer[0] if answer else None


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Memory that is not torch's, as torch takes it."""

    address: int
    size: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.size // 2,),
            "typestr": "<i2",
            "data": (self.address, False),
            "version": 3,
        }


class Mappings:
    """Two mappings of CUDA device `index`: one that operands take in turn, one for a workspace.
    A context manager; RuntimeError is raised where the driver has no such memory."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._stack = contextlib.ExitStack()
        self._held: dict[str, torch.Tensor] = {}

    def __enter__(self) -> Mappings:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.clear()
        with contextlib.suppress(RuntimeError):  # a context that is lost frees nothing
            self._stack.close()

    def words(self, count: int) -> torch.Tensor:
        """See `places.Mapped`."""
        return self._memory("operand", 2 * count)

    def workspace(
        self, arm: KernelArm, sizes: tuple[int, int], side: str
    ) -> Callable[..., None] | None:
        """See `places.Mapped`. Raises RuntimeError where a launch leaves words that are not
        absent."""
        size = arm.kernel.workspace(*sizes)
        if not size:
            return None
        words = self._memory("workspace", size).view(torch.int32)
        count = -(-size // 4)
        at = 0 if side == "start" else words.numel() - count
        workspace = Workspace(words[at : at + count].fill_(ABSENT))

        def launch(a: torch.Tensor, b: torch.Tensor, into: torch.Tensor, *addend: Any) -> None:
            launcher.launch(arm.kernel, a, b, into, workspace, *addend)
            if bool((workspace.words != ABSENT).any()):
                raise RuntimeError("words are not left absent")

        return launch

    def wait(self) -> None:
        """See `places.Mapped`."""
        torch.cuda.synchronize(self._index)

    def _memory(self, name: str, size: int) -> torch.Tensor:
        """A mapping of at least `size` bytes, as int16."""
        held = self._held.get(name)
        if held is None or held.numel() * 2 < size:
            address, room = self._stack.enter_context(_mapping(self._index, size))
            place = torch.device("cuda", self._index)
            held = torch.as_tensor(_Bytes(address, room), device=place)
            self._held[name] = held
        return held


@contextlib.contextmanager
def _mapping(index: int, size: int) -> Iterator[tuple[int, int]]:
    """(address, bytes) of whole pages between addresses that are reserved and empty."""
    from cuda.bindings import driver

    with contextlib.ExitStack() as undo:
        place = driver.CUmemLocation()
        place.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        place.id = call(driver.cuDeviceGet, index)
        wanted = driver.CUmemAllocationProp()
        wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location = place
        least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        page = int(call(driver.cuMemGetAllocationGranularity, wanted, least))
        room, empty = -(-size // page) * page, EMPTY_PAGES * page
        whole = room + 2 * empty
        start = int(call(driver.cuMemAddressReserve, whole, page, 0, 0))
        undo.callback(call, driver.cuMemAddressFree, start, whole)
        memory = call(driver.cuMemCreate, room, wanted, 0)
        undo.callback(call, driver.cuMemRelease, memory)
        address = start + empty
        call(driver.cuMemMap, address, room, 0, memory, 0)
        undo.callback(call, driver.cuMemUnmap, address, room)
        access = driver.CUmemAccessDesc()
        access.location = place
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        call(driver.cuMemSetAccess, address, room, [access], 1)
        yield address, room
