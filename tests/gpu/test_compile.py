"""Compiled graphs with the pack's own kernels: right values, and kernels in what is captured."""

from __future__ import annotations

import pytest
import torch

import hgemm_packs
from hgemm_packs.problem import Problem
from tests import reference
from tests.gpu.conftest import DTYPES, Wins

pytestmark = pytest.mark.gpu


def layer_of(problem: Problem, seed: int) -> tuple[torch.nn.Linear, torch.Tensor, torch.Tensor]:
    """An optimized layer, an input, and the layer's weight as B."""
    dtype = DTYPES[problem.dtype]
    sizes = (problem.m, problem.n, problem.k)
    a, b = reference.cancelling(*sizes, "nt", dtype, device="cuda", seed=seed)
    layer = torch.nn.Linear(problem.k, problem.n, bias=False, device="cuda", dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(b.t())
    hgemm_packs.optimize(layer)
    return layer, a, b


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_cold_model_gets_kernels_and_right_values(wins: Wins, mode: str) -> None:
    """The first call runs none, for torch watches operators in it; the second, which
    reduce-overhead captures, must."""
    for seed, problem in enumerate(wins.some(4, layout="nt")):
        torch._dynamo.reset()
        layer, a, b = layer_of(problem, seed)
        other = a.flip(0).contiguous()  # an inference tensor would be compiled for anew
        compiled = torch.compile(layer, mode=mode, fullgraph=True, dynamic=False)
        with torch.inference_mode():
            compiled(a)
            before = hgemm_packs.counters()["hits"]
            reference.assert_exact(compiled(a).clone(), a, b)
            assert hgemm_packs.counters()["hits"] == before + 1, problem
            for _ in range(2):
                reference.assert_exact(compiled(other).clone(), other, b)
                reference.assert_exact(compiled(a).clone(), a, b)


def test_training_is_right_compiled(wins: Wins) -> None:
    (problem,) = wins.some(1, layout="nt")
    layer, a, _ = layer_of(problem, 0)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True)
    x = a.clone().requires_grad_()
    for _ in range(2):
        x.grad = layer.weight.grad = None
        compiled(x).sum().backward()
    ones = torch.ones(problem.m, problem.n, device="cuda", dtype=a.dtype)
    assert x.grad is not None and layer.weight.grad is not None
    reference.assert_product(x.grad, ones, layer.weight.detach())
    reference.assert_product(layer.weight.grad, ones.t(), a)
