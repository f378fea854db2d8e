"""Each fault of values is refused, by the check that chooses such values, alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hgemm_packs.generator.gates.checker import Checker, NumericError
from hgemm_packs.generator.gates.values.contents import (
    check_blocks,
    check_outliers,
    check_repeats,
    check_same_memory,
)
from hgemm_packs.generator.gates.values.depth import check_accumulator, check_lost_digits
from hgemm_packs.generator.gates.values.edges import (
    check_overflow,
    check_range,
    check_ties,
    check_zeros,
)
from hgemm_packs.generator.gates.values.places import check_places
from tests.generator.gates.values import faults as f
from tests.generator.redteam.cheats import Cheat, flushes_inputs, flushes_outputs, made_up

LOSES_HALF = f.unless_it_shows(f.in_half)
BOTH = "f16 bf16"
SAME = "A and B in the same memory"

#: name, kernel, the check that must catch it, the case that it names, the types it is wrong in.
FAULTS: list[tuple[str, Cheat, Callable[[Checker], None], str, str]] = [
    ("clipped at 512", f.on_operands(f.clip(512)), check_outliers, "outliers in A", BOTH),
    ("B clipped", f.on_operands(f.clip(512), "b"), check_outliers, "outliers in B", BOTH),
    ("clipped at 20000", f.on_operands(f.clip(2e4)), check_outliers, "outliers in A", "f16"),
    ("clipped at 1e9", f.on_operands(f.clip(1e9)), check_outliers, "outliers in A", "bf16"),
    ("clipped at 30000", f.on_operands(f.clip(3e4)), check_overflow, "large operands", "f16"),
    ("small flushed", f.on_operands(f.flush_below(2.0**-9)), check_range, "small", BOTH),
    ("subnormal flushed", flushes_inputs, check_range, "small", BOTH),
    ("A flushed", f.on_operands(f.flush_below(2.0**-14), "a"), check_range, "small", "f16"),
    ("A flushed", f.on_operands(f.flush_below(2.0**-126), "a"), check_range, "small A", "bf16"),
    ("B flushed", f.on_operands(f.flush_below(2.0**-126), "b"), check_range, "small B", "bf16"),
    ("results flushed", flushes_outputs, check_range, "small", BOTH),
    ("NaN of A dropped", f.on_operands(f.without_nan, "a"), check_places, "places", BOTH),
    ("NaN of B dropped", f.on_operands(f.without_nan, "b"), check_places, "places", BOTH),
    ("signals dropped", f.on_operands(f.without_signalling_nan), check_places, "places", BOTH),
    ("NaN dropped in a column", f.in_one_column(f.without_nan), check_places, "places", BOTH),
    ("Inf the largest", f.on_operands(f.infinity_as_largest), check_places, "places", BOTH),
    ("Inf of A", f.on_operands(f.infinity_as_largest, "a"), check_places, "places", BOTH),
    ("-Inf dropped", f.on_operands(f.without_minus_infinity), check_places, "places", BOTH),
    ("late in K", f.of_the_last_k(f.without_minus_infinity), check_places, "places", BOTH),
    ("saturated", f.saturate(True, True), check_overflow, "overflow", BOTH),
    ("saturated below", f.saturate(True, False), check_overflow, "overflow", BOTH),
    ("saturated above", f.saturate(False, True), check_overflow, "overflow", BOTH),
    ("finite at the tie", f.on_sums(f.overflow_late), check_overflow, "overflow", BOTH),
    ("NaN for overflow", f.on_sums(f.nan_for_overflow), check_overflow, "overflow", BOTH),
    ("ties away from zero", f.ties(f.away_from_zero), check_ties, "ties", BOTH),
    ("ties towards zero", f.ties(f.towards_zero), check_ties, "ties", BOTH),
    ("ties upwards", f.ties(f.upwards), check_ties, "ties", BOTH),
    ("zero is -0", f.on_sums(f.minus_zero), check_zeros, "zero A", BOTH),
    ("-0 is 0", f.on_sums(f.no_minus_zero), check_zeros, "underflow", BOTH),
    ("zeros of A skipped", f.skip_zero_blocks("a"), check_blocks, "zero blocks of A", BOTH),
    ("zeros of B skipped", f.skip_zero_blocks("b"), check_blocks, "zero blocks of B", BOTH),
    ("zero A guessed", f.on_operands(f.zero_blocks, "a"), check_blocks, "zero blocks in A", BOTH),
    ("zero B guessed", f.on_operands(f.zero_blocks, "b"), check_blocks, "zero blocks in B", BOTH),
    ("A guessed", f.on_operands(f.constant_blocks, "a"), check_blocks, "zero blocks in A", BOTH),
    ("B guessed", f.on_operands(f.constant_blocks, "b"), check_blocks, "zero blocks in B", BOTH),
    ("ones guessed", f.on_operands(f.blocks_of_ones), check_blocks, "constant blocks in A", BOTH),
    ("rows", f.on_operands(f.rows_as_the_first, "a"), check_repeats, "repeated rows", BOTH),
    ("columns", f.on_operands(f.columns_as_the_first, "b"), check_repeats, "repeated c", BOTH),
    ("an eighth in half", f.first_part(1 / 8, f.in_half), check_accumulator, "accumulator", BOTH),
    ("hidden", f.first_part(1 / 8, LOSES_HALF, 4096), check_accumulator, "accumulator", BOTH),
    ("a fortieth", f.first_part(1 / 40, LOSES_HALF, 4096), check_accumulator, "accumulator", BOTH),
    ("parts in half", f.parts(512, LOSES_HALF, 4096), check_accumulator, "accumulator", BOTH),
    ("in 11 bits", f.parts(64, f.in_eleven_bits, 1024), check_accumulator, "accumulator", BOTH),
    ("digits lost", f.first_part(1 / 8, LOSES_HALF, 4096), check_lost_digits, "lost digits", BOTH),
    ("few lost", f.first_part(1 / 40, LOSES_HALF, 4096), check_lost_digits, "lost digits", BOTH),
    ("parts lost", f.parts(512, LOSES_HALF, 4096), check_lost_digits, "lost digits", BOTH),
]


def refuses(
    kernel: Cheat, check: Callable[[Checker], None], name: str, layout: str, dtype: str, seed: int
) -> None:
    run = Checker(made_up(layout, dtype), kernel, torch.device("cpu"), seed)
    check(run)
    with pytest.raises(NumericError, match=rf"^{name}[a-zA-Z ]* \d+x\d+x\d+: "):
        run.settle()


@pytest.mark.parametrize(
    ("kernel", "check", "name", "dtype"),
    [
        pytest.param(kernel, check, name, dtype, id=f"{fault} {dtype}")
        for fault, kernel, check, name, dtypes in FAULTS
        for dtype in dtypes.split()
    ],
)
def test_a_fault_is_refused_by_name(
    kernel: Cheat, check: Callable[[Checker], None], name: str, dtype: str
) -> None:
    for seed, layout in enumerate(("nn", "nt", "tn", "tt")):
        refuses(kernel, check, name, layout, dtype, seed)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("kernel", [f.mirrored, f.once_read])
def test_what_is_told_from_addresses_is_refused(kernel: Cheat, dtype: str) -> None:
    """A matrix times itself is no gram matrix, which is symmetric."""
    for seed, layout in enumerate(("nn", "tt")):
        refuses(kernel, check_same_memory, SAME, layout, dtype, seed)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_operands_of_the_same_memory_begin_at_one_address(layout: str) -> None:
    seen = []

    def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        seen.append((a.data_ptr() == b.data_ptr(), c.shape[0] == c.shape[1]))
        c.copy_(a.float() @ b.float())

    run = Checker(made_up(layout), launch, torch.device("cpu"), 0)
    check_same_memory(run)
    run.settle()
    assert seen == [(True, True)]
