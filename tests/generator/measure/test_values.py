"""The check of values: what any right kernel passes, and what it sees."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from hgemm_packs.generator.families import computed
from hgemm_packs.generator.measure.values import Reference, sample_reference
from hgemm_packs.measure.epilogue import SILU_SLOPE, finish
from hgemm_packs.measure.operands import addend_of, operands
from hgemm_packs.measure.timing import torch_arm, torch_mm
from hgemm_packs.problem import EPILOGUES, WITHOUT_ADDEND, Problem, set_bytes


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
@pytest.mark.parametrize("epilogue", [name for name in EPILOGUES if name not in WITHOUT_ADDEND])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_values_behind_an_epilogue(dtype: str, epilogue: str, rows: bool) -> None:
    """torch's own arm is right, and what leaves the addend or the function out is not."""
    problem = Problem(40, 96, 512, "nt", dtype, epilogue=epilogue)
    one = operands(problem, "cpu", seed=3)[0]
    reference = sample_reference(problem, one, 4) if rows else Reference(problem, one)
    added = addend_of(epilogue, one.c)
    product = one.a.double() @ one.b.double()
    one.c.copy_(finish(epilogue, product, added))
    assert reference.check(one.c).detail == ""
    for wrong in (product, finish(epilogue, product, 2 * added), finish(epilogue, product, -added)):
        one.c.copy_(wrong)
        assert reference.check(one.c).wrong > 100
    if epilogue not in ("bias", "residual"):
        one.c.copy_(finish("bias", product, added))
        assert reference.check(one.c).wrong > 100
    torch_arm(problem)(one.a, one.b, one.c)
    rounded = (product + added.double()).to(one.c.dtype).double()
    twice_rounded = finish(epilogue, rounded, torch.zeros_like(added))
    torch.testing.assert_close(one.c.double(), twice_rounded, rtol=2e-2, atol=2e-2)
    plain = Problem(40, 96, 512, "nt", dtype)
    assert torch_arm(plain) is torch_mm
    if epilogue != "residual":
        assert addend_of(epilogue, one.c) is added


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_values_of_gated_columns(dtype: str, rows: bool) -> None:
    problem = Problem(40, 96, 512, "nt", dtype, epilogue="gated_silu")
    one = operands(problem, "cpu", seed=3)[0]
    assert one.c.shape == (40, 48) and one.b.shape == (512, 96)
    reference = sample_reference(problem, one, 4) if rows else Reference(problem, one)
    product = one.a.double() @ one.b.double()
    gate, up = product[:, :48], product[:, 48:]
    one.c.copy_(gate * torch.sigmoid(gate) * up)
    assert reference.check(one.c).detail == ""
    right = one.c.clone()
    for wrong in (gate * up, up * torch.sigmoid(up) * gate, gate * torch.sigmoid(gate)):
        one.c.copy_(wrong)
        assert reference.check(one.c).wrong > 100
    # Sums in the operands' type are too far off.
    rounded = product.to(one.c.dtype).double()
    one.c.copy_(finish("gated_silu", rounded, None))
    assert reference.check(one.c).detail
    torch_arm(problem)(one.a, one.b, one.c)
    torch.testing.assert_close(one.c.double(), right.double(), rtol=5e-2, atol=5e-2)


def test_each_set_has_a_residual_of_its_own() -> None:
    """Packed behind its C, so that cold calls find it in memory; it is counted as touched."""
    problem = Problem(24, 40, 16, "nt", "f16", epilogue="residual")
    sets = operands(problem, "cpu", seed=1, sets=3)
    found = [addend_of("residual", one.c) for one in sets]
    again = [addend_of("residual", one.c) for one in operands(problem, "cpu", seed=1, sets=3)]
    for residual, same, one in zip(found, again, sets, strict=True):
        one.c.fill_(7.0)
        assert torch.equal(residual, same) and bool(residual.isfinite().all())
        assert residual.shape == one.c.shape and residual.is_contiguous()
        assert residual.data_ptr() % 16 == 0 and 0.8 < float(residual.float().std()) < 1.2
    assert not torch.equal(found[0], found[1])
    assert set_bytes(problem) == 2 * (24 * 16 + 16 * 40 + 2 * 24 * 40)
    gated = replace(problem, epilogue="gated_silu")
    assert set_bytes(gated) == 2 * (24 * 16 + 16 * 40 + 24 * 20)


def test_how_steep_silu_is() -> None:
    x = torch.linspace(-20.0, 20.0, 1 << 18, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.silu(x).sum().backward()
    assert x.grad is not None
    assert 1.09 < float(x.grad.abs().max()) <= SILU_SLOPE == computed.TABLE["gated_silu"].slope
