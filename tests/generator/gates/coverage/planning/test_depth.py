"""What grows with K compares the same up to the deepest K, or its kernel is refused.

The story: the largest K is followed for a few hundred steps, and a comparison that was met there
counted as seen. Three kernels took other rows, or waited for nothing more, from 100000 of K on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate

pytestmark = pytest.mark.usefixtures("kept")

CASES = {case.name: case for case in corpus.load()}
SUM = "  sum(acc, g, row, column, 0, k);\n"


def loop(condition: str) -> str:
    """A sum over K of which a step is left out where a condition of its place does not hold."""
    taken = f'asm volatile("{{ .reg .pred p; {condition} selp.b32 %0, 0, 1, p; }}"'
    return f"""  for (int p = 0; p < k; p += 16) {{
    int left_out;
    {taken} : "=r"(left_out) : "r"(p), "r"(k));
    if (!left_out) step(acc, g, row, column, p);
  }}
"""


def judged(name: str, changes: Sequence[tuple[str, str]]) -> Verdict:
    candidate = CASES[name].candidate
    assert candidate is not None
    source = candidate.source
    for text, other in changes:
        assert text in source
        source = source.replace(text, other)
    return evaluate.build_gates(replace(candidate, source=source))[0][-1]


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("setp.lt.s32 p, %1, 100000;", "one way: never false, zero or smaller in 'setp.lt.s32"),
        # Comes round: 100000 less than the end of 32 bits.
        (
            "add.s32 %0, %1, -50000; setp.gt.u32 p, %0, -50001;",
            "one way: never false, zero or smaller in 'setp.gt.u32",
        ),
        ("setp.lt.s32 p, %1, %2;", ""),  # the loop's own, which never fails
        ("setp.gt.s32 p, %1, -16;", ""),
    ],
)
def test_a_step_is_compared_with_what_it_never_comes_to(condition: str, told: str) -> None:
    verdict = judged("plain", [(SUM, loop(condition))])
    assert verdict.detail[: len(told) or None] == told


def test_a_ring_of_a_family_is_waited_for_at_every_depth() -> None:
    early = """__device__ __forceinline__ bool is_early(int i) {
  int y;
  asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, 1600; selp.b32 %0, 1, 0, p; }"
               : "=r"(y) : "r"(i));
  return y != 0;
}

// Load: one thread. Asks for one stage of the tile at"""
    waits = "if (HGP_PERSISTENT || i >= range.begin + kStages)"
    verdict = judged(
        "wgmma_staged",
        [
            (waits, "if (i >= range.begin + kStages && is_early(i))"),
            ("// Load: one thread. Asks for one stage of the tile at", early),
        ],
    )
    assert verdict.status is Status.COVERAGE
    assert verdict.detail.startswith("one way: never false, zero or smaller in 'setp.lt.s32")
