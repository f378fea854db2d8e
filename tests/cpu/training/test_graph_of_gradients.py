"""What torch does around a recorded product, and does around ours: saved tensors and their hooks,
versions, checkpoints, gradients of gradients, states that only torch can serve, training.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import hgemm_packs
from hgemm_packs import autograd, launcher, report
from tests import reference
from tests.cpu.common.subclass import watching
from tests.fake_driver import Started

from .test_gradients import HALF, K, M, N, assert_all_ours, hits, leaves, slope

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def close(x: torch.Tensor | None, y: torch.Tensor | None) -> None:
    """Equal but for the rounding of float16."""
    assert x is not None and y is not None
    torch.testing.assert_close(x.double(), y.double(), rtol=4e-3, atol=4e-2)


@pytest.mark.parametrize("wanted", ["both", "first", "second"])
def test_saved_tensors_are_those_of_torch(ours: Started, wanted: str) -> None:
    def packed(product: Product, linear: bool) -> list[Any]:
        seen: list[Any] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            seen.append(("pack", tensor.shape, tensor.stride(), tensor._version))
            return tensor

        def unpack(tensor: torch.Tensor) -> torch.Tensor:
            seen.append(("unpack", tensor.shape))
            return tensor

        a, b = leaves("nt" if linear else "nn")
        b = b.detach().t().requires_grad_() if linear else b
        a.requires_grad_(wanted != "second")
        b.requires_grad_(wanted != "first")
        with saved_tensors_hooks(pack, unpack):
            c = product(a.view(2, 24, K), b)
        c.backward(slope(2, 24, N))
        return seen

    for ours_one, theirs, linear in (
        (ours.matmul, torch.matmul, False),
        (ours.linear, functional.linear, True),
    ):
        found = packed(ours_one, linear)
        assert found == packed(theirs, linear) and len(found) == (4 if wanted == "both" else 2)
    assert_all_ours(ours, 6 if wanted == "both" else 4)


def test_a_saved_tensor_that_is_written(ours: Started) -> None:
    for written in (0, 1):
        inner = [leaf * 1 for leaf in leaves()]
        c = ours.matmul(*inner)
        inner[written].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            c.backward(slope())
    a, b = leaves()
    inner = [a * 1, b.detach()]
    c = ours.matmul(*inner)
    inner[0].add_(1)  # is not needed: its gradient is of b
    c.backward(slope())
    assert a.grad is not None
    reference.assert_product(a.grad, slope(), b.detach().t())


def test_a_result_that_is_written(ours: Started) -> None:
    for shape in ((M, K), (2, 24, K)):
        a, b = leaves()
        c = ours.matmul(a.view(shape), b)
        c.mul_(2)
        c.backward(slope().view(c.shape))
        assert a.grad is not None
        reference.assert_product(a.grad, slope() * 2, b.detach().t())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(ours: Started, reentrant: bool) -> None:
    (a, b), w = leaves(), slope(N, K).requires_grad_()
    torch_leaves = [x.detach().clone().requires_grad_() for x in (a, b, w)]

    def two(product: Product, a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return product(product(a, b).clamp(-1, 1), w)

    c: torch.Tensor = checkpoint(two, ours.matmul, a, b, w, use_reentrant=reentrant)
    c.backward(slope(M, K))
    two(torch.matmul, *torch_leaves).backward(slope(M, K))
    for x, y in zip((a, b, w), torch_leaves, strict=True):
        close(x.grad, y.grad)
    assert_all_ours(ours, 2 + 2 + 4)


def test_backward_twice(ours: Started) -> None:
    a, b = leaves()
    c = ours.matmul(a, b)
    c.backward(slope(), retain_graph=True)
    once = a.grad.clone() if a.grad is not None else None
    c.backward(slope())
    assert once is not None and torch.equal(a.grad, 2 * once)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        c.backward(slope())


@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_gradients_of_gradients(ours: Started, layout: str) -> None:
    """Against float64, of a function that is not linear in anything."""

    def twice(product: Product, a: Any, b: Any, g: Any) -> tuple[torch.Tensor, ...]:
        first = torch.autograd.grad(product(a, b), (a, b), g, create_graph=True)
        total = sum((x * x.detach().sign()).sum() * 0.5 + (x * x).mean() for x in first)
        assert isinstance(total, torch.Tensor)
        return torch.autograd.grad(total, (a, b, g))

    inner = [leaf.detach() / 8 for leaf in (*leaves(layout), slope())]
    mine = [
        reference.stored(x, s).requires_grad_() for x, s in zip(inner, (*layout, "n"), strict=True)
    ]
    right = [x.double().requires_grad_() for x in inner]
    found, wanted = twice(ours.matmul, *mine), twice(torch.matmul, *right)
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == HALF
        close(x, y)
    # Three products, and two gradients of each of the two that backward made.
    assert hits() + sum(ours.fallbacks().values()) == 7 and hits() >= 3


def test_a_gradient_of_a_gradient_of_a_gradient(ours: Started) -> None:
    def thrice(product: Product, a: Any, b: Any) -> torch.Tensor:
        g: torch.Tensor = product(a, b)
        for _ in range(2):
            (g,) = torch.autograd.grad((g * g).mean(), a, create_graph=True)
        return torch.autograd.grad(g.mean(), b)[0]

    a, b = ((leaf.detach() / 4).requires_grad_() for leaf in leaves())
    close(
        thrice(ours.matmul, a, b),
        thrice(torch.matmul, *(x.detach().double().requires_grad_() for x in (a, b))),
    )
    assert hits() >= 3


def test_hooks(ours: Started) -> None:
    (a, b), seen = leaves(), []
    c = ours.matmul(a, b)
    c.register_hook(lambda g: g * 2)
    a.register_hook(lambda g: seen.append("a"))
    assert c.grad_fn is not None
    c.grad_fn.register_hook(lambda ins, outs: seen.append(len(ins)))
    b.register_post_accumulate_grad_hook(lambda leaf: seen.append("b"))
    c.backward(slope())
    assert a.grad is not None and sorted(map(str, seen)) == ["2", "a", "b"]
    reference.assert_product(a.grad, slope() * 2, b.detach().t())


def test_anomalies(ours: Started) -> None:
    a, b = leaves()
    with torch.autograd.detect_anomaly(check_nan=True), pytest.warns(UserWarning, match="Product"):
        c = ours.matmul(a, b)
        with pytest.raises(RuntimeError, match="'ProductBackward' returned nan"):
            c.backward(torch.full((M, N), float("nan"), dtype=HALF))


def test_states_that_only_torch_serves(ours: Started) -> None:
    a, b = leaves()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours.matmul(a, b).dtype == torch.bfloat16
    named = watching([])
    assert type(ours.matmul(a.as_subclass(named), b)) is named
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a, torch.ones_like(a))
        assert torch.autograd.forward_ad.unpack_dual(ours.matmul(dual, b)).tangent is not None
    assert (hits(), ours.fallbacks()) == (0, {"mode": 2, "autograd": 1})


def test_no_gradient_is_recorded(ours: Started) -> None:
    a, b = leaves()
    for guard in (torch.no_grad, torch.inference_mode):
        with guard():
            c = ours.matmul(a, b)
        assert not c.requires_grad and c.is_inference() == (guard is torch.inference_mode)
        with guard(), torch.enable_grad():
            c, wanted = ours.matmul(a, b), torch.matmul(a, b)
        assert c.requires_grad == wanted.requires_grad != c.is_inference()
    assert not ours.matmul(a.detach(), b.detach()).requires_grad


def test_inference_tensors(ours: Started) -> None:
    with torch.inference_mode():
        a, b = leaves()
        x = a.detach()
    weight = torch.nn.Parameter(b.clone().detach())
    for product in (ours.matmul, torch.matmul):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            product(x, weight)


def test_transforms(ours: Started) -> None:
    """Operands that a transform does not wrap are torch's in it, too."""
    (a, b), g = leaves(), slope()
    jacobian = torch.func.jacrev(lambda x: ours.matmul(x, b.detach()).sum(0))(a.detach())
    assert jacobian.shape == (N, M, K)
    doubled = torch.vmap(lambda s: ours.matmul(a, b) * s)(torch.ones(2, dtype=HALF))
    assert doubled.grad_fn is not None and hits() == 0
    slopes = torch.stack([g, 2 * g, -g])
    found = torch.autograd.grad(ours.matmul(a, b), a, slopes, is_grads_batched=True)[0]
    for each, row in zip(slopes, found, strict=True):
        reference.assert_product(row, each, b.detach().t())
    assert hits() == 1


def test_a_default_device(ours: Started) -> None:
    for place in ("cpu", "meta"):
        (a, b), g = leaves(), slope().view(2, 24, N)
        with torch.device(place):
            ours.matmul(a.view(2, 24, K), b).backward(g)
        assert a.grad is not None
        reference.assert_product(a.grad, slope(), b.detach().t())
    assert_all_ours(ours, 6)


def test_nothing_outlives_the_graph(ours: Started) -> None:
    a, b = leaves()
    inner = a * 1
    alive, c = weakref.ref(inner), ours.matmul(inner, b)
    del inner
    gc.disable()
    try:
        assert alive() is not None or c.grad_fn is not None
        c.backward(slope())
        assert alive() is None
        inner = a * 1
        alive, c = weakref.ref(inner), ours.matmul(inner, b)
        del inner, c
        assert alive() is None
    finally:
        gc.enable()


def test_compiled_autograd(ours: Started) -> None:
    a, b = leaves()
    c = ours.matmul(a, b)
    with torch._dynamo.compiled_autograd._enable(lambda graph: graph):
        c.backward(slope())
    assert a.grad is not None and b.grad is not None
    reference.assert_product(a.grad, slope(), b.detach().t())
    reference.assert_product(b.grad, a.detach().t(), slope())


def model() -> torch.nn.Sequential:
    torch.manual_seed(3)
    made = torch.nn.Sequential(
        torch.nn.Linear(K, 64, bias=False),
        torch.nn.GELU(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, N, bias=False),
    )
    return made.to(torch.bfloat16)


def losses(trained: torch.nn.Module, steps: int) -> list[float]:
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.5, momentum=0.5)
    generator, found = torch.Generator().manual_seed(5), []
    x = torch.randn(2, 24, K, generator=generator).bfloat16()
    wanted = torch.randn(2, 24, N, generator=generator).bfloat16()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.mse_loss(trained(x).float(), wanted.float())
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_training(ours: Started) -> None:
    """Losses are torch's but for rounding, and fall."""
    theirs = model()
    mine = hgemm_packs.optimize(copy.deepcopy(theirs))
    found, wanted = losses(mine, 20), losses(theirs, 20)
    assert found == pytest.approx(wanted, rel=1e-2) and found[-1] < 0.9 * found[0]
    # Two products forward and three back, for the input wants no gradient; a bias is torch's.
    assert (hits(), ours.fallbacks()) == (20 * 5, {"not_measured": 20})


def test_the_record_is_declined_where_torch_must_have_it(ours: Started) -> None:
    a, b = leaves()
    with torch.inference_mode():
        assert autograd.record(a, b, False) is None
    found: list[Any] = []
    torch.vmap(lambda s: found.append(autograd.record(a, b, False)) or s)(torch.ones(2))
    assert found == [None] and hits() == 0


def test_a_whole_program_is_recorded_by_torch(ours: Started) -> None:
    """With kernels below torch's operators a Function in Python would only cost."""
    a, b = leaves("nt")
    with hgemm_packs.enabled():
        c = ours.matmul(a, b)
        assert type(c.grad_fn).__name__ == "MmBackward0"
        c.backward(slope())
    assert a.grad is not None
    reference.assert_product(a.grad, slope(), b.detach().t())
    assert (hits(), ours.fallbacks()) == (3, {"autograd": 1})
    assert type(ours.matmul(a, b).grad_fn).__name__ == "ProductBackward"


def test_explain(ours: Started, capsys: pytest.CaptureFixture[str]) -> None:
    """It names what backward multiplies: the problems that backward then asks for."""
    for layout in ("nn", "nt", "tn", "tt"):
        a, b = leaves(layout)
        ours.asked.clear()
        ours.matmul(a, b).backward(reference.stored(slope(), "n"))
        wanted = {str(problem) for problem in ours.asked[1:]}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(report, "explain_problem", lambda problem, index: f"of {problem}")
            report.explain(a, b)
            with torch.no_grad():
                report.explain(a, b)
        first, *said, last = capsys.readouterr().out.splitlines()
        assert first == last == f"of {launcher.describe(a, b)}"
        assert {line.split(",")[0].removeprefix("backward  ") for line in said} == wanted
        assert all("runs on fake_" in line for line in said) and len(said) == 2
    assert_all_ours(ours, 4 * 3)
