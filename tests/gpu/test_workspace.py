"""Kernels with partial sums in global memory: streams, graphs and eager calls at the same time."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from hgemm_packs import launcher, matmul, select
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import Problem
from hgemm_packs.workspace import ABSENT, Workspace, make_absent
from tests import reference
from tests.gpu.conftest import Counts, Wins, exact, normal

pytestmark = pytest.mark.gpu

ROUNDS = 50
GRAPHS = 200
SLAB_BYTES = 32 << 20  # csrc/launcher/cuda/workspace.c


@cache
def sliced() -> dict[str, tuple[Pack, KernelEntry]]:
    """The kernels with a workspace, by name."""
    packed = [
        (pack, entry) for pack in select.find_packs().packs for entry in pack.manifest.kernels
    ]
    return {entry.name: (pack, entry) for pack, entry in packed if entry.workspace_bytes}


@cache
def loaded(p: Problem, wins: Wins) -> Any:
    """The kernel of a problem."""
    pack, entry = sliced()[wins.kernels[p]]
    return launcher.load(0, entry, pack.image(entry))


def needed(p: Problem, wins: Wins) -> int:
    """Bytes of its workspace."""
    return int(loaded(p, wins).workspace(p.m, p.n))


@pytest.fixture
def problems(wins: Wins) -> list[Problem]:
    """The smallest problem of each such kernel of the pack."""
    found = [p for p in wins.of_each_kernel() if wins.kernels[p] in sliced()][:6]
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


def test_graphs_that_come_and_go(problems: list[Problem], wins: Wins) -> None:
    """Each owns memory of the slab, and the next can have it; else they would need a slab for every
    few of them."""
    sizes = {p: needed(p, wins) for p in wins.problems if wins.kernels[p] in sliced()}
    fits = sorted((p for p, size in sizes.items() if size <= 4 << 20), key=sizes.__getitem__)[-3:]
    jobs = [(*normal(p), p) for p in fits]
    outs = [torch.empty((p.m, p.n), dtype=a.dtype, device="cuda") for a, _, p in jobs]
    for a, b, _ in jobs:
        matmul(a, b)
    torch.cuda.synchronize()
    before, counts = torch.cuda.memory_allocated(), Counts()
    old = None
    for i in range(GRAPHS):
        (a, b, _), out = jobs[i % len(jobs)], outs[i % len(jobs)]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            matmul(a, b, out=out)
        out.fill_(torch.nan)
        graph.replay()
        eager = matmul(a, b)  # it sees to the next slab as well
        reference.assert_product(out, a, b)
        assert (eager == out).all()
        if old is not None:
            old.reset()
        old = graph
    counts.only_hits(2 * GRAPHS)
    del eager
    assert torch.cuda.memory_allocated() <= before + 2 * SLAB_BYTES


def test_words_are_left_absent(problems: list[Problem], wins: Wins) -> None:
    """By eager launches and replays in turn, which share a workspace of ours."""
    for p in problems:
        kernel = loaded(p, wins)
        a, b = exact(p)
        out = torch.full((p.m, p.n), torch.nan, dtype=a.dtype, device="cuda")
        space = Workspace(make_absent(kernel.workspace(p.m, p.n), a.device))
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launcher.launch(kernel, a, b, out, space)
        for _ in range(ROUNDS):
            graph.replay()
            reference.assert_exact(out, a, b)
            out.fill_(torch.nan)
            launcher.launch(kernel, a, b, out, space)
            reference.assert_exact(out, a, b)
            out.fill_(torch.nan)
        assert (space.words == ABSENT).all()


def test_two_streams_of_one_capture(problems: list[Problem]) -> None:
    """They run at the same time in each replay."""
    p = problems[0]
    jobs = [exact(p, seed=seed) for seed in range(2)]
    for a, b in jobs:
        matmul(a, b)
    outs = [torch.empty((p.m, p.n), dtype=a.dtype, device="cuda") for a, _ in jobs]
    side, graph, counts = torch.cuda.Stream(), torch.cuda.CUDAGraph(), Counts()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        for _ in range(ROUNDS):
            matmul(*jobs[0], out=outs[0])
        with torch.cuda.stream(side):
            for _ in range(ROUNDS):
                matmul(*jobs[1], out=outs[1])
        torch.cuda.current_stream().wait_stream(side)
    counts.only_hits(2 * ROUNDS)
    for _ in range(3):
        for out in outs:
            out.fill_(torch.nan)
        graph.replay()
        for (a, b), out in zip(jobs, outs, strict=True):
            reference.assert_exact(out, a, b)
