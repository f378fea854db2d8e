"""Gradients of products that kernels run: values, layouts, and who multiplied. Every product, in
forward and in backward, has a kernel here, and hits say that it ran."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from hgemm_packs import launcher, settings
from hgemm_packs.errors import FallbackError
from tests import reference
from tests.cpu.common.threads import run_in_threads
from tests.fake_driver import Started

M, N, K = 48, 40, 32
HALF = torch.float16
Tensors = tuple[torch.Tensor, torch.Tensor]


def leaves(layout: str = "nn", dtype: torch.dtype = HALF) -> Tensors:
    a, b = reference.normal(M, N, K, layout, dtype)
    return a.requires_grad_(), b.requires_grad_()


def slope(*size: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(size or (M, N), generator=generator).to(dtype)


def hits() -> int:
    return launcher.counters()["hits"]


def assert_all_ours(ours: Started, products: int) -> None:
    assert (hits(), ours.fallbacks()) == (products, {})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_matrices(ours: Started, layout: str, dtype: torch.dtype) -> None:
    """Gradients are stored as the operands are, as torch stores them."""
    (a, b), g = leaves(layout, dtype), slope(dtype=dtype)
    c = ours.matmul(a, b)
    reference.assert_product(c.detach(), a.detach(), b.detach())
    assert_all_ours(ours, 1)
    of_a, of_b = torch.autograd.grad(c, (a, b), g)
    assert_all_ours(ours, 3)
    reference.assert_product(of_a, g, b.detach().t())
    reference.assert_product(of_b, a.detach().t(), g)
    wanted = torch.autograd.grad(torch.matmul(a, b), (a, b), g)
    assert [x.stride() for x in (of_a, of_b)] == [x.stride() for x in wanted]


@pytest.mark.parametrize("lead", [(M,), (2, 24), (1, M), (3, 4, 4)], ids=str)
def test_layers(ours: Started, lead: tuple[int, ...]) -> None:
    """Forward is of layout nt, of the input's gradient nn, of the weight's tn."""
    a, b = leaves("nt")
    x, weight = a.detach().view(*lead, K).requires_grad_(), b.detach().t().requires_grad_()
    c = ours.linear(x, weight)
    wanted = functional.linear(x, weight)
    assert c.shape == wanted.shape and c.is_contiguous() and not c._is_view()
    c.backward(slope(*lead, N))
    g = slope(*lead, N).view(M, N)
    assert x.grad is not None and weight.grad is not None
    reference.assert_product(x.grad.view(M, K), g, weight.detach())
    reference.assert_product(weight.grad, g.t(), a.detach())
    assert x.grad.is_contiguous() and weight.grad.is_contiguous()
    assert [(p.m, p.n, p.k, p.layout) for p in ours.asked] == [
        (M, N, K, "nt"),
        (N, K, M, "tn"),
        (M, K, N, "nn"),
    ]
    assert_all_ours(ours, 3)


@pytest.mark.parametrize("lead", [(M,), (2, 24)], ids=str)
def test_a_matmul_of_more_dimensions(ours: Started, lead: tuple[int, ...]) -> None:
    a, b = leaves()
    x = a.detach().view(*lead, K).requires_grad_()
    ours.matmul(x, b).backward(slope(*lead, N))
    g = slope(*lead, N).view(M, N)
    assert x.grad is not None and b.grad is not None and x.grad.shape == x.shape
    reference.assert_product(x.grad.view(M, K), g, b.detach().t())
    reference.assert_product(b.grad, a.detach().t(), g)
    assert_all_ours(ours, 3)


@pytest.mark.parametrize("of", ["input", "weight"])
def test_only_a_wanted_gradient_is_multiplied(ours: Started, of: str) -> None:
    for how in ("frozen", "grad", "backward"):
        a, b = leaves("nt")
        x, weight = a.detach(), b.detach().t()
        named = {"input": x, "weight": weight}
        for name, tensor in named.items():
            tensor.requires_grad_(how != "frozen" or name == of)
        wanted = named[of]
        before = hits()
        c = ours.linear(x, weight)
        if how == "grad":
            (found,) = torch.autograd.grad(c, wanted, slope())
        else:
            c.backward(slope(), inputs=[wanted])
            assert wanted.grad is not None
            found = wanted.grad
        assert hits() - before == 2
        pair = (slope(), b.detach().t()) if of == "input" else (slope().t(), a.detach())
        reference.assert_product(found, *pair)
        # of no leaf
        before = hits()
        inner = {name: tensor * 1 for name, tensor in named.items()}
        torch.autograd.grad(ours.linear(inner["input"], inner["weight"]), inner[of], slope())
        assert hits() - before == 2
    assert ours.fallbacks() == {}


def test_a_small_product_is_torchs(fake: Started) -> None:
    """Its time would not hide what a Function in Python costs."""
    fake.serve("ptr_v1", "nn")
    a, b = leaves()
    for x, y in ((a, b), (a, b.detach()), (a.detach(), b)):
        c = fake.matmul(x, y)
        assert torch.equal(c, torch.matmul(x, y)) and type(c.grad_fn).__name__ == "MmBackward0"
    assert (hits(), fake.fallbacks()) == (0, {"autograd": 3})


@pytest.mark.parametrize("least, served", [(2.0 * M * N * K, 3), (2.0 * M * N * K + 1, 0)])
def test_the_smallest_product(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, least: float, served: int
) -> None:
    monkeypatch.setattr("hgemm_packs.torch_state.LEAST_RECORDED", least)
    fake: Started = request.getfixturevalue("fake")
    for layout in ("nn", "nt", "tn", "tt"):
        fake.serve("ptr_v1", layout)
    a, b = leaves("nt")
    fake.linear(a.detach(), b.detach().t().requires_grad_())
    fake.linear(a.view(2, 24, K), b.detach().t().requires_grad_())
    fake.matmul(a, b.detach())
    assert (hits(), sum(fake.fallbacks().values())) == (served, 3 - served)


def test_without_a_kernel(small: None, fake: Started) -> None:
    """The call is torch's, counted for what the table says."""
    a, b = leaves()
    c = fake.matmul(a, b)
    assert type(c.grad_fn).__name__ == "MmBackward0"
    layer = torch.nn.Linear(K, N, dtype=HALF)
    c = fake.linear(a, layer.weight, layer.bias)
    assert torch.equal(c, layer(a)) and type(c.grad_fn).__name__ == "AddmmBackward0"
    assert (hits(), fake.fallbacks()) == (0, {"not_measured": 2})


def test_no_kernel_backward(small: None, fake: Started) -> None:
    fake.serve("ptr_v1", "nt")
    (a, b), g = leaves("nt"), slope()
    of_a, of_b = torch.autograd.grad(fake.matmul(a, b), (a, b), g)
    reference.assert_product(of_a, g, b.detach().t())
    reference.assert_product(of_b, a.detach().t(), g)
    assert (hits(), fake.fallbacks()) == (1, {"not_measured": 2})


def test_slopes_of_every_kind(ours: Started) -> None:
    """Expanded, strided, by column, of another type: what no kernel reads torch multiplies."""
    a, b = leaves()
    expanded = torch.ones((), dtype=HALF).expand(M, N)
    strided = slope(M, 2 * N)[:, ::2]
    for g in (expanded, strided, slope(N, M).t(), slope().float().double().half()):
        a.grad = b.grad = None
        ours.matmul(a, b).backward(g)
        assert a.grad is not None and b.grad is not None
        reference.assert_product(a.grad, g, b.detach().t())
        reference.assert_product(b.grad, a.detach().t(), g)
    a.grad = None
    ours.matmul(a, b).sum().backward()
    assert a.grad is not None
    reference.assert_product(a.grad, expanded, b.detach().t())


def test_an_output_that_nobody_wants(ours: Started) -> None:
    a, b = leaves()
    c, other = ours.matmul(a, b), torch.ones(1, requires_grad=True)
    assert torch.autograd.grad(other.sum(), (a, b), allow_unused=True) == (None, None)
    found = torch.autograd.grad([c.sum(), other.sum()], [a, other], allow_unused=True)
    reference.assert_product(found[0], torch.ones(M, N).half(), b.detach().t())

    class Ends(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> None:
            return None

    before = hits()
    end: torch.Tensor = Ends.apply(ours.matmul(a, b))  # type: ignore[no-untyped-call]
    end.sum().backward()
    assert a.grad is None and b.grad is None and hits() == before + 1


def test_gradients_add_up(ours: Started) -> None:
    (a, b), g = leaves(), slope()
    for _ in range(2):
        ours.matmul(a, b).backward(g)
    x, y = leaves()
    for _ in range(2):
        torch.matmul(x, y).backward(g)
    assert a.grad is not None and x.grad is not None and b.grad is not None and y.grad is not None
    torch.testing.assert_close(a.grad, x.grad, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(b.grad, y.grad, rtol=2e-3, atol=2e-3)
    assert_all_ours(ours, 6)


def test_out_is_torchs_to_refuse(ours: Started) -> None:
    a, b = leaves()
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        ours.matmul(a, b, out=torch.empty(M, N, dtype=HALF))
    assert (hits(), ours.fallbacks()) == (0, {"autograd": 1})


def test_switched_off_between(ours: Started) -> None:
    (a, b), g = leaves(), slope()
    c = ours.matmul(a, b)
    with settings.disabled():
        of_a, of_b = torch.autograd.grad(c, (a, b), g)
    wanted = torch.autograd.grad(torch.matmul(a, b), (a, b), g)
    assert torch.equal(of_a, wanted[0]) and torch.equal(of_b, wanted[1])
    assert (hits(), ours.fallbacks()) == (1, {"off": 2})


def test_strict(ours: Started) -> None:
    """Raises where torch would have multiplied, in backward too, and nowhere else."""
    launcher._extension().set_strict(True)
    a, b = leaves()
    ours.matmul(a, b).backward(slope())
    assert_all_ours(ours, 3)
    with pytest.raises(FallbackError, match="layout"):
        ours.matmul(a, b).sum().backward()


def test_threads(ours: Started) -> None:
    def work(seed: int) -> None:
        a, b = (x.detach().clone().requires_grad_() for x in leaves())
        g = slope() * (1 + seed % 3)
        for _ in range(20):
            of_a, of_b = torch.autograd.grad(ours.matmul(a, b), (a, b), g)
            reference.assert_product(of_a, g, b.detach().t())
            reference.assert_product(of_b, a.detach().t(), g)

    run_in_threads(work, [(seed,) for seed in range(4)])
    assert_all_ours(ours, 4 * 20 * 3)
