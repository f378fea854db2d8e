"""CUDA graphs of a model whose layers are served: cold, after a warmup, and after a warmup for
another number of rows. Each in a process of its own, where nothing has been loaded before, cuBLAS
neither: torch itself fails there (CUBLAS_STATUS_NOT_INITIALIZED).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.problem import Problem
from tests.gpu.conftest import Wins

pytestmark = pytest.mark.gpu

FRESH = """
import sys, torch, hgemm_packs
from hgemm_packs import counters
from tests import reference

m, n, k, layout, dtype, way, other = sys.argv[1:]
m, n, k = int(m), int(n), int(k)
dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
x, b = reference.cancelling(m, n, k, layout, dtype, device="cuda")

class Model(torch.nn.Module):  # layers of one input, whose products are exact
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(k, n, bias=False, device="cuda", dtype=dtype) for _ in range(3)
        )

    def forward(self, x):
        return [layer(x) for layer in self.layers]

model = hgemm_packs.optimize(Model())
with torch.no_grad():
    for layer in model.layers:
        layer.weight.copy_(b.t())
if way == "warm":
    assert hgemm_packs.warmup(model, [m]) == 1
    assert counters() == {"hits": 1, "launches": 1, "fallbacks": 0}, counters()
if way == "other":  # all products so far were ours
    with torch.inference_mode():
        model(x)
    assert counters() == {"hits": 3, "launches": 3, "fallbacks": 0}, counters()
    m = int(other)
    x = reference.cancelling(m, n, k, layout, dtype, device="cuda")[0]

graph = torch.cuda.CUDAGraph()
with torch.inference_mode():
    with torch.cuda.graph(graph):
        ys = model(x)
    for seed in range(3):
        x.copy_(reference.cancelling(m, n, k, layout, dtype, device="cuda", seed=seed)[0])
        for layer, y in zip(model.layers, ys, strict=True):
            layer.weight.mul_(-1)
            y.fill_(torch.nan)
        graph.replay()
        for layer, y in zip(model.layers, ys, strict=True):
            reference.assert_exact(y, x, layer.weight.t())
found = counters()
if way == "warm":
    assert found == {"hits": 4, "launches": 4, "fallbacks": 0}, found
elif way == "other":
    assert found["hits"] == 3 == found["fallbacks"], found
else:
    assert found == {"hits": 0, "launches": 0, "fallbacks": 3, "fallback cold_capture": 3}, found
    with torch.inference_mode():
        for layer, y in zip(model.layers, model(x), strict=True):
            reference.assert_exact(y, x, layer.weight.t())
    assert counters()["hits"] == 3, counters()
print("done")
"""


def of_each_kind(wins: Wins) -> list[Problem]:
    """A small problem of a layer, one whose kernel has a workspace, and one whose kernel behind our
    own has."""
    named = [each for each in wins.of_each_named() if each[0].layout == "nt"]
    with_workspace = next(p for p, _, entry in named if entry.workspace_bytes)
    behind = next(
        p for p, _, _, entry in wins.of_each_pair() if p.layout == "nt" and entry.workspace_bytes
    )
    return [wins.some(1, layout="nt")[0], with_workspace, behind]


@pytest.mark.parametrize("way", ["cold", "warm", "other"])
def test_a_captured_model_in_a_fresh_process(wins: Wins, way: str) -> None:
    for p in of_each_kind(wins):
        # Of this number of rows nothing was won.
        other = next(
            m for m in range(p.m + 1, 2 * p.m + 100) if replace(p, m=m) not in wins.kernels
        )
        words = [str(p.m), str(p.n), str(p.k), p.layout, p.dtype, way, str(other)]
        done = subprocess.run(
            [sys.executable, "-c", FRESH, *words],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == 0, f"{p}\n{done.stderr}"
        assert done.stdout.split() == ["done"]
