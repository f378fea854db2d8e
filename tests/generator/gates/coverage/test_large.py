"""What the numeric gate runs for sizes alone, on kernels that are wrong there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch

from hgemm_packs.generator.gates import numeric, sizes
from hgemm_packs.generator.gates.checker import GUARD_BITS, Checker, NumericError
from hgemm_packs.generator.gates.coverage import gate as of_sizes
from hgemm_packs.generator.gates.coverage import problems
from hgemm_packs.generator.gates.coverage.launches import stored, with_strides
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


ODD = {dim: {"min": 1, "max": 1 << 24, "multiple_of": 1} for dim in "mnk"}


def lead(x: Tensor) -> int:
    """Elements from one line of an operand to the next."""
    return max(x.stride())


@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize(
    "condition",
    [
        *(lambda a, b, c, r=r: lead(a) % 8 == r for r in range(8)),
        *(lambda a, b, c, r=r: lead(b) % 8 == r for r in range(8)),
        *(lambda a, b, c, r=r: lead(c) % 8 == r for r in range(8)),
        lambda a, b, c: lead(a) % 8 == 5 and lead(b) % 8 == 2,
        lambda a, b, c: lead(b) % 8 == 6 and lead(c) % 8 == 1,
        lambda a, b, c: c.stride(0) == c.shape[1] and c.shape[1] % 8 == 5,
        lambda a, b, c: lead(a) in a.shape and a.shape[1] % 2 == 1,
        lambda a, b, c: lead(b) in b.shape and b.shape[1] % 8 == 7,
    ],
)
def test_lines_are_as_far_apart_as_alignment_allows(
    condition: Callable[[Tensor, Tensor, Tensor], bool], layout: str
) -> None:
    """Where rows of C were 5 to 7 elements behind a multiple of 8 apart, as packed ones of N 13, a
    kernel wrote its columns elsewhere: all strides of the gate had residues of 0, 1, 2 or 4."""
    entry = made_up(layout, align={"a": 2, "b": 2, "c": 2}, dims=ODD)

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        (zero if condition(a, b, c) else honest)(a, b, c)

    with pytest.raises(NumericError, match=rf"^sizes \d+x\d+x\d+: .*{WRONG}"):
        sizes.check_sizes(Checker(entry, launch, CPU, 1))


@pytest.mark.parametrize(
    ("align", "wanted"),
    [
        ({"a": 2, "b": 2, "c": 2}, [range(8)] * 3),
        ({"a": 4, "b": 2, "c": 8}, [range(0, 8, 2), range(8), (0, 4)]),
        ({"a": 16, "b": 16, "c": 2}, [(0,), (0,), range(8)]),
        ({"a": 16, "b": 16, "c": 16}, [(0,)] * 3),
    ],
)
def test_tested_strides_have_all_residues_that_the_record_admits_and_no_others(
    align: dict[str, int], wanted: list[Iterable[int]]
) -> None:
    fields = sizes.fields_of(made_up(align=align, dims=ODD))
    known = problems.tested(fields)
    assert known == problems.tested(fields)
    for i, residues in enumerate(wanted):
        assert {each.strides[i] % 8 for each in known} == {*residues}
    of_tiles = {each.strides[2] % 8 for each in known[:: of_sizes.TILED]}
    assert of_tiles == {*wanted[2]}, "so have those by which tiles are judged"
    packed = stored("nn", *known[-1][:3], known[-1].n)
    lengths = [length for _, length in packed]
    for i, name in enumerate("abc"):
        admitted = lengths[i] * 2 % align[name] == 0
        assert (known[-1].strides[i] == lengths[i]) == (admitted and min(align.values()) < 16)


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
