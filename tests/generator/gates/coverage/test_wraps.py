"""Sizes make no windows by what a number of few bits, or a float, does beyond its end.

The story: a stranger's kernels turned rows of C round from 8192 columns or 131072 of K on, beyond
all that a gate runs, with no comparison in them: a sum or a product came round, a float was
rounded, a register was filled up otherwise than the gate thought.
"""

from __future__ import annotations

import pytest

from hgemm_packs.generator.gates.dataflow import ranges
from hgemm_packs.generator.gates.dataflow.values import Value
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate

CASES = {case.name: case for case in corpus.load()}
LOST = "width: bits that no problem of the gate has are lost in '"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bits_of_a_float", "float: made of a whole number in 'cvt.rn.f32.u32"),
        ("half_in_a_wide_register", "wide: a register has more bits than what is put into it"),
        ("entry_in_a_wide_register", "wide: a register has more bits than what is put into it"),
        ("loss_behind_a_loss", LOST + "mul.lo.u32"),
        ("lead_below_zero", LOST + "mul.lo.s32"),
        ("steps_that_add_up", LOST + "shr.u32"),
        ("steps_by_a_product", LOST + "mul.lo.u32"),
        ("zeros_by_a_copy", LOST + "mul.lo.u32"),
        ("mask_of_a_range", "one way: never false, zero or smaller in 'and.b32"),
        ("lines_of_b_by_four", "bounds: B, "),
    ],
)
def test_a_window_beyond_all_that_is_run_is_refused(name: str, words: str) -> None:
    verdict = evaluate.build_gates(CASES[name].candidate)[0][-1]
    assert verdict.gate == "coverage"
    assert verdict.detail.startswith(words)


@pytest.mark.parametrize(
    "mask", [-8, -(1 << 17) - 1, 7, 0x5555, -6, -(1 << 10)], ids=lambda mask: hex(mask)
)
@pytest.mark.parametrize(("low", "high"), [(8, 131080), (0, 63), (1000, 1003)])
def test_the_range_of_a_masked_number_has_all_that_it_comes_to(
    mask: int, low: int, high: int
) -> None:
    inputs = [Value(low=low, high=high), Value(low=mask, high=mask)]
    for pair in (inputs, inputs[::-1]):
        least, most = ranges._and((), pair)
        every = [number & mask for number in range(low, high + 1)]
        assert least is not None and most is not None
        assert least <= min(every) and max(every) <= most
