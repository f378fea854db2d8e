"""A program that calls torch alone gets kernels under enabled(), by every way to a product."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import hgemm_packs
from tests import reference
from tests.cpu.program.common import SIDE, Hits, layer_of, one, operands
from tests.fake_driver import Started

WAYS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mm": torch.mm,
    "operator": lambda a, b: a @ b,
    "matmul": torch.matmul,
    "mm out": lambda a, b: torch.mm(a, b, out=a.new_empty(SIDE, SIDE)),
    "linear": lambda a, b: functional.linear(a, b.t()),
    "layer": lambda a, b: layer_of(b.t())(a).detach(),
    "bmm": lambda a, b: torch.bmm(one(a), one(b))[0],
    "bmm out": lambda a, b: torch.bmm(one(a), one(b), out=a.new_empty(1, SIDE, SIDE))[0],
    "folded": lambda a, b: torch.matmul(a.view(2, -1, SIDE), b).view(SIDE, SIDE),
    "einsum": lambda a, b: torch.einsum("ik,kj->ij", a, b),
    "inference": lambda a, b: _inference(a, b),
    "method": lambda a, b: a.mm(b),
}


@torch.inference_mode()
def _inference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a.clone(), b)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_a_product(served: Started, way: str) -> None:
    a, b = operands()
    hits = Hits()
    with hgemm_packs.enabled():
        c = WAYS[way](a, b)
    assert hits() == 1
    reference.assert_exact(c, a, b)
    WAYS[way](a, b)
    assert hits() == 1


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_every_layout(served: Started, layout: str) -> None:
    a, b = operands(layout)
    hits = Hits()
    with hgemm_packs.enabled():
        reference.assert_exact(a @ b, a, b)
    assert hits() == 1


def test_gradients_are_products_of_kernels(served: Started) -> None:
    x, weight = operands("nt")
    x.requires_grad_(), weight.requires_grad_()
    hits = Hits()
    with hgemm_packs.enabled():
        y = x @ weight
        assert hits() == 1
        y.backward(torch.ones_like(y))
    assert hits() == 3
    ones = torch.ones_like(y)
    reference.assert_exact(x.grad, ones, weight.detach().t())
    reference.assert_exact(weight.grad, x.detach().t(), ones)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(served: Started, reentrant: bool) -> None:
    x, weight = operands()
    x.requires_grad_()
    hits = Hits()
    with hgemm_packs.enabled():
        y = checkpoint(lambda x: (x @ weight).relu(), x, use_reentrant=reentrant)
        y.backward(torch.ones_like(y))
    assert hits() == 3  # forward, again, and the gradient of x
    with torch.no_grad():
        mask = (x.double() @ weight.double() > 0).half()
    reference.assert_exact(x.grad, mask, weight.t())


def test_autocast_and_vmap(served: Started) -> None:
    a, b = operands()
    hits = Hits()
    with hgemm_packs.enabled():
        with torch.autocast("cpu", dtype=torch.float16):
            c = a.float() @ b.float()
        assert hits() == 1 and c.dtype == torch.float16
        reference.assert_exact(c, a, b)
        rows = torch.vmap(lambda row: row @ b)(a)
        assert hits() == 2
        reference.assert_exact(rows, a, b)
        (gradient,) = torch.func.grad(lambda x: (x @ b).sum().float(), argnums=(0,))(a)
        assert hits() == 3  # what a sum's gradient is of lies in memory once, as a single 1
    reference.assert_exact(gradient, torch.ones(SIDE, SIDE).half(), b.t())


def test_compiled_code(served: Started) -> None:
    a, b = operands()
    compiled = torch.compile(lambda x, y: (x @ y) + 1, fullgraph=True)
    compiled(a, b)
    hits = Hits()
    with hgemm_packs.enabled():
        c = compiled(a, b)
    assert hits() == 1
    assert torch.equal(c, (reference.product(a, b) + 1).half())
    compiled(a, b)
    assert hits() == 1


def test_modes_and_subclasses_see_torchs_operators(served: Started) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **kwargs or {})

    a, b = operands()
    hits = Hits()
    with hgemm_packs.enabled():
        with FakeTensorMode() as fake:
            made = fake.from_tensor(a) @ fake.from_tensor(b)
            assert made.shape == (SIDE, SIDE) and hits() == 0
        with Watch():
            c = a @ b
        assert seen == ["aten.mm.default"] and hits() == 1
        traced = torch.fx.experimental.proxy_tensor.make_fx(lambda x, y: x @ y)(a, b)
        assert "torch.ops.aten.mm" in traced.code
    reference.assert_exact(c, a, b)


def test_readmes_program(served: Started) -> None:
    text = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## A program that cannot be edited\n") :]
    (code,) = re.findall(r"```python\n(.*?)```", section[: section.index("\n## ")], re.DOTALL)
    a, b = operands()
    layer, hits = layer_of(b.t().contiguous()), Hits()
    exec(code, {"model": layer, "x": a.requires_grad_()})
    assert hits() == 3
    reference.assert_exact(a.grad, torch.ones_like(a), b.t())
