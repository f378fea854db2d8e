"""Which kernel a row should have for dependent launch: in chains with other products between.

Called by `generate measure mixed`. It runs on one GPU and goes on where an earlier run stopped.
Each problem with a kernel stands behind eight others, drawn from its regime and from all of its
type and layout, in one CUDA graph of torch's: other, problem, other, problem, ... The others are
calls of `matmul`; the problem is run by torch (so are the others then), by its row's kernel
launched plainly, and by each candidate launched dependent: its row's own kernel, the one that the
row names, and those that the lines of `pairs` name. All arms share operands and are replayed in
turn, in an order drawn for each block. A chain of one kernel would be no measure: where the CTAs of
a dependent grid settle depends on the grid ahead, and in a program that is hardly ever the same
kernel.

`generate table --mixed` chooses by the lines; what the choice is worth `generate measure public`
says.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from hgemm_packs import matmul
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import (
    CampaignCounts,
    CampaignOptions,
    Line,
    ProblemFilter,
    Task,
)
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.measure import chains, programs
from hgemm_packs.generator.measure.chains import product
from hgemm_packs.generator.measure.programs import AROUND, ProgramBench, differs
from hgemm_packs.measure.operands import Operands
from hgemm_packs.pack.identity import identity
from hgemm_packs.problem import Problem

#: From here on a dependent launch has nothing to gain: the way from grid to grid is below 1% of it.
MOST_FLOP = 1e11
LARGE_FLOP = 2e10
SETS = 2
BLOCKS = 5
TORCH, PLAIN = "torch", "plain"


def figures(bench: ProgramBench, problem: Problem, names: Sequence[str]) -> Line:
    """The line of one problem; `names` are of the candidates."""
    own = bench.pack.entry(bench.pack.wins[problem])
    line: Line = {"kernel": own.name, "identities": {}, "between": {}, "wrong": [], "refused": []}
    functions: dict[str, Callable[..., object]] = {PLAIN: bench.make_launcher(own, False)}
    for entry in map(bench.pack.entry, names):
        try:
            functions[entry.name] = bench.make_launcher(entry, True)
            line["identities"][entry.name] = identity(entry)
        except RuntimeError as error:
            line["refused"].append(f"{entry.name}: {error}")
    line["identities"][own.name] = identity(own)
    for around in AROUND:
        pool = bench.pool(problem.dtype)
        others = bench.neighbours.draw(problem, around, bench.rng)
        line["between"][around] = [[p.m, p.n, p.k] for p in others]
        beside = [pool.cut(each) for each in others]
        mine = [pool.cut(problem) for _ in range(SETS)]

        def chain(
            theirs: Callable[..., object],
            ours: Callable[..., object],
            beside: Sequence[Operands] = beside,
            mine: Sequence[Operands] = mine,
        ) -> chains.Chain:
            others = [product(theirs, one) for one in beside]
            return bench.capture_calls(chains.between(others, [product(ours, one) for one in mine]))

        captured = {TORCH: chain(torch.matmul, torch.matmul)}
        with torch.cuda.stream(bench.stream):
            right = [one.c.clone() for one in mine]
        captured |= {name: chain(matmul, each) for name, each in functions.items()}
        line[around] = chains.time_chains(captured, BLOCKS, bench.rng, bench.stream)
        with torch.cuda.stream(bench.stream):
            for name in functions:
                for one in mine:
                    one.c.fill_(torch.nan)
                captured[name].graph.replay()
                if any(map(partial(differs, dtype=problem.dtype), mine, right)):
                    line["wrong"].append(f"{around}: {name}")
        bench.stream.synchronize()
        for each in captured.values():
            each.graph.reset()
    return line


def candidates(pack: Packed, pairs: Mapping[Problem, Sequence[str]]) -> Iterator[Task]:
    """One task a problem with a kernel, of fewer than MOST_FLOP."""
    for problem, own in pack.wins.items():
        if 2.0 * problem.m * problem.n * problem.k < MOST_FLOP:
            named = [own, *([pack.dependent[problem]] if problem in pack.dependent else [])]
            names = tuple(dict.fromkeys([*named, *pairs.get(problem, ())]))
            fields = {"problem": pack_kernels.problem_values(problem), "candidates": list(names)}
            yield Task("mixed", problem, tuple, fields)


def read_pairs(path: Path | None, pack: Packed) -> dict[Problem, list[str]]:
    """Further candidates by problem, of those that the pack has."""
    found: dict[Problem, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path else ():
        problem, name = pack_kernels.parse(
            [*json.loads(line)["problem"], json.loads(line)["kernel"]]
        )
        if name in pack.entries and pack.entries[name].admits(problem) is None:
            found.setdefault(problem, []).append(name)
    return found


def _flop(task: Task) -> float:
    return 2.0 * float(math.prod(task.fields["problem"][:3]))


def measure(
    plan: CampaignOptions, pack: Packed, wanted: ProblemFilter, pairs: Path | None
) -> CampaignCounts:
    """Measure the problems of a selection; `pairs` are JSON lines of problems and further
    candidates. Raises PackError, ValueError and OSError."""
    order = {problem: i for i, (problem, _) in enumerate(campaign.select(pack, wanted))}
    tasks = [task for task in candidates(pack, read_pairs(pairs, pack)) if task.problem in order]
    # What may gain most first; else in an order that makes a run that was stopped a fair sample.
    tasks.sort(
        key=lambda task: (_flop(task) >= LARGE_FLOP, order[task.problem] if task.problem else 0)
    )
    header = {
        "benchmark": "mixed",
        "protocol": "torch's CUDA graphs of other, problem, other, problem, ...: eight others by "
        "matmul, the problem by each arm on two sets in turn; random order each block, N(0,1)",
        "settings": {"blocks": BLOCKS, "others": programs.OTHERS, "target_us": chains.TARGET_US},
    }
    seed = secrets.randbits(40)
    bench = ProgramBench(pack, seed)

    def one(task: Task) -> Line:
        assert task.problem is not None
        return figures(bench, task.problem, task.fields["candidates"])

    return campaign.measure_here(
        plan,
        pack,
        tasks,
        {**header, "seed": seed},
        one,
    )
