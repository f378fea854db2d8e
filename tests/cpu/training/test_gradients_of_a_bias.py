"""A layer with a bias whose gradient is wanted: torch's, however large, though a kernel would run
its product without."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from hgemm_packs import launcher
from tests.fake_driver import Started


@pytest.mark.parametrize("wants", ["x", "weight", "bias", "all"])
def test_torch_records_it(ours: Started, wants: str) -> None:
    """Gradients of ours are those of a product alone: a bias would have been left out."""
    ours.serve("ptr_v1_addend", "nt")
    torch.manual_seed(0)
    leaves = [torch.randn(16, 32).half(), torch.randn(24, 32).half(), torch.randn(24).half()]
    outcomes = []
    for linear in (ours.linear, functional.linear):
        x, weight, bias = (leaf.clone() for leaf in leaves)
        for name, leaf in (("x", x), ("weight", weight), ("bias", bias)):
            leaf.requires_grad_(wants in (name, "all"))
        y = linear(x, weight, bias)
        y.float().square().sum().backward()
        outcomes.append([y, x.grad, weight.grad, bias.grad])
    for one, two in zip(*outcomes, strict=True):
        assert (one is None and two is None) or torch.equal(one, two)
    assert ours.fallbacks() == {"autograd": 1} and launcher.counters()["hits"] == 0
