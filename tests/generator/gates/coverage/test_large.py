"""What the numeric gate runs for sizes alone, on kernels that are wrong there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hgemm_packs.generator.gates import numeric, sizes
from hgemm_packs.generator.gates.checker import GUARD_BITS, Checker, NumericError
from hgemm_packs.generator.gates.coverage import problems
from hgemm_packs.generator.gates.coverage.launches import with_strides
from tests.generator.gates.shortcuts import honest
from tests.generator.gates.test_numeric import CPU, WRONG, gate
from tests.generator.redteam.cheats import SMS, TILE_N, Tensor, made_up, only_if, zero


def test_sizes_of_the_size_gate_are_run_and_planned_ones_with_them() -> None:
    """One row of many columns, and a window of K that the plan alone meets."""

    def one_row(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(a, b, c)
        if c.shape[0] == 1 and c.shape[1] > TILE_N:
            c[0, 0] = 0

    with pytest.raises(NumericError, match=rf"^sizes 1x\d+x\d+: .*{WRONG}"):
        gate(one_row)

    def window(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(a, b, c)
        if a.shape[1] == 1736:
            c[0, 0] = 0

    numeric.check(made_up(), window, CPU, SMS, seed=1)
    with pytest.raises(NumericError, match=rf"^sizes 5x8x1736: .*{WRONG}"):
        numeric.check(made_up(), window, CPU, SMS, seed=1, planned=[(5, 8, 1736)])


def far_apart(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Wrong where rows of A and of C are far apart."""
    honest(a, b, c)
    if a.stride(0) > a.shape[1] + 4096 and c.stride(0) == 4096:
        c[0, 0] = 0


def test_problems_of_the_size_gate_keep_their_strides_and_alignment() -> None:
    """A path of its own for lines far apart was met by problems that the numeric gate made anew,
    with strides that every kernel is right at."""
    run = Checker(made_up(), far_apart, CPU, 1)
    sizes.check_sizes(run, [(20, 16, 64)])
    with pytest.raises(NumericError, match=rf"^sizes 20x16x64: .*{WRONG}"):
        sizes.check_sizes(run, [(20, 16, 64, 4168, 88, 4096, 0)])
    run = Checker(made_up(), far_apart, CPU, 1)
    sizes.check_large(run, [(20, 16, 64)])
    with pytest.raises(NumericError, match=r"^large 20x16x64: 1 elements wrong from row 0 on"):
        sizes.check_large(run, [(20, 16, 64, 4168, 88, 4096, 0)])


def test_problems_of_evidence_lie_as_the_size_gate_had_them() -> None:
    fields = sizes.fields_of(made_up(align={"a": 2, "b": 2, "c": 2}))
    near, odd = (with_strides(fields, 300, 304, 72, align=align) for align in (0, 4))
    far = near._replace(strides=(1 << 20, *near.strides[1:]))
    asked = problems.by_memory(fields, [near, odd, far])
    assert [*problems.named(fields, asked["planned"])] == [near, odd]
    assert [*problems.named(fields, asked["large"])] == [far], "memory is what lies between rows"
    assert [*problems.named(fields, [(300, 304, 72)])] == [near]

    seen = []

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        strides = (max(each.stride()) for each in (a, b, c))
        seen.append((*strides, [each.data_ptr() % 8 for each in (a, b, c)]))
        honest(a, b, c)

    run = Checker(made_up(align={"a": 2, "b": 2, "c": 2}), launch, CPU, 1)
    sizes.check_sizes(run, asked["planned"])
    assert seen[-2:] == [(*near.strides, [2] * 3), (*odd.strides, [4] * 3)]


@pytest.mark.parametrize(
    "condition",
    [
        lambda m, n, k: m > 250 and n > 250 and 250 < k < 1000,
        lambda m, n, k: m == 640 and n > 100,
        lambda m, n, k: m == n == k > 100,
        lambda m, n, k: m <= 64 and n > 500 and k > 500,
        lambda m, n, k: n <= 64 and m > 500 and k > 500,
    ],
)
def test_sizes_of_programs_are_large_together_round_or_equal(
    condition: Callable[[int, int, int], bool],
) -> None:
    with pytest.raises(NumericError, match=rf"^usual \d+x\d+x\d+: .*{WRONG}"):
        gate(only_if(condition, zero))


def test_rows_without_padding_and_b_behind_a_are_as_programs_store_them() -> None:
    def fused(a: Tensor, b: Tensor, c: Tensor) -> None:
        behind = b.data_ptr() == a.data_ptr() + a.numel() * a.element_size()
        packed = a.stride(0) == a.shape[1] and c.stride(0) == c.shape[1]
        (zero if behind and packed else honest)(a, b, c)

    with pytest.raises(NumericError, match=rf"^usual \d+x\d+x\d+: .*{WRONG}"):
        gate(fused)


def test_each_multiple_of_128_is_met_as_each_side_and_another_seed_draws_others() -> None:
    first, second = ([*sizes.draw(Checker(made_up(), honest, CPU, seed=seed))] for seed in (5, 6))
    wanted = [128 * (i + 1) for i in range(sizes.SIDES["cpu"])]
    for drawn in (first, second):
        assert all(sorted(sides) == wanted for sides in zip(*drawn[: len(wanted)], strict=True))
        assert all(m == n == k for m, n, k in drawn[len(wanted) : -2])
        (rows, *wide), (high, columns, deep) = drawn[-2:]
        assert 1 <= rows <= 64 and 1 <= columns <= 64
        assert all(512 <= side <= 768 for side in (*wide, high, deep))
    assert first != second


@pytest.mark.parametrize("fault", ["row", "unwritten", "behind"])
def test_a_large_problem_is_looked_at_and_its_guards_are_whole(fault: str) -> None:
    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(a, b, c)
        if c.shape[0] != 1000:
            return
        if fault == "row":
            c[-1] = 1.0
        elif fault == "unwritten":
            c[500, 3] = torch.tensor(GUARD_BITS, dtype=torch.int16).view(c.dtype)
        else:
            c.as_strided((1,), (1,), c.storage_offset() + c.shape[1])[0] = 0

    told = {
        "row": r"large 1000x16x8: \d+ elements wrong from row ",
        "unwritten": "large 1000x16x8: 1 elements unwritten, 0 guards touched",
        "behind": "large 1000x16x8: 0 elements unwritten, 1 guards touched",
    }[fault]
    numeric.check(made_up(), launch, CPU, SMS, seed=1, large=[(900, 16, 8)])
    with pytest.raises(NumericError, match=told):
        numeric.check(made_up(), launch, CPU, SMS, seed=1, large=[(1000, 16, 8)])


def test_a_class_is_all_that_is_no_number() -> None:
    fields = {
        "family": "sm90_x", "layout": "nt", "dtype": "f16", "epilogue": "none", "name": "one",
        "param_layout": "ptr_v1", "genome": {"tile_m": 64, "persistent": True, "raster": "m"},
    }  # fmt: skip
    larger = {**fields, "name": "two", "genome": {**fields["genome"], "tile_m": 128}}  # type: ignore[dict-item]
    other = {**fields, "genome": {**fields["genome"], "persistent": False}}  # type: ignore[dict-item]
    assert sizes.class_of(fields) == sizes.class_of(larger) != sizes.class_of(other)
    foreign = {**fields, "family": "foreign", "genome": {}}
    assert sizes.class_of(foreign) != sizes.class_of({**foreign, "name": "two"})
