"""Which bytes of shared memory wgmma reads of an operand, by the operand's descriptor (PTX ISA,
asynchronous warpgroup level matrix shared memory layout).

Made for `strands`. Of each row of 16 bytes or more only the first two bytes count, which a copy, a
product or a staged tile that overlaps the operand hardly misses, and races are found in seconds.
"""

from __future__ import annotations

import functools
import re
from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

KEPT: Final = 14  # bits of a number in a descriptor
PIECE: Final = 16  # bytes, in which descriptors count and swizzles move
ROWS_OF_A: Final = 64
DEPTH: Final = 16  # elements of K that a product takes
GROUP: Final = 8  # rows that lie one behind the other
_SWIZZLES: Final = (0, 128, 64, 32)  # bytes, by the two upper bits
_LEAD, _STRIDE, _SWIZZLE = 16, 32, 62  # where a descriptor's fields begin
_COLUMNS: Final = re.compile(r"m64n(\d+)k16")


def places(ins: Instruction, which: int, descriptor: int) -> Array:
    """Addresses in its CTA's shared memory of what `ins` reads by the descriptor of A, for `which`
    0, or of B, for 1."""
    shape = next((x for x in map(_COLUMNS.fullmatch, ins.opcode) if x is not None), None)
    if shape is None:
        return np.array([_field(descriptor, 0)], np.int64)
    is_of_columns = ins.operands[-1 if which or ins.operands[1].kind == "vector" else -2].value == 1
    return _places(descriptor, int(shape[1]) if which else ROWS_OF_A, is_of_columns)


@functools.lru_cache(4096)
def _places(descriptor: int, rows: int, is_of_columns: bool) -> Array:
    """The same by rows of M or N, which lie one behind the other if `is_of_columns`."""
    start, lead, stride = (_field(descriptor, at) for at in (0, _LEAD, _STRIDE))
    width = _SWIZZLES[descriptor >> _SWIZZLE & 3]
    pitch = width or PIECE
    if not is_of_columns:
        row = np.arange(rows, dtype=np.int64)
        address = start + row // GROUP * stride + row % GROUP * pitch
    else:
        if not width:
            lead, stride = stride, lead  # without a swizzle their meanings are the other way round
        k, block = np.meshgrid(np.arange(DEPTH), np.arange(0, rows, pitch // 2), indexing="ij")
        address = start + k // GROUP * stride + k % GROUP * pitch + block // (pitch // 2) * lead
        address = address.ravel()
    found: Array = address ^ (address >> 7 & (width or PIECE) // PIECE - 1) * PIECE
    return found


def _field(descriptor: int, at: int) -> int:
    """The bytes that a descriptor says from bit `at` on."""
    return (descriptor >> at & (1 << KEPT) - 1) * PIECE
