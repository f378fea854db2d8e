"""Gradients recorded as products of ours, with the pack's kernels: values, and who multiplied."""

from __future__ import annotations

import pytest
import torch

import hgemm_packs
from hgemm_packs import select, torch_state
from hgemm_packs.problem import Problem
from tests import reference
from tests.gpu.conftest import DTYPES, Wins

pytestmark = pytest.mark.gpu


def large_layers(wins: Wins) -> list[Problem]:
    """The smallest layers whose gradients are recorded as products of ours."""
    found = [
        p
        for p in wins.problems
        if p.layout == "nt" and 2 * p.m * p.n * p.k >= torch_state.LEAST_RECORDED
    ]
    assert found, "the pack has no kernel for a layer this large"
    return found[:4]


def served(m: int, n: int, k: int, layout: str, dtype: str) -> bool:
    return select.resolve(Problem(m, n, k, layout, dtype), 0).kernel is not None


@pytest.mark.parametrize("on", ["the default stream", "a stream of its own"])
def test_a_large_layer(wins: Wins, on: str) -> None:
    stream = torch.cuda.current_stream() if on == "the default stream" else torch.cuda.Stream()
    for p in large_layers(wins):
        a, b = reference.normal(p.m, p.n, p.k, "nt", DTYPES[p.dtype], device="cuda")
        layer = torch.nn.Linear(p.k, p.n, bias=False, device="cuda", dtype=a.dtype)
        layer.weight = torch.nn.Parameter(b.t())
        hgemm_packs.optimize(layer)
        x = a.clone().requires_grad_()
        slope = torch.randn(p.m, p.n, device="cuda").to(a.dtype)
        before = hgemm_packs.counters()["hits"]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            y = layer(x)
            y.backward(slope)
        torch.cuda.current_stream().wait_stream(stream)
        kernels = 1 + served(p.m, p.k, p.n, "nn", p.dtype) + served(p.n, p.k, p.m, "tn", p.dtype)
        assert hgemm_packs.counters()["hits"] == before + kernels, p
        assert x.grad is not None and layer.weight.grad is not None
        reference.assert_product(y.detach(), a, b)
        reference.assert_product(x.grad, slope, b.t())
        reference.assert_product(layer.weight.grad, slope.t(), a)


def test_a_captured_step(wins: Wins) -> None:
    """Forward and backward in one CUDA graph."""
    p = large_layers(wins)[0]
    a, b = reference.normal(p.m, p.n, p.k, "nt", DTYPES[p.dtype], device="cuda")
    x, weight = a.clone().requires_grad_(), b.t().clone().requires_grad_()
    slope = torch.randn(p.m, p.n, device="cuda").to(a.dtype)

    def step() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(hgemm_packs.matmul(x, weight.t()), (x, weight), slope)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    before = hgemm_packs.counters()["hits"]
    with torch.cuda.graph(graph):
        of_x, of_weight = step()
    assert hgemm_packs.counters()["hits"] > before
    graph.replay()
    torch.cuda.synchronize()
    reference.assert_product(of_x, slope, b.t())
    reference.assert_product(of_weight, slope.t(), a)
