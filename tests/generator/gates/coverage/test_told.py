"""Sizes that something else than a comparison tells from all others: numbers that nobody computes,
bits that are cut off, sums of bits, tables, quotients. Each got through before, for one M and N
that no gate would have run."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates.coverage import gate, trial
from hgemm_packs.generator.gates.coverage.program import widths
from hgemm_packs.generator.gates.dataflow.program.parse import parse
from tests.generator.gates.coverage.test_coverage import SUM, judged

pytestmark = pytest.mark.usefixtures("kept")


#: The plain kernel's sum, of an A that is read so many columns on.
SHIFTED = (
    "  const unsigned x = (m ^ 4096) | (n ^ 4608);\n  int d;\n"
    "  %s\n  Problem at = g;\n  at.a += d * 8;\n" + SUM.replace("acc, g", "acc, at")
)
BIT = 'asm volatile("shr.u32 %%0, %%1, 11; and.b32 %%0, %%0, 1;" : "=r"({0}) : "r"({0}));'
TOLD = {
    "a count of bits": (
        'asm("popc.b32 %0, %1;" : "=r"(d) : "r"(x)); d = d == 0;',
        "undecided: a",
    ),
    "a comparison without a predicate": (
        'asm("set.eq.u32.s32 %0, %1, 0;" : "=r"(d) : "r"(x)); d = -d;',
        "undecided: a",
    ),
    "what runs beside it": ("d = __popc(__activemask()) != 32;", "undecided: a"),
    "the upper half of a product": (
        'asm("mul.hi.u32 %0, %1, 0xffffffff;" : "=r"(d) : "r"(x)); d = d - x + 1;',
        "one way: never false, zero or smaller in 'mul.hi.u32",
    ),
    "a sign": (
        'asm volatile("{ .reg .b32 s; add.s32 %0, %1, -1; shr.u32 s, %0, 31; add.s32 %0, %0, s; }"'
        ' : "=r"(d) : "r"(x)); d = d - x + 1;',
        "one way: never true, not zero or larger in 'shr.u32",
    ),
    "a reciprocal": (
        'float of = (float)x + 1.0f; asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(of)); d = (int)of;',
        "one way: never true, not zero or larger in 'cvt.rzi",
    ),
    "remainders": (
        "d = m % 5 == 1; int e = m % 7 == 3, f = m % 11 == 5;"
        'asm volatile("mul.lo.s32 %0, %0, %1; mul.lo.s32 %0, %0, %2;"'
        ' : "+r"(d) : "r"(e), "r"(f));',
        "one way: never 1 in 'mul.lo.s32",
    ),
    "two bits": (
        f"int u = m, v = n; {BIT.format('u')} {BIT.format('v')}"
        'asm volatile("{ .reg .b32 s; add.s32 s, %1, %2; or.b32 %0, s, 1; }"'
        ' : "=r"(d) : "r"(u), "r"(v)); d = (d - 1) / 2;',
        "of 2056x2120x1032",  # which has both bits
    ),
}


@pytest.mark.parametrize(("told_by", "words"), TOLD.values(), ids=TOLD)
def test_a_size_that_is_told_by_no_comparison_is_refused(
    told_by: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "MOST_TOLD", 99)  # what is read and not is told before
    verdict = judged((SUM, SHIFTED.replace("%s", told_by.replace("%%", "%"))))
    assert verdict.status is Status.COVERAGE
    assert words in verdict.detail


OF_A = "A_T ? g.a[(i64)p * g.lda + row] : g.a[(i64)row * g.lda + p]"

#: Twenty bits of a number, by its complement.
TURNED = (
    'asm volatile("shl.b32 %0, %0, 12; not.b32 %0, %0; shr.u32 %0, %0, 12; not.b32 %0, %0;'
    ' and.b32 %0, %0, 0xfffff;" : "+r"(x));'
)


@pytest.mark.parametrize(
    "element",
    [
        "g.a[(i64)(row & 0xffff) * g.lda + p]",
        "g.a[(i64)(u16)row * g.lda + p]",
        "g.a[(i64)row * g.lda + (p & 0x1ffff)]",
        "g.a[(i64)[](int x) {" + TURNED + " return x; }(row) * g.lda + p]",
    ],
)
def test_a_place_that_is_cut_to_fewer_bits_than_sizes_have_is_refused(element: str) -> None:
    verdict = judged((OF_A, element))
    assert verdict.status is Status.COVERAGE
    assert "width: bits that no problem of the gate has are lost in '" in verdict.detail


def test_an_index_that_comes_round_to_the_padding_of_a_row_is_refused() -> None:
    verdict = judged((OF_A, "g.a[(u32)row * (u32)g.lda + p]"))
    assert verdict.status is Status.COVERAGE
    assert "bounds: A" in verdict.detail


def test_problems_in_which_comparisons_go_each_way_are_named_for_other_tools() -> None:
    change = SUM + "  if (m <= 100) __syncwarp();\n"
    ways = judged((SUM, change)).evidence["ways"]
    assert {m <= 100 for m, _, _ in ways} == {True, False}
    assert all(2 * (m * k + k * n + m * n) <= 1 << 22 for m, n, k in ways)


def test_bits_that_an_instruction_keeps() -> None:
    wanted = {
        "and.b32 %r1, %r2, 65535;": 16,
        "and.b32 %r1, %r2, -16;": None,
        "cvt.u16.u32 %rs1, %r2;": 16,
        "cvt.u64.u32 %rd1, %r2;": None,
        "shl.b32 %r1, %r2, 14;": 18,
        "shl.b32 %r1, %r2, %r3;": None,
        "bfe.u32 %r1, %r2, 4, 8;": 12,
        "add.s32 %r1, %r2, %r3;": None,
    }
    kernel = parse(f".visible .entry kernel() {{ {' '.join(wanted)} ret; }}")
    found = [widths.kept(ins) for ins in kernel.instructions[:-1]]
    assert found == list(wanted.values())


def test_a_table_has_the_zeros_that_its_text_leaves_out() -> None:
    found = trial.tables(".const .align 4 .b8 kOrder[8] = {32, 0, 0, 0, 16};")
    assert found["kOrder"].tolist() == [32, 0, 0, 0, 16, 0, 0, 0]


def test_numbers_that_several_come_to() -> None:
    assert widths.values_of(0, 3, 0) == {0, 1, 2, 3}
    assert widths.values_of(0, 48, 4) == {0, 16, 32, 48}
    assert widths.values_of(0, 1000, 0) == frozenset()
    wanted = {7: frozenset((0, 1)), 8: frozenset((0, 1)), 9: frozenset((0, 1))}
    assert widths.missing(wanted, {7: {0, 1}, 8: {0}}) == {8: 1}, "nothing comes to the last"
