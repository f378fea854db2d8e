"""The bytes that wgmma reads are those where the copy engine has put an operand's elements."""

from __future__ import annotations

import numpy as np
import pytest

from hgemm_packs.generator.gates.coverage.watchers import operands
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

START, BYTES = 4096, 2
#: The bytes of a row of a box by the descriptor's upper bits.
SWIZZLES = {1: 128, 2: 64, 3: 32}


def product(columns: int, a: int, b: int) -> Instruction:
    """m64 of `columns`; `a` and `b` say whether an operand's rows lie one behind the other."""
    words = ("wgmma", "mma_async", "sync", "aligned", f"m64n{columns}k16", "f32", "f16", "f16")
    numbers = [Operand("number", value=each) for each in (1, 1, a, b)]
    registers = [Operand("register", name=name) for name in ("da", "db", "p")]
    return Instruction(0, words, (Operand("vector"), *registers, *numbers), "", False, "")


def descriptor(lead: int, stride: int, swizzle: int, start: int = START) -> int:
    return start // 16 | lead // 16 << 16 | stride // 16 << 32 | swizzle << 62


def address(line: int, at: int, width: int) -> int:
    """Of an element `at` of a box's line, as the copy engine swizzles it."""
    piece, rest = divmod(at * BYTES, 16)
    plain = START + line * width + piece * 16 + rest
    return plain ^ (plain >> 7 & width // 16 - 1) << 4


@pytest.mark.parametrize("columns", [8, 136, 256])
@pytest.mark.parametrize("step", [0, 3])
def test_rows_of_k_lie_in_boxes_of_128_bytes(columns: int, step: int) -> None:
    told = descriptor(16, 1024, 1, START + step * 32)
    ins = product(columns, 0, 0)
    for which, rows in ((0, 64), (1, columns)):
        expected = {address(row, step * 16, 128) for row in range(rows)}
        assert {*operands.places(ins, which, told).tolist()} == expected


@pytest.mark.parametrize("swizzle", [1, 2, 3])
def test_columns_of_k_lie_in_boxes_behind_each_other(swizzle: int) -> None:
    width, columns = SWIZZLES[swizzle], 192
    box = 64 * width  # of 64 of K
    told = descriptor(box, 8 * width, swizzle)
    expected = {
        address(k, 0, width) + row * BYTES // width * box
        for k in range(16)
        for row in range(0, columns, width // BYTES)
    }
    assert {*operands.places(product(columns, 0, 1), 1, told).tolist()} == expected
    rows = {*operands.places(product(columns, 0, 1), 0, descriptor(16, 1024, 1)).tolist()}
    assert len(rows) == 64, "A's rows are those of K here"


def test_what_no_swizzle_moves_lies_in_pieces_of_eight_rows() -> None:
    """A piece is 128 bytes: `stride` leads to the next rows, `lead` to the next of K."""
    told = descriptor(128, 256, 0)
    rows = {START + row // 8 * 256 + row % 8 * 16 for row in range(24)}
    assert {*operands.places(product(24, 0, 0), 1, told).tolist()} == rows
    columns = {
        START + k // 8 * 128 + k % 8 * 16 + block * 256 for k in range(16) for block in (0, 1, 2)
    }
    assert {*operands.places(product(24, 0, 1), 1, told).tolist()} == columns


def test_an_unknown_product_reads_at_least_where_its_operand_begins() -> None:
    ins = Instruction(0, ("wgmma", "mma_async"), (Operand("vector"),), "", False, "")
    assert operands.places(ins, 0, descriptor(16, 1024, 1)) == np.array([START])
