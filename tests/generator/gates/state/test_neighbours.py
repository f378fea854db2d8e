"""Kernels of ours that run beside those under test: what the compiler made of them."""

from __future__ import annotations

import re

import pytest

from hgemm_packs.generator.compile import sass
from hgemm_packs.generator.compile.cubin import read_cubin
from hgemm_packs.generator.families.base import SMEM_LIMIT_BYTES
from hgemm_packs.generator.gates.state import mapped, neighbours


@pytest.mark.parametrize(
    ("symbol", "threads", "registers"),
    [("fill", neighbours.FILLERS, 64), ("hammer", neighbours.HAMMERS, None)],
)
def test_they_have_the_size_that_they_are_launched_with(
    symbol: str, threads: int, registers: int | None
) -> None:
    """A filler of 1024 threads of 64 registers holds all registers of an SM, spilling none."""
    image = read_cubin(neighbours.cubin(symbol))
    (entry,) = [one for one in image.entries if one.name == symbol]
    assert entry.threads == threads
    assert entry.frame_bytes == 0 and entry.static_smem_bytes == 0
    assert registers in (None, entry.registers)
    assert SMEM_LIMIT_BYTES % 4 == 0


def test_the_filler_stores_to_shared_memory_and_to_nothing_else_on_the_way() -> None:
    census = sass.census(neighbours.cubin("fill"))
    assert census.count("STS") > 0
    assert census.count("LDL", "STL") == 0


def test_an_error_of_the_driver_is_told_by_its_name() -> None:
    from cuda.bindings import driver

    def refuses(size: int) -> tuple[object, int]:
        return driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, size

    with pytest.raises(RuntimeError, match=re.escape("refuses: CUDA_ERROR_OUT_OF_MEMORY")):
        mapped.call(refuses, 9)
    assert mapped.call(lambda size: (driver.CUresult.CUDA_SUCCESS, size), 9) == 9
    assert mapped.call(lambda: (driver.CUresult.CUDA_SUCCESS,)) is None


def test_memory_of_the_driver_as_torch_takes_it() -> None:
    """Whole elements of int16 at the address, writable."""
    told = mapped._Bytes(0x7F0000200000, 4096).__cuda_array_interface__
    assert told == {
        "shape": (2048,),
        "typestr": "<i2",
        "data": (0x7F0000200000, False),
        "version": 3,
    }
