"""Calls without a kernel on the GPU: torch's product below its dispatcher is torch's to the bit."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch.nn import functional

from hgemm_packs import launcher, matmul

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("unpredicted")]
GUARDS = [contextlib.nullcontext, torch.no_grad, torch.inference_mode]


def normal(*size: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*size, device="cuda").to(dtype)


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 2)], ids=str)
def test_layers_and_products(lead: tuple[int, ...], dtype: torch.dtype, guard: Any) -> None:
    before = launcher.counters()
    calls = 0
    with guard():
        for rows, n, k in ((1, 1000, 328), (7, 424, 1336), (37, 2056, 616), (129, 72, 4104)):
            x, weight = normal(*lead, rows, k, dtype=dtype), normal(n, k, dtype=dtype)
            bias = normal(n, dtype=dtype)
            for ours, theirs in (
                (launcher.linear(x, weight), functional.linear(x, weight)),
                (launcher.linear(x, weight, bias), functional.linear(x, weight, bias)),
                (matmul(x, weight.t()), torch.matmul(x, weight.t())),
            ):
                assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
                assert ours.is_inference() == theirs.is_inference() and not ours.requires_grad
                assert ours.is_inference() or ours._version == theirs._version == 0
            out = torch.empty_like(ours)
            assert torch.equal(matmul(x, weight.t(), out=out), theirs)
            calls += 4
    after = launcher.counters()
    assert after["fallbacks"] - before["fallbacks"] == calls
    assert after["hits"] == before["hits"]


def test_in_a_graph() -> None:
    x, weight, bias = normal(37, 616), normal(2056, 616), normal(2056)
    launcher.linear(x, weight, bias)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = launcher.linear(x, weight, bias)
    x.copy_(normal(37, 616))
    graph.replay()
    assert torch.equal(c, functional.linear(x, weight, bias))
