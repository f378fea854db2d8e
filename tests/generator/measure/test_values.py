"""The check of values: what any right kernel passes, and what it sees."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from hgemm_packs.generator.measure.values import Reference, sample_reference
from hgemm_packs.measure.epilogue import finish
from hgemm_packs.measure.operands import bias_of, operands
from hgemm_packs.measure.timing import torch_arm, torch_mm
from hgemm_packs.problem import EPILOGUES, Problem


def _fp16_sums(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A @ B with an fp16 accumulator, 16 terms at a time."""
    c = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float16)
    for k in range(0, a.shape[1], 16):
        c = (c + a[:, k : k + 16].float() @ b[k : k + 16].float()).half()
    return c


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("mnk", [(8, 8, 8), (1, 8, 64), (200, 96, 1000), (16, 16, 16384)])
def test_values(mnk: tuple[int, int, int], dtype: str, rows: bool) -> None:
    problem = Problem(*mnk, "nt", dtype)
    one = operands(problem, "cpu", seed=3)[0]
    reference = sample_reference(problem, one, 4) if rows else Reference(problem, one)
    exact = one.a.double() @ one.b.double()
    one.c.copy_(exact)
    right = reference.check(one.c)
    assert right.detail == "" and right.wrong == 0
    assert right.error == pytest.approx((right.allowed - 2.0**-20) / 1.25, rel=0.05)

    def wrong(change: Callable[[torch.Tensor], object]) -> int:
        c = one.c.clone()
        change(c)
        found = reference.check(c)
        assert found.detail
        return found.wrong

    assert wrong(lambda c: c.fill_(math.nan)) == exact.numel()
    assert wrong(lambda c: c[0, 0].fill_(math.nan)) >= 1
    assert wrong(lambda c: c[-1, -1].fill_(math.inf)) >= 1
    wrong(lambda c: c.zero_())
    if problem.k >= 64 and dtype == "f16":
        wrong(lambda c: c.copy_(_fp16_sums(one.a, one.b)))
    if not rows:
        # One element off by an eighth of the deviation of all.
        wrong(lambda c: c[0, 0].add_(0.125 * problem.k**0.5))


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("epilogue", EPILOGUES[1:])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_values_behind_an_epilogue(dtype: str, epilogue: str, rows: bool) -> None:
    """torch's own arm is right, and what leaves the bias or the function out is not."""
    problem = Problem(40, 96, 512, "nt", dtype, epilogue=epilogue)
    one = operands(problem, "cpu", seed=3)[0]
    reference = sample_reference(problem, one, 4) if rows else Reference(problem, one)
    bias = bias_of(96, one.c.dtype, one.c.device)
    product = one.a.double() @ one.b.double()
    one.c.copy_(finish(epilogue, product, bias))
    assert reference.check(one.c).detail == ""
    for wrong in (product, finish(epilogue, product, 2 * bias), finish(epilogue, product, -bias)):
        one.c.copy_(wrong)
        assert reference.check(one.c).wrong > 100
    if epilogue != "bias":
        one.c.copy_(finish("bias", product, bias))
        assert reference.check(one.c).wrong > 100
    torch_arm(problem)(one.a, one.b, one.c)
    rounded = (product + bias.double()).to(one.c.dtype).double()
    twice_rounded = finish(epilogue, rounded, torch.zeros_like(bias))
    torch.testing.assert_close(one.c.double(), twice_rounded, rtol=2e-2, atol=2e-2)
    plain = Problem(40, 96, 512, "nt", dtype)
    assert torch_arm(plain) is torch_mm and bias_of(96, one.c.dtype, one.c.device) is bias
