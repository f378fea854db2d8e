"""What the numeric gate compares with: guards and padding; how it lays out and launches; and its
words."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs.generator.gates import numeric
from hgemm_packs.generator.gates.checker import (
    GUARD_BITS,
    Checker,
    NumericError,
    make_guarded_place,
    operand,
)
from hgemm_packs.generator.gates.sizes import check_bases
from tests.generator.redteam.cheats import TILE_M, TILE_N, Tensor, beyond, honest, made_up

CPU = torch.device("cpu")
WRONG = "elements wrong or unwritten"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_c_is_nan_in_either_type_until_written(dtype: torch.dtype) -> None:
    bits, c = make_guarded_place(5, 8, dtype, CPU)
    assert c.shape == (5, 8)
    assert bool(torch.isnan(c.float()).all())
    c.zero_()
    assert int((bits != GUARD_BITS).sum()) == 40


def test_operands_are_padded_with_nan() -> None:
    values = torch.arange(15, dtype=torch.float16).view(3, 5)
    for transposed in (False, True):
        view = operand(values, transposed)
        assert torch.equal(view, values)
        whole = torch.empty(0, dtype=torch.float16).set_(view.untyped_storage())
        assert int(whole.isnan().sum()) == len(whole) - 15
        assert max(view.stride()) == 16, "5 (3) up to a multiple of 8, and 8 more"


def test_operands_with_rows_of_k_have_strides_of_their_own() -> None:
    """A kernel that took A's stride for B's was right wherever both were stored alike."""
    run = Checker(made_up(), honest, CPU, seed=0)
    run.entry = run.entry._replace(layout="nt")
    a, b = run.store(run.normal(3, 16), run.normal(16, 5))
    assert (a.stride(0), b.stride(1)) == (24, 32)


def test_a_failure_names_its_problem_and_all_that_was_wrong() -> None:
    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        beyond(c, (0, 1), (0, 0)).zero_()
        a[0, 0] = 2.0

    run = Checker(made_up(), launch, CPU, seed=0)
    run.product("named", *run.store(run.normal(3, 16), run.normal(16, 8)))
    with pytest.raises(NumericError) as caught:
        run.settle()
    counts = "24 elements wrong or unwritten, 8 guards touched, 1 input elements changed"
    assert str(caught.value).startswith(f"named 3x8x16: {counts}, relative error 1.00e+00, ")


def test_verdicts_are_read_once() -> None:
    run = Checker(made_up(), honest, CPU, seed=0)
    for size in (8, 16):
        run.product("fine", *run.store(run.normal(size, size), run.normal(size, size)), runs=2)
    assert run.result.shapes_tested == 0, "nothing is read before it is asked for"
    assert run.settle().shapes_tested == 4
    assert run.settle().shapes_tested == 4


def test_a_kernel_that_counts_on_the_ctas_of_a_device_is_wrong_within_fewer() -> None:
    """Of each 132 tiles seven are made, as by a step of 132 tiles in a grid of seven CTAs."""

    def seven_of_132(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(a, b, c)
        columns = -(-c.shape[1] // TILE_N)
        for tile in range(-(-c.shape[0] // TILE_M) * columns):
            if tile % 132 >= 7:
                row, column = divmod(tile, columns)
                rows, width = row * TILE_M, column * TILE_N
                c[rows : rows + TILE_M, width : width + TILE_N] = torch.nan

    run = Checker(made_up(), honest, CPU, 1)
    numeric.check_fewer(run, [honest])
    run.settle()
    numeric.check_fewer(run, [honest, seven_of_132])
    with pytest.raises(NumericError, match=rf"^fewer CTAs \d+x\d+x\d+: .*{WRONG}"):
        run.settle()


def test_each_operand_lies_at_each_alignment_whatever_the_others_are_at() -> None:
    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(a, b, c)
        c[0] += int(a.data_ptr() % 16 == 8 and b.data_ptr() % 16 == 0)

    aligned = made_up(align={"a": 4, "b": 4, "c": 8})
    check_bases(Checker(aligned, honest, CPU, 1))
    with pytest.raises(NumericError, match=f"^bases .*{WRONG}"):
        check_bases(Checker(aligned, launch, CPU, 1))
