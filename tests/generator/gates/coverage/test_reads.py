"""All that a tile is made of is read: a part of K that some sizes leave out shows by the
addresses, whatever the choice was made by. Bits of a size by two shifts, its square, a stride, a
sum that wraps round: each passed the rule that every comparison is taken both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.gates.coverage import gate
from hgemm_packs.generator.gates.coverage.launches import with_strides
from hgemm_packs.generator.gates.coverage.reads import irregular, tiles
from hgemm_packs.generator.redteam import corpus
from tests.generator.gates.coverage.test_coverage import PLAIN, STORE, SUM, judged

pytestmark = pytest.mark.usefixtures("kept")

LESS = "  int f;\n{}\n  sum(acc, g, row, column, 0, k - f);\n"
SHIFTS = (
    '  int x;\n  asm volatile("shr.u32 %0, %1, 9;" : "=r"(x) : "r"(m));\n'
    '  asm volatile("shr.u32 %0, %1, 10;" : "=r"(f) : "r"(m));\n  f = (x - 2 * f) * 16;'
)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (SHIFTS, "unread: line 0, element 64 of A of 512x512x72"),
        ("  f = lda > 65535 ? 16 : 0;", "unread: line 0, element 64 of A of 300x304x72"),
        (
            "  const int x = m >> 12;\n  f = x * (x - 1) * 8;",
            "unread: line 0, element 64 of A of 8192x8192x72",
        ),
    ],
)
def test_k_that_some_sizes_leave_out_is_found(code: str, told: str) -> None:
    assert told in judged((SUM, LESS.format(code))).detail


@pytest.mark.parametrize(
    ("operand", "change", "told"),
    [
        (
            "a",
            (SUM, SUM.replace("0, k", "(lda % 8 + 11) / 16 * 16, k")),
            "unread: line 0, element 0 of A of ",
        ),
        (
            "c",
            (STORE, "  store(acc, g, row, column + (ldc % 8 + 11) / 16);\n"),
            "tile: a CTA writes columns 1 to 8, declared are 8 from a multiple of 8 on",
        ),
    ],
)
def test_strides_of_each_residue_are_followed(
    operand: str, change: tuple[str, str], told: str
) -> None:
    """Lines 5 to 7 elements behind a multiple of 8 apart: no problem had such."""
    assert PLAIN is not None
    align = {**PLAIN.fields["align"], operand: 2}
    assert judged(align=align).detail == ""
    assert told in judged(change, align=align).detail


def test_a_number_that_would_soon_wrap_round_is_found() -> None:
    carry = (
        "  u64 wide;\n  const u32 x = m + 0xfff00000u;\n"
        '  asm volatile("cvt.u64.u32 %0, %1;" : "=l"(wide) : "r"(x));\n'
        "  f = (int)((wide - 0xfff00000ull - m) >> 32) * 16;"
    )
    told = judged((SUM, LESS.format(carry))).detail
    assert "width: a number next to the end of 32 bits in 'cvt.u64.u32" in told


def test_a_lane_that_sizes_decide_is_no_source_of_sums() -> None:
    shuffled = SUM + (
        '  asm volatile("shfl.sync.idx.b32 %0, %0, %1, 31, -1;" : "+f"(acc[0])'
        ' : "r"((threadIdx.x + (k >> 12)) % 32));\n'
    )
    assert "lane: sizes decide which in 'shfl.sync.idx.b32" in judged((SUM, shuffled)).detail


@pytest.mark.parametrize(
    ("accesses", "told"),
    [
        ([(0, 1, 0, 4), (1, 1, 0, 4)], ""),
        ([(0, 2, 0, 2), (0, 2, 2, 2)], ""),
        ([(0, 2, -3, 9)], ""),
        ([(0, 1, 0, 4), (1, 1, 0, 3)], "line 1, element 3"),
        ([(0, 2, 0, 1), (0, 2, 2, 2)], "line 0, element 1"),
        ([(5, 1, 0, 4)], "line 0, element 0"),
    ],
)
def test_what_no_access_covers_is_named(accesses: list[tuple[int, ...]], told: str) -> None:
    columns: Any = np.array(accesses).T
    assert tiles._uncovered((0, 2, 0, 4), *columns) == told


def detail(name: str) -> str:
    """What the size gate says of a case of the corpus."""
    made = next(each for each in corpus.load() if each.name == name).candidate
    assert made is not None
    ptx = compiler._compile(made.source, str(made.fields["symbol"]))[2]
    return gate.check_ptx(made.fields, ptx).detail


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cluster_sum", ""),
        ("sliced", ""),
        ("ferry", ""),
        ("rows_in_groups", ""),
        ("stale_but_for_a_bit_behind", ""),  # reads C, which the data-flow gate refuses
        ("half_of_k_lost_in_a_cluster", "unread: line 0, element 64 of A of 512x512x72"),
        ("a_step_of_a_slice_lost", "unread: line 0, element 64 of A of 512x512x72"),
    ],
)
def test_ctas_that_share_a_tile_count_together(name: str, told: str) -> None:
    assert detail(name).split("; ")[0] == told


def test_problems_are_those_of_users_and_without_pattern() -> None:
    assert PLAIN is not None
    fields = {**PLAIN.fields, "id": "0" * 64}
    found = irregular.problems(fields)
    assert found == irregular.problems(fields)
    assert with_strides(fields, 4096, 4096, 72) in found
    assert found != irregular.problems({**fields, "id": "1" * 64})
    # Each bit of M up to the twelfth is set in some and clear in others that have more bits.
    for bit in range(12):
        larger = [each.m >> bit & 1 for each in found if each.m >> bit > 1]
        assert {0, 1} <= set(larger), bit


def test_the_beginnings_of_problems_are_followed_one_by_one() -> None:
    """A loop that runs for long in one problem kept the others' beginnings from being met."""
    assert detail("fast_where_a_tile_is_whole") == ""
