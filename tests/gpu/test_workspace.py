"""Kernels with partial sums in global memory: streams, graphs and eager calls at the same time."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs import matmul, select
from hgemm_packs.problem import Problem
from tests import reference
from tests.gpu.conftest import Counts, Wins, exact

pytestmark = pytest.mark.gpu

ROUNDS = 50


@pytest.fixture
def problems(wins: Wins) -> list[Problem]:
    """The smallest problem of each such kernel of the pack."""
    entries = [entry for pack in select.found().packs for entry in pack.manifest.kernels]
    names = {entry.name for entry in entries if entry.workspace_bytes}
    found = [p for p in wins.of_each_kernel() if wins.kernels[p] in names][:6]
    if not found:
        pytest.skip("no kernel of the pack has a workspace")
    return found


def test_streams_at_the_same_time(problems: list[Problem]) -> None:
    for p in problems:
        jobs = [(torch.cuda.Stream(), *exact(p, seed=seed)) for seed in range(3)]
        outs = [torch.empty((ROUNDS, p.m, p.n), dtype=a.dtype, device="cuda") for _, a, _ in jobs]
        torch.cuda.synchronize()
        counts = Counts()
        for i in range(ROUNDS):
            for (stream, a, b), out in zip(jobs, outs, strict=True):
                with torch.cuda.stream(stream):
                    matmul(a, b, out=out[i])
        torch.cuda.synchronize()
        counts.only_hits(ROUNDS * len(jobs))
        for (_, a, b), out in zip(jobs, outs, strict=True):
            assert (out == out[0]).all()
            reference.assert_exact(out[0], a, b)


def test_replays_beside_eager_calls_and_each_other(problems: list[Problem]) -> None:
    jobs = [(p, *exact(p, seed=i)) for i, p in enumerate(problems)]
    for _, a, b in jobs:
        matmul(a, b)
    counts = Counts()
    graphs, results = [], []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results.append([matmul(a, b) for _, a, b in jobs for _ in range(3)])
        graphs.append((graph, torch.cuda.Stream()))
    counts.only_hits(2 * 3 * len(jobs))
    for made in results:
        for each in made:
            each.fill_(torch.nan)
    torch.cuda.synchronize()
    eager = []
    for _ in range(ROUNDS):
        for graph, stream in graphs:
            with torch.cuda.stream(stream):
                graph.replay()
        eager = [matmul(a, b) for _, a, b in jobs]
    torch.cuda.synchronize()
    for i, (_, a, b) in enumerate(jobs):
        for out in [eager[i], *(made[3 * i + j] for made in results for j in range(3))]:
            reference.assert_exact(out, a, b)


def test_problems_that_grow_while_others_run(problems: list[Problem]) -> None:
    """The buffer of the stream is replaced while launches with the old one are queued."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        jobs = [exact(p) for p in sorted(problems, key=lambda p: p.m * p.n)]
        outs = []
        for a, b in jobs:
            outs += [(a, b, matmul(a, b)) for _ in range(ROUNDS)]
    stream.synchronize()
    for a, b, out in outs:
        reference.assert_exact(out, a, b)
