"""Programs that call torch alone, in the batch-invariant mode: products are served or raise."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import hgemm_packs
from tests import reference
from tests.fake_driver import Started

mode = hgemm_packs.options


@pytest.fixture
def served(fake: Started) -> Started:
    for layout in ("nn", "nt", "tn"):
        fake.serve("tma3_v1", layout)
    return fake


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    return reference.cancelling(32, 40, 64, "nn", torch.float16)


def test_torchs_own_products_are_served_or_raise(served: Started) -> None:
    a, b = operands()
    with hgemm_packs.enabled(), mode(batch_invariant=True):
        reference.assert_exact(a @ b, a, b)
        reference.assert_exact(torch.mm(a, b, out=torch.empty(32, 40).half()), a, b)
        assert served.modes == [True]
        with pytest.raises(RuntimeError, match=r"batch_invariant=True.*not_measured"):
            torch.mm(a.bfloat16(), b.bfloat16())
        with pytest.raises(RuntimeError, match=r"batch_invariant=True.*not_measured"):
            torch.bmm(torch.stack([a, a]), torch.stack([b, b]))
        with (
            pytest.raises(RuntimeError, match=r"batch_invariant=True.*off"),
            hgemm_packs.disabled(),
        ):
            a @ b
        assert torch.equal(a.float() @ b.float(), reference.product(a, b).float())
    reference.assert_exact(a.bfloat16() @ b.bfloat16(), a.bfloat16(), b.bfloat16())


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b, c: torch.addmm(c, a, b),
        lambda a, b, c: torch.addmm(c[0], a, b),
        lambda a, b, c: torch.addmm(c, a, b, out=torch.empty_like(c)),
        lambda a, b, c: functional.linear(a, b.t(), c[0]),
        lambda a, b, c: torch.baddbmm(c[None], a[None], b[None]),
        lambda a, b, c: torch._addmm_activation(c[0], a, b),
    ],
)
def test_torchs_sums_raise(
    served: Started, call: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    """No kernel of the mode adds, also where one outside does."""
    served.serve("tma3_v1_addend", epilogue="bias")
    a, b = operands()
    c = torch.ones(32, 40).half()
    with hgemm_packs.enabled():
        wanted = call(a, b, c)
        with mode(batch_invariant=True), pytest.raises(RuntimeError, match=r"batch_invariant=True"):
            call(a, b, c)
        assert torch.equal(call(a, b, c), wanted)


def test_what_raises_below_torch_keeps_no_tensor(served: Started) -> None:
    with hgemm_packs.enabled(), mode(batch_invariant=True):
        gone = []
        for out in (None, torch.empty(32, 40).bfloat16()):
            tensors = [each.bfloat16() for each in operands()]
            with pytest.raises(RuntimeError, match="not_measured"):
                torch.mm(*tensors) if out is None else torch.mm(*tensors, out=out)
            gone += [weakref.ref(each) for each in (*tensors, *([] if out is None else [out]))]
        del tensors, out
        gc.collect()
        assert [each() for each in gone] == [None] * 5


def test_gradients_of_a_whole_program(served: Started) -> None:
    a, b = reference.cancelling(32, 40, 64, "nt", torch.float16)
    w = b.t().clone().requires_grad_()
    with hgemm_packs.enabled(), mode(batch_invariant=True):
        (functional.linear(a, w) * 1).sum().backward()
        assert w.grad is not None and served.fallbacks() == {}
        reference.assert_exact(served.matmul(a, w.t()).detach(), a, b)
    ones = torch.ones(40, 32, dtype=torch.float64)
    assert torch.equal(w.grad, (ones @ a.double()).half())
