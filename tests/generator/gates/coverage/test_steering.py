"""Sizes that decide where no comparison stands: polynomials that are zero for all sizes of the
gate, choices between sums of which each was seen and both together never, addresses of no state
space, remainders that nothing wrapped, bits at a place that sizes say. Each got through before, and
was right on every problem that any gate runs."""

from __future__ import annotations

import numpy as np
import pytest

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates.coverage import gate
from hgemm_packs.generator.gates.coverage.program import arithmetic
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate
from tests.generator.gates.coverage.test_coverage import STORE, SUM, judged

pytestmark = pytest.mark.usefixtures("kept")


TWICE = (
    "  const int x = %s, y = x - 1;\n  int f;\n"
    '  asm volatile("mul.lo.s32 %%0, %%1, %%2;" : "=r"(f) : "r"(x), "r"(y));\n'
)
PLACED = STORE.replace(
    "store(acc, g, row, column);",
    "for (int i = 0; i < 4; ++i) put(g, row + (row_of(i) ^ 4 * f), column + column_of(i), acc[i]);",
)
SELECT = (
    'asm volatile("{ .reg .pred p; setp.gt.s32 p, %%1, %s; selp.f32 %%0, %%2, %%0, p; }"'
    ' : "+f"(acc[2]) : "r"(%s), "f"(acc[0]));'
)
SHARED = """  __shared__ float parts[3][32];
  int f;
  asm volatile("{ .reg .pred p, q; .reg .s32 x, y; setp.gt.s32 p, %1, 700; setp.gt.s32 q, %2, 3000;"
               "selp.s32 x, 128, 0, p; selp.s32 y, 128, 0, q; add.s32 %0, x, y; }"
               : "=r"(f) : "r"(m), "r"(k));
  parts[0][threadIdx.x] = parts[1][threadIdx.x] = acc[2];
  parts[2][threadIdx.x] = acc[0];
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(acc[2])
               : "r"((u32)__cvta_generic_to_shared(&parts[0][threadIdx.x]) + f));
"""
AT_640 = (
    '  int f; asm volatile("{ .reg .s32 d; sub.s32 d, %%1, 640; shl.b32 d, d, 5; %s; }"'
    ' : "=r"(f) : "r"(m));\n'
)
LOOP = (
    "  for (int p = 0; p < k; p += 16) {\n"
    '    asm volatile("{ .reg .pred p; .reg .u32 x; rem.u32 x, %1, 70000; setp.eq.u32 p, x, 0;"\n'
    '                 "selp.f32 %0, 0f00000000, %0, p; }" : "+f"(acc[0]) : "r"(p));\n'
    "    step(acc, g, row, column, p);\n  }\n"
)
BEHIND = (
    '  asm volatile("{ .reg .b16 t; ld.b16 t, [%0]; }"'
    ' :: "l"(a + (i64)(row + 16 + row_of(0)) * lda));\n'
)
TOLD = {
    "a place within a tile": ((STORE, TWICE % "(int)(blockIdx.x >> 14)" + PLACED), "power: "),
    "a place and a size": (
        (STORE, (TWICE % "(int)(blockIdx.x >> 14)").replace("x - 1;", "(m >> 18) - 1;") + PLACED),
        "power: ",
    ),
    "a number of CTAs": ((STORE, TWICE % "(int)(gridDim.x >> 14)" + PLACED), "power: "),
    "a float": (
        (
            SUM,
            "  float x = (float)(m >> 13); x = x * (x - 1.0f);\n"
            + SUM.replace("0, k", "0, k - 16 * (int)x"),
        ),
        "power: ",
    ),
    "choices between sums": (
        (STORE, f"  {SELECT % (700, 'm')}\n  {SELECT % (3000, 'k')}\n{STORE}"),
        "choice: sizes decide between operands or sums in 'selp.f32",
    ),
    "a remainder": ((SUM, LOOP), "one way: never true, not zero or larger in 'rem.u32"),
    "a load of no state space": ((SUM, BEHIND + SUM), "bounds: A, 512 bytes from where it begins"),
    "a shift as far as a size says": (
        (SUM, AT_640 % "shl.b32 %0, 16, d" + SUM.replace("0, k", "0, k - 16 * f")),
        "shift: sizes decide how far in 'shl.b32",
    ),
    "the least of two sizes": (
        (
            SUM,
            '  int f; asm volatile("min.s32 %0, %1, %2;" : "=r"(f) : "r"(m >> 9), "r"(k >> 10));\n'
            + SUM.replace("0, k", "0, k - 16 * f"),
        ),
        "meeting: what two sizes come to in 'min.s32",
    ),
    "two thirds of a float": (
        (
            SUM,
            "  float x = (m > 500 ? 0.33f : 0.0f), y = (k > 1000 ? 0.33f : 0.0f);\n"
            '  asm volatile("add.f32 %0, %0, %1;" : "+f"(x) : "f"(y));\n'
            + SUM.replace("0, k", "0, k - 16 * (int)(x + 0.5f)"),
        ),
        "meeting: what two sizes come to in 'add.f32",
    ),
    "a bit where sizes say": (
        (
            SUM,
            '  int f; asm volatile("bfi.b32 %0, 1, 0, %1, 1;" : "=r"(f) : "r"(m ^ 77));\n'
            + SUM.replace("0, k", "0, k - 16 * f"),
        ),
        "undecided: a number that is not known",
    ),
}


@pytest.mark.parametrize(("change", "words"), TOLD.values(), ids=TOLD)
def test_what_sizes_steer_is_refused(
    change: tuple[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "MOST_TOLD", 99)  # other rules tell of some of these as well
    verdict = judged(change, dims=FEWER)
    assert verdict.status is Status.COVERAGE
    assert words in verdict.detail


def test_a_place_in_shared_memory_that_two_sizes_say_is_refused() -> None:
    verdict = judged((STORE, SHARED + STORE), dims=FEWER)
    assert "mixture: several sizes make a number in 'add.s32" in verdict.detail


FEWER = {
    "m": {"min": 1, "max": 786432, "multiple_of": 1},
    "n": {"min": 8, "max": 1 << 20, "multiple_of": 8},
    "k": {"min": 8, "max": 1 << 20, "multiple_of": 8},
}


def test_a_quotient_times_its_divisor_is_no_power() -> None:
    """Tiles in groups take the remainder of a place by a number of tiles, which PTX finds so."""
    tile = "const int row = blockIdx.x * 16"
    groups = "const int w = (m + 15) / 16, t = blockIdx.x % w + blockIdx.x / w * w, row = t * 16"
    assert judged((tile, groups)).detail == ""


def test_a_share_of_k_by_a_place_is_no_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second tile adds its sum in two parts: comparisons that this makes idle are told of,
    and no product."""
    monkeypatch.setattr(gate, "MOST_TOLD", 99)
    parts = (
        '  int cut; asm("mul.lo.s32 %0, %1, %2;" : "=r"(cut)'
        ' : "r"(blockIdx.x % 2), "r"(k / 32 * 16));\n'
        + SUM.replace("0, k", "0, cut")
        + SUM.replace("0, k", "cut, k")
    )
    assert "power" not in judged((SUM, parts)).detail
    assert "power" in judged((SUM, parts.replace("blockIdx.x % 2", "m / 65536"))).detail


def test_a_load_of_no_state_space_is_followed_like_others() -> None:
    """It was not followed at all, so that a kernel with no other was refused."""
    plain = "A_T ? g.a[(i64)p * g.lda + row] : g.a[(i64)row * g.lda + p];"
    by = (
        '0; u16 v; asm volatile("ld.b16 %0, [%1];" : "=h"(v) : "l"(g.a + (i64)row * g.lda + p));'
        " return v;"
    )
    changed = judged((f"return {plain}", by.removeprefix("0; ")))
    assert changed.detail == ""


@pytest.mark.parametrize(
    ("opcode", "given", "made"),
    [
        (("cvt", "rzi", "u32", "f32"), -5.0, 0),
        (("cvt", "rzi", "s32", "f32"), 3e9, (1 << 31) - 1),
        (("cvt", "rzi", "s32", "f32"), -3e9, -1 << 31),
        (("cvt", "rzi", "u32", "f32"), 3e9, 3000000000 - (1 << 32)),
        (("cvt", "rzi", "s32", "f32"), float("nan"), 0),
    ],
)
def test_a_conversion_ends_where_its_type_does(
    opcode: tuple[str, ...], given: float, made: int
) -> None:
    """The machine took the bits that were left over."""
    rule = arithmetic.RULES["cvt"](opcode)
    assert rule is not None
    assert rule(np.array([given], np.float32)).tolist() == [made]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("carry_of_inserted_bits", "carry: sizes and a thread both have a part in 'bfi.b32"),
        ("shifted_by_a_lane", "carry: sizes and a thread both have a part in 'shr.u32 t, t, %r"),
        ("all_three_large", "mixture: several sizes make a number in 'and.b32"),
        ("remainder_of_two", "mixture: several sizes make a number in 'rem.u32"),
        ("sum_of_three", "mixture: several sizes make a number in 'add.s32"),
        ("deeper_than_the_grid", "ratio: two sizes are compared in 'setp.gt.s32"),
        ("least_of_two", "meeting: what two sizes come to in 'min.s32"),
        ("product_of_sizes", "power: a product that is zero for other sizes as well in 'mad.lo"),
        ("columns_of_b_in_20_bits", "width: bits that no problem of the gate has are lost in 'shl"),
    ],
)
def test_what_only_large_sizes_come_to_is_refused(name: str, words: str) -> None:
    case = {each.name: each for each in corpus.load()}[name]
    assert words in evaluate.build_gates(case.candidate)[0][-1].detail
