"""hgemm_packs.linear: torch's composition in every bit where no kernel runs, gradients too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import hgemm_packs
from hgemm_packs import launcher
from tests import reference
from tests.fake_driver import Started

ACTIVATIONS: dict[str | None, Any] = {
    None: lambda x: x,
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "gated_silu": lambda x: (
        functional.silu(x[..., : x.shape[-1] // 2]) * x[..., x.shape[-1] // 2 :]
    ),
}


@pytest.fixture
def ours(fake: Started, monkeypatch: pytest.MonkeyPatch) -> Started:
    monkeypatch.setattr(launcher, "linear", fake.linear)
    return fake


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_torchs_composition(
    ours: Started, dtype: torch.dtype, activation: str | None, biased: bool, residual: bool
) -> None:
    torch.manual_seed(0)
    columns = 12 if activation == "gated_silu" else 24
    leaves = [torch.randn(s) for s in ((2, 5, 32), (24, 32), (24,), (2, 5, columns))]
    grads = []
    for composed in (False, True):
        x, weight, bias, more = (leaf.to(dtype).requires_grad_() for leaf in leaves)
        given = (bias if biased else None, more if residual else None)
        if composed:
            wanted = ACTIVATIONS[activation](functional.linear(x, weight, given[0]))
            wanted = wanted + more if residual else wanted
        else:
            wanted = found = hgemm_packs.linear(x, weight, given[0], activation, given[1])
        wanted.float().square().sum().backward()
        grads.append([each.grad for each in (x, weight, bias, more)])
    assert torch.equal(found, wanted) and found.dtype == dtype
    for one, two in zip(*grads, strict=True):
        assert (one is None and two is None) or torch.equal(one, two)  # type: ignore[arg-type]
    assert grads[0][0] is not None and (grads[0][2] is not None) == biased


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_kernel_with_a_bias_and_what_follows(ours: Started, activation: str | None) -> None:
    ours.serve("tma2_v1_addend", "nt")
    x, b = reference.cancelling(32, 40, 64, "nt", torch.float16)
    bias, more = (torch.arange(40) - 20).half(), torch.ones(1).half()
    y = hgemm_packs.linear(x, b.t(), bias=bias, activation=activation, residual=more)
    rounded = (reference.product(x, b) + bias.double()).half()
    assert torch.equal(y, ACTIVATIONS[activation](rounded) + more)
    assert launcher.counters() == {"hits": 1, "launches": 1, "fallbacks": 0}


def test_what_is_refused(ours: Started) -> None:
    x = torch.ones(2, 8)
    with pytest.raises(ValueError, match="activation is 'swish', not one of 'relu', 'gelu', "):
        hgemm_packs.linear(x, x, activation="swish")
    with pytest.raises(RuntimeError, match="must match the size"):
        hgemm_packs.linear(x, x, residual=torch.ones(3))
