"""The numeric gate: kernels that add in fp32 pass, every cheat or bug is caught where it shows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch

from hgemm_packs.generator.gates import numeric
from hgemm_packs.generator.gates.checker import Checker, Launch, Numeric, NumericError
from hgemm_packs.generator.gates.sizes import SIDE, check_sizes
from hgemm_packs.generator.gates.values import depth, sums
from hgemm_packs.pack.manifest import KernelEntry
from tests import packs
from tests.generator.gates.shortcuts import (
    Meets,
    RemembersSome,
    assumes_packed,
    every_other_k,
    fills_nan_only,
    first_row_only,
    guesses_constant,
    guesses_zero,
    guesses_zero_in_b,
    operands_in_8_bits,
    rows_from,
    writes_transposed,
)
from tests.generator.kernels import record
from tests.generator.redteam.cheats import (
    RING,
    SMS,
    STAGES,
    TILE_K,
    TILE_M,
    TILE_N,
    Cheat,
    Remembers,
    Tensor,
    Unsteady,
    backwards,
    changes,
    chunks_in_16_bits,
    flushes_inputs,
    flushes_outputs,
    hides_nan,
    honest,
    k_limited,
    made_up,
    nothing,
    only_if,
    reads_b_transposed,
    reads_padding,
    rounds_twice,
    saturates,
    second_band,
    skips_nan,
    split_k,
    spreads_nan,
    tail_rows_of_later_tiles,
    tensor_core,
    tiles_from,
    truncates_output,
    whole_columns_only,
    whole_rows_only,
    writes,
    zero,
)

CPU = torch.device("cpu")
WRONG = "elements wrong or unwritten"


def gate(launch: Launch, entry: KernelEntry | None = None, seed: int = 1) -> Numeric:
    return numeric.check(entry or made_up(), launch, CPU, SMS, seed)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("kernel", [honest, split_k, tensor_core])
def test_fp32_accumulation_passes(kernel: Launch, dtype: str) -> None:
    rounding = {"f16": 2.1e-4, "bf16": 1.7e-3}[dtype]
    for seed in range(3):
        verdict = gate(kernel, made_up("nt", dtype), seed)
        # Of a C of few elements it may be half a unit of the last place, of many it is less.
        assert rounding < verdict.max_rel_err < {"f16": 2.0**-11, "bf16": 2.0**-8}[dtype]
        assert verdict.shapes_tested > 40
        assert verdict.pending == []


def test_any_order_of_addition_passes() -> None:
    gate(
        backwards, made_up(dims={d: {"min": 16, "max": 1 << 24, "multiple_of": 16} for d in "mnk"})
    )


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_operands_come_as_the_layout_stores_them(layout: str) -> None:
    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        inner = {"n": 1, "t": 0}
        contiguous = a.stride(inner[layout[0]]), b.stride(inner[layout[1]]), c.stride(1)
        assert contiguous == (1, 1, 1)
        usual = sum(side % SIDE == 0 for side in (*a.shape, b.shape[1])) > 1
        if not usual:  # half of those are stored without padding
            assert max(a.stride()) > a.shape[inner[layout[0]]], "a leading stride above the minimum"
            assert max(b.stride()) > b.shape[inner[layout[1]]]
            assert c.stride(0) > c.shape[1]
        assert all(stride * 2 % 16 == 0 for t in (a, b, c) for stride in t.stride() if stride != 1)
        assert all(t.data_ptr() % 16 == 0 for t in (a, b, c))
        honest(a, b, c)

    gate(launch, made_up(layout))


Sizes = dict[str, dict[str, int]]
WIDE: Sizes = {
    "m": {"min": 32, "max": 1 << 24, "multiple_of": 32},
    "n": {"min": 64, "max": 1 << 24, "multiple_of": 64},
    "k": {"min": 256, "max": 1 << 24, "multiple_of": 128},
}
NARROW: Sizes = {
    "m": {"min": 1, "max": 16, "multiple_of": 1},
    "n": {"min": 3, "max": 40, "multiple_of": 8},
    "k": {"min": 1, "max": 100, "multiple_of": 1},
}
SINGLE: Sizes = {d: {"min": 1, "max": 1, "multiple_of": 1} for d in "mnk"}
ODD: Sizes = {d: {"min": 1, "max": 1 << 24, "multiple_of": 1} for d in "mnk"}


@pytest.mark.parametrize(
    ("dims", "ns", "ks"),
    [
        (WIDE, {64, 128}, {256, 4096}),
        (NARROW, {8, 40}, {1, 17, 100}),
        (SINGLE, {1}, {1}),
        (ODD, {1, 7, 31}, {1, 7, 4096}),
    ],
    ids=["wide", "narrow", "single", "odd"],
)
def test_every_problem_is_one_that_the_kernel_takes(
    dims: Sizes, ns: set[int], ks: set[int]
) -> None:
    entry = made_up(dims=dims)
    seen = set()

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        (m, k), n = a.shape, b.shape[1]
        assert (entry.m.admits(m), entry.n.admits(n), entry.k.admits(k)) == (True, True, True)
        assert all(x.data_ptr() % 16 == 0 and max(x.stride()) * 2 % 16 == 0 for x in (a, b, c))
        seen.add((m, n, k))
        honest(a, b, c)

    gate(launch, entry)
    assert {n for _, n, _ in seen} >= ns
    assert {k for _, _, k in seen} >= ks


CHEATS: list[tuple[str, Cheat, str, str]] = [
    # name, kernel, the check that must catch it, what it must say
    ("zero output", zero, "remainders", WRONG),
    ("stale output", nothing, "remainders", WRONG),
    ("rows of a partial tile skipped", whole_rows_only, "remainders", WRONG),
    ("columns of a partial tile skipped", whole_columns_only, "remainders", WRONG),
    ("partial tile, not the first", tail_rows_of_later_tiles, "remainders", WRONG),
    ("narrow N", only_if(lambda m, n, k: n < TILE_N, zero), "remainders", WRONG),
    ("row before C", writes((1, 0), (0, 0)), "remainders", "guards touched"),
    ("row after C", writes((0, 1), (0, 0)), "remainders", "guards touched"),
    ("eight columns after C", writes((0, 0), (0, 8)), "remainders", "guards touched"),
    ("column before C", writes((0, 0), (1, 0)), "remainders", "guards touched"),
    ("B of the other layout", reads_b_transposed, "remainders", WRONG),
    ("K beyond the end", reads_padding, "remainders", WRONG),
    ("A changed", changes(0), "remainders", "1 input elements changed"),
    ("B changed", changes(1), "remainders", "1 input elements changed"),
    ("padding of A changed", changes(0, padding=True), "remainders", "1 input elements changed"),
    ("half of K", k_limited(lambda k: max(8, k // 2)), "remainders", WRONG),
    ("tail of K dropped", k_limited(lambda k: k // 16 * 16 or k), "remainders", WRONG),
    ("fp16 accumulation by 16", chunks_in_16_bits(16), "remainders", WRONG),
    ("fp16 accumulation by 64", chunks_in_16_bits(64), "remainders", WRONG),
    ("fp16 accumulation by 4096", chunks_in_16_bits(4096), "depth", "relative error"),
    ("output truncated", truncates_output, "remainders", WRONG),
    (
        "K tail behind the ring",
        k_limited(lambda k: k if k < RING else k // 16 * 16),
        "depth",
        WRONG,
    ),
    ("K beyond the ring", k_limited(lambda k: min(k, RING)), "depth", WRONG),
    ("third time round the ring", k_limited(lambda k: min(k, 2 * RING)), "depth", WRONG),
    ("K beyond 4096", k_limited(lambda k: min(k, 4096)), "depth", WRONG),
    ("last of a deep K", k_limited(lambda k: k - 8 if k > 4096 else k), "depth", WRONG),
    ("unsteady in deep K", Unsteady(lambda m, n, k: k > 4096), "depth", "from run to run"),
    ("flushed outputs", flushes_outputs, "small", WRONG),
    ("flushed inputs", flushes_inputs, "small", WRONG),
    ("unsteady", Unsteady(lambda m, n, k: k == 200), "repeat", "from run to run"),
    ("NaN spread to other rows", spreads_nan, "specials", WRONG),
    ("NaN hidden", hides_nan, "specials", WRONG),
    ("NaN not written", skips_nan, "specials", WRONG),
    ("saturated", saturates, "specials", WRONG),
    ("a kept result", Remembers(), "specials", WRONG),
    ("M beyond two tiles", only_if(lambda m, n, k: m > 2 * TILE_M, zero), "waves", WRONG),
    ("N beyond two tiles", only_if(lambda m, n, k: n > 2 * TILE_N, zero), "waves", WRONG),
    ("the second wave", tiles_from(SMS), "waves", WRONG),
    ("the third wave of two CTAs an SM", tiles_from(4 * SMS), "waves", WRONG),
    ("second band of rows", second_band(0), "waves", WRONG),
    ("second band of columns", second_band(1), "waves", WRONG),
    ("all but the first row skipped", first_row_only, "remainders", WRONG),
    ("C transposed", writes_transposed, "remainders", WRONG),
    ("A's leading stride ignored", assumes_packed, "remainders", WRONG),
    ("half of the products doubled", every_other_k, "remainders", WRONG),
    ("operands cut to 8 bits", operands_in_8_bits, "remainders", WRONG),
    ("zero guessed in A", guesses_zero, "zero blocks in A", WRONG),
    ("zero guessed in B", guesses_zero_in_b, "zero blocks in B", WRONG),
    ("a constant guessed", guesses_constant, "specials", WRONG),
    ("only NaN replaced", fills_nan_only, "rewritten", WRONG),
    ("a kept result of like operands", RemembersSome(), "rewritten", WRONG),
    ("sums kept between products", Meets(), "depth", WRONG),
    ("unsteady in few elements", Unsteady(lambda m, n, k: k == 1032), "steady", "run to run"),
    ("unsteady over waves", Unsteady(lambda m, n, k: m > 64), "waves", "from run to run"),
]


@pytest.mark.parametrize(
    ("cheat", "check", "words"), [case[1:] for case in CHEATS], ids=[case[0] for case in CHEATS]
)
def test_a_cheat_is_caught_by_the_check_it_meets(cheat: Cheat, check: str, words: str) -> None:
    with pytest.raises(NumericError, match=rf"^{check} \d+x\d+x\d+: .*{words}"):
        gate(cheat)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "cheat", [rounds_twice, truncates_output, chunks_in_16_bits(16), chunks_in_16_bits(40)]
)
def test_bf16_is_held_to_one_rounding(cheat: Cheat, seed: int) -> None:
    with pytest.raises(NumericError, match=f"^remainders .*{WRONG}"):
        gate(cheat, made_up("nt", "bf16"), seed)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_accumulation_in_16_bits_is_caught_by_integers_alone(dtype: str) -> None:
    """Whatever the rounding model allows, sums of integers are exact or not."""
    for size in (16, 64, 512):
        run = Checker(made_up(dtype=dtype), chunks_in_16_bits(size), CPU, seed=size)
        depth.check_accumulator(run)
        with pytest.raises(NumericError, match=f"^accumulator .*{WRONG}"):
            run.settle()


def test_waves_grow_with_the_ctas_that_an_sm_holds() -> None:
    """Four CTAs an SM: the third wave begins at the eighth tile of each of the 40 SMs."""
    genome = {"tile_k": TILE_K, "stages": STAGES, "ctas_per_sm": 4}
    with pytest.raises(NumericError, match=r"^waves"):
        numeric.check(made_up(genome=genome), tiles_from(2 * 4 * 40), CPU, sm_count=40, seed=1)


def test_many_depths_are_tried_where_the_ring_is_not_known() -> None:
    wrong = only_if(lambda m, n, k: 500 < k < 512, zero)
    gate(wrong)
    with pytest.raises(NumericError, match=rf"^depth \d+x\d+x504: .*{WRONG}"):
        gate(wrong, made_up(genome={}))


def test_rows_of_tiles_beyond_the_ctas_of_a_kernel_without_maps() -> None:
    """Such a grid is two-dimensional: only tiles along M are dealt to CTAs in turn."""
    late = rows_from(600)
    numeric.check(made_up(), late, CPU, SMS, seed=1, max_ctas=20)
    with pytest.raises(NumericError, match=rf"^waves \d+x8x64: .*{WRONG}"):
        numeric.check(made_up(), late, CPU, SMS, seed=1, max_ctas=600)


def test_ctas_that_wait_for_each_other_all_run_at_once() -> None:
    grid = {"tile_m": TILE_M, "tile_n": TILE_N, "persistent": False, "slices": 4}
    built = packs.built("made_up", "tma2_ws_v2", cluster=[1, 1, 2], grid=grid)
    entry = record(built.entry_fields | {"genome": {"tile_k": TILE_K, "stages": STAGES}})
    tiles = set()

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        tiles.add((-(-c.shape[0] // TILE_M), -(-c.shape[1] // TILE_N)))
        honest(a, b, c)

    assert numeric.check(entry, launch, CPU, SMS, seed=1, max_ctas=51).shapes_tested > 60
    assert max(m * n for m, n in tiles) == 6 and {(2, 2), (2, 3)} <= tiles


def test_huge_tiles_make_no_huge_problem() -> None:
    sizes = []

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        sizes.append(c.numel())
        honest(a, b, c)

    run = Checker(
        made_up(grid={"tile_m": 1024, "tile_n": 512, "persistent": False}), launch, CPU, 1
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numeric, "MAX_ELEMENTS", 1 << 21)
        numeric.check_waves(run, SMS)
    run.settle()
    assert 1 << 19 < max(sizes) < 1 << 21


@pytest.mark.parametrize(
    ("check", "cheat", "name"),
    [
        (numeric.check_replay, Remembers(), "replay"),
        (numeric.check_replay, fills_nan_only, "replay"),
        (numeric.check_streams, Meets(), "streams"),
        (numeric.check_steady, tiles_from(15), "steady"),
        (numeric.check_indices, guesses_constant, "constant but one"),
        (numeric.check_indices, guesses_zero, "indices"),
        (numeric.check_indices, guesses_zero_in_b, "indices"),
        (sums.check_values, chunks_in_16_bits(64), "positive"),
        (sums.check_values, operands_in_8_bits, "positive"),
        (sums.check_values, every_other_k, "small integers"),
    ],
)
def test_each_check_stands_alone(check: Callable[[Checker], None], cheat: Cheat, name: str) -> None:
    run = Checker(made_up(), cheat, CPU, 1)
    check(run)
    with pytest.raises(NumericError, match=rf"^{name} .*{WRONG}"):
        run.settle()


def test_a_planned_depth_is_added_up_to_its_end() -> None:
    """What rounding may add to a sum of 65,600 terms is more than the last of them come to."""
    launch = k_limited(lambda k: k - 16 if k > 1 << 16 else k)
    for kernel, right in ((honest, True), (launch, False)):
        run = Checker(made_up(), kernel, torch.device("cpu"), seed=1)
        with contextlib.nullcontext() if right else pytest.raises(NumericError, match="exact"):
            check_sizes(run, [(1, 8, 65600)])
