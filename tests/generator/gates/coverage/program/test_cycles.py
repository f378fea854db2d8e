"""Numbers that loops step: a polynomial of a size came out of a loop that adds up differences, and
was zero for all the sizes that problems of the gate have."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.gates.coverage import gate
from hgemm_packs.generator.gates.coverage.program.cycles import Cycles
from hgemm_packs.generator.gates.coverage.program.slices import makers
from hgemm_packs.generator.gates.dataflow.program.parse import parse
from hgemm_packs.generator.gates.dataflow.program.webs import split
from tests.generator.gates.coverage.test_coverage import STORE, judged

pytestmark = pytest.mark.usefixtures("kept")

TOLD = "polynomial: a loop steps a number by more than what stays in '{}'"


def curved(body: str) -> list[str]:
    text = f"""
.visible .entry kernel(.param .u32 p0, .param .u32 p1)
{{
ld.param.u32 %r1, [p0];
ld.param.u32 %r2, [p1];
mov.u32 %r3, 0;
mov.u32 %r4, 1;
mov.u32 %r5, 2;
$L:
{body}
add.s32 %r3, %r3, 1;
setp.lt.s32 %p1, %r3, %r1;
@%p1 bra $L;
ret;
}}
"""
    kernel = split(parse(text))
    found = Cycles(makers(kernel), lambda name: name.startswith("%r")).curved()
    return [ins.text for ins in found]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("add.s32 %r4, %r4, %r2;", []),
        ("add.s32 %r4, %r4, 7; xor.b32 %r5, %r5, 1;", []),
        ("mad.lo.s32 %r4, %r2, 16, %r4;", []),
        ("add.s32 %r6, %r4, 1; rem.u32 %r4, %r6, 3;", []),
        ("setp.eq.s32 %p2, %r3, 3; selp.b32 %r4, 0, %r4, %p2; add.s32 %r4, %r4, 1;", []),
        ("mul.lo.s32 %r6, %r3, %r3; add.s32 %r7, %r6, %r4;", []),
        ("add.s32 %r4, %r4, %r3;", ["add.s32 %r4, %r4, %r3"]),
        ("shl.b32 %r6, %r3, 2; mov.u32 %r7, %r6; sub.s32 %r4, %r4, %r7;",
         ["sub.s32 %r4, %r4, %r7"]),
        ("mad.lo.s32 %r4, %r4, 5, 1;", ["mad.lo.s32 %r4, %r4, 5, 1"]),
        ("add.s32 %r4, %r4, %r4;", ["add.s32 %r4, %r4, %r4"]),
        ("add.s32 %r4, %r4, %r5; sub.s32 %r5, %r5, %r4;",
         ["add.s32 %r4, %r4, %r5", "sub.s32 %r5, %r5, %r4"]),
    ],
)  # fmt: skip
def test_a_loop_adds_what_stays(body: str, told: list[str]) -> None:
    assert sorted(set(curved(body))) == told


LOOP = """  int f = 0;
#pragma unroll 1
  for (int t = 0; t < {}; ++t) asm volatile("add.s32 %0, %0, %1;" : "+r"(f) : "r"({}));
"""
PLACED = STORE.replace(
    "store(acc, g, row, column);",
    "for (int i = 0; i < 4; ++i) put(g, row + (row_of(i) ^ 4 * f), column + column_of(i), acc[i]);",
)


def test_a_size_is_no_step_of_what_it_says_the_number_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """So often added, it is its own product."""
    monkeypatch.setattr(gate, "MOST_TOLD", 99)  # other rules tell of both as well
    words = TOLD.format("add.s32")[:-1]
    assert words in judged((STORE, LOOP.format("n / 8192", "n / 8192 - 1") + PLACED)).detail
    assert words not in judged((STORE, LOOP.format("n / 8192", "m / 8192 - 1") + PLACED)).detail
