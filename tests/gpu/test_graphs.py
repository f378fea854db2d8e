"""CUDA graphs: a kernel that is not loaded yet is never loaded while capturing, in a process of its
own because nothing may have been loaded there before; a warm one is captured and replayed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hgemm_packs import matmul
from tests import reference
from tests.gpu.conftest import Counts, Wins, exact

pytestmark = pytest.mark.gpu

FRESH = """
import sys, torch
from hgemm_packs import counters, launcher, matmul
from tests import reference

m, n, k, layout, dtype = sys.argv[1:]
dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
a, b = reference.cancelling(int(m), int(n), int(k), layout, dtype, device="cuda")
torch.mm(a, b)  # cuBLAS's own first call must not be inside a capture either

def capture():
    out = torch.full((a.shape[0], b.shape[1]), torch.nan, dtype=dtype, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        matmul(a, b, out=out)
        fresh = matmul(a, b)
    graph.replay()
    torch.cuda.synchronize()
    reference.assert_exact(out, a, b)
    reference.assert_exact(fresh, a, b)

capture()
cold = counters()
assert cold == {"hits": 0, "launches": 0, "fallbacks": 2, "fallback cold_capture": 2}, cold
reference.assert_exact(matmul(a, b), a, b)
assert counters()["hits"] == 1, counters()
capture()
assert counters()["hits"] == 3 and counters()["fallbacks"] == 2, counters()
print("done")
"""


def test_a_cold_capture_in_a_fresh_process(wins: Wins) -> None:
    for p in wins.some(2):
        words = [str(p.m), str(p.n), str(p.k), p.layout, p.dtype]
        done = subprocess.run(
            [sys.executable, "-c", FRESH, *words],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["done"]


def test_replays_follow_their_inputs(wins: Wins) -> None:
    for p in wins.some(3):
        a, b = exact(p)
        matmul(a, b)
        out = torch.empty((p.m, p.n), dtype=a.dtype, device="cuda")
        counts = Counts()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            matmul(a, b, out=out)
        counts.only_hits(1)
        for seed in range(3):
            new_a, new_b = exact(p, seed=seed)
            a.copy_(new_a)
            b.copy_(new_b)
            out.fill_(torch.nan)
            graph.replay()
            reference.assert_exact(out, a, b)
        # The graph holds its own parameters: other tensors of this geometry change nothing in it.
        other = exact(p, seed=9)
        reference.assert_exact(matmul(*other), *other)
        out.fill_(torch.nan)
        graph.replay()
        reference.assert_exact(out, a, b)
        counts.only_hits(2)


def test_a_chain_of_kernels_in_one_graph(wins: Wins) -> None:
    # Also what programmatic dependent launch must survive: each kernel reads what the last wrote.
    problems = wins.some(4)
    sets = [exact(p) for p in problems]
    for a, b in sets:
        matmul(a, b)
    outs = [
        torch.empty((p.m, p.n), dtype=a.dtype, device="cuda")
        for p, (a, _) in zip(problems, sets, strict=True)
    ]
    copies = [torch.empty_like(a) for a, _ in sets]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(5):
            for (a, b), copy, out in zip(sets, copies, outs, strict=True):
                copy.copy_(a)
                matmul(copy, b, out=out)
                copy.zero_()
    for out in outs:
        out.fill_(torch.nan)
    graph.replay()
    for (a, b), out in zip(sets, outs, strict=True):
        reference.assert_exact(out, a, b)
