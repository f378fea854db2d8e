"""What public `matmul` does with a pack in programs: CUDA graphs that torch captures.

Called by `generate measure public`. It measures every problem with a kernel on one GPU, the largest
results of kernels that read ahead first, and goes on where an earlier run stopped.

The graphs of a problem, each captured twice, of `torch.matmul` and of `hgemm_packs.matmul`:

- "plain": one call, then a kernel of torch on one number, and so on. Behind a kernel that is not
  ours a call is launched plainly. What the graph takes without the products is taken off.
- "2x1" to "32x2": chains of 2, 8 and 32 calls, on one set of operands or two in turn, that kernel
  of torch between two chains. The first call of a chain is launched plainly, the others dependent
  where the row has a kernel for this.
- "regime", "all": other, problem, other, problem, ...: eight others, drawn from the problem's
  regime and from all of its type and layout that have fewer than 2e10 operations, the problem on
  two sets in turn. Both arms run the others, too.

A row without a kernel for dependent launch has "plain", "8x1" and "regime" alone, from 1e11
operations on "plain" alone.

Beside these stand chains of sixteen different problems ("sixteen"), drawn regime by regime, and the
layers of models one after the other.

Arms are replayed in turn, in an order drawn for each block. Results are compared with torch's after
the last. A ratio below 1 is measured again, with three times the blocks, before it is written.
What is below 0.99 in any of them loses its kernel for dependent launch in `generate table`.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.tables import published
from hgemm_packs.generator.tables.published import OURS, PLAIN, TORCH
from hgemm_packs.pack.identity import identity
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem, regime

BLOCKS = 3
AGAIN = 15
SIXTEEN = 16
#: Chains of sixteen of each type, layout and regime, and of each type and layout.
DRAWN = {"regime": 6, "all": 16}
#: Layers in a row, as many times as make sixteen calls.
MODELS = ("Llama 3.1 8B", "Qwen2.5 7B")
TOKENS = (1, 16, 64)
#: A graph has so many calls, fewer where it would last longer than this, but a whole chain.
CALLS, MOST_US = 16, 1500.0
#: Results above this are written last of all to memory: these rows come first.
LARGE_BYTES = 16e6


def parts(length: int, us: float) -> int:
    """Chains of `length` calls of `us` each that a graph has."""
    return max(1, min(CALLS, int(MOST_US / us)) // length)


class Program:
    """Graphs of one measurement, ours beside torch's, and their times."""

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self._graphs: dict[str, dict[str, Any]] = {}

    def add(self, name: str, calls: Callable[[Callable[..., object]], list[Any]]) -> None:
        import torch

        from hgemm_packs import matmul

        self._graphs[name] = {
            arm: self._bench.capture_calls(calls(function))
            for arm, function in ((TORCH, torch.matmul), (OURS, matmul))
        }

    def times(self) -> dict[str, Any]:
        """Samples by graph and arm, a graph that looks slower than torch measured again."""
        from hgemm_packs.generator.measure import chains

        found = {}
        for name, arms in self._graphs.items():
            samples = chains.time_chains(arms, BLOCKS, self._bench.rng, self._bench.stream)
            if chains.over(samples, TORCH, OURS) < 1.0:
                samples = chains.time_chains(arms, AGAIN, self._bench.rng, self._bench.stream)
            found[name] = samples
        return found

    def replay(self, name: str, arm: str) -> None:
        self._graphs[name][arm].graph.replay()

    def free(self) -> None:
        for arms in self._graphs.values():
            for each in arms.values():
                each.graph.reset()


def figures(bench: Any, row: Row, names: Mapping[str, str]) -> Line:
    """The line of one row; `names` of kernels by id."""
    import torch

    from hgemm_packs import launcher
    from hgemm_packs.generator.measure import chains, programs

    problem, by_id = Problem(*row.key), bench.pack.pack.manifest.by_id
    kernels = [id_ for id_ in (row.kernel, row.dependent) if id_ is not None]
    line: Line = {
        "kernel": names[kernels[0]],
        "dependent": names[kernels[1]] if len(kernels) == 2 else None,
        "identities": [identity(by_id[id_]) for id_ in kernels],
        "between": {},
        "wrong": [],
    }
    pool = bench.pool(problem.dtype)
    mine = [pool.cut(problem) for _ in range(2)]
    gap = bench.gap()
    before = launcher.counters()["fallbacks"]
    program = Program(bench)

    def apart(function: Callable[..., object], length: int, sets: int) -> list[Any]:
        calls = [chains.product(function, one) for one in mine[:sets]]
        return chains.apart(calls, length, parts(length, row.hot.us), gap)

    wanted = published.graphs(problem, row.dependent is not None)
    program.add(PLAIN, lambda function: apart(function, 1, 1))
    for length, sets in published.LENGTHS:
        if f"{length}x{sets}" in wanted:
            at = (length, sets)
            program.add(f"{length}x{sets}", lambda f, at=at: apart(f, *at))  # type: ignore[misc]
    for around in programs.AROUND:
        if around not in wanted:
            continue
        others = bench.neighbours.draw(problem, around, bench.rng)
        line["between"][around] = [[p.m, p.n, p.k] for p in others]
        beside = [pool.cut(each) for each in others]
        program.add(
            around,
            lambda function, beside=beside: chains.between(  # type: ignore[misc]
                [chains.product(function, one) for one in beside],
                [chains.product(function, one) for one in mine],
            ),
        )
    line["us"] = program.times()
    count = parts(1, row.hot.us)
    alone = bench.capture_calls([gap] * max(1, count - 1))
    line["gap_us"] = chains.time_chains({"gap": alone}, BLOCKS, bench.rng, bench.stream)["gap"]
    with torch.cuda.stream(bench.stream):
        program.replay(wanted[-1], TORCH)  # has both sets, if any has
        right = [one.c.clone() for one in mine]
        for name in line["us"]:
            for one in mine:
                one.c.fill_(torch.nan)
            program.replay(name, OURS)
            sets = 1 if name.endswith("1") or name == PLAIN else 2
            for one, wanted in zip(mine[:sets], right, strict=False):
                if programs.differs(one, wanted, problem.dtype):
                    line["wrong"].append(name)
    bench.stream.synchronize()
    program.free()
    alone.graph.reset()
    line["fallbacks"] = launcher.counters()["fallbacks"] - before
    return line


def measure_sixteen(bench: Any, chain: Sequence[Problem]) -> Line:
    """The line of a chain of different problems."""
    from hgemm_packs.generator.measure import chains

    pool = bench.pool(chain[0].dtype)
    operands = [pool.cut(each) for each in chain]
    program = Program(bench)
    program.add("chain", lambda f: [chains.product(f, one) for one in operands])
    times = program.times()
    program.free()
    return {"us": times}


def draw(wins: Sequence[Problem], rng: random.Random) -> list[Task]:
    """Chains of sixteen: of the grid's problems with a kernel, and of layers in a row."""
    grid = problems.grid_shapes()
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for p in wins:
        if (p.m, p.n, p.k) in grid:
            for name in (regime(p.m, p.n, p.k), "all"):
                groups.setdefault((p.dtype, p.layout, name), []).append(p)
    found = []
    for (dtype, layout, name), each in sorted(groups.items()):
        for i in range(DRAWN["all" if name == "all" else "regime"] if len(each) >= SIXTEEN else 0):
            chain = rng.sample(sorted(each, key=problems.cost), SIXTEEN)
            found.append(_make_sixteen([dtype, layout, name, i], chain))
    for model in MODELS:
        layers = problems.read("llm", [model])
        for tokens in TOKENS:
            for dtype in ("f16", "bf16"):
                mine = [p for p in layers if (p.m, p.layout, p.dtype) == (tokens, "nt", dtype)]
                if mine:
                    row = (mine * SIXTEEN)[: SIXTEEN // len(mine) * len(mine)]
                    found.append(_make_sixteen([dtype, "nt", f"{model}, {tokens} tokens", 0], row))
    return found


def _make_sixteen(group: list[Any], chain: Sequence[Problem]) -> Task:
    shapes = [[p.m, p.n, p.k] for p in chain]
    return Task("sixteen", None, tuple, {"group": group, "chain": shapes})


def order(pack: Packed, wanted: Sequence[Problem]) -> list[Task]:
    """A task a problem: those with a large result and a dependent kernel that reads ahead first,
    then those with any, then the others, each in the order they come in, types apart."""

    def first(problem: Problem) -> tuple[int, str]:
        name = pack.dependent.get(problem)
        worst = name and pack.entries[name].reads_ahead and 2 * problem.m * problem.n > LARGE_BYTES
        return (0 if worst else 1 if name else 2, problem.dtype)

    return [
        Task("public", problem, tuple, {"problem": pack_kernels.problem_values(problem)})
        for problem in sorted(wanted, key=first)
    ]


def measure(
    plan: CampaignOptions, pack: Packed, wanted: ProblemFilter, most_flop: float = math.inf
) -> CampaignCounts:
    """Measure the problems of a selection that have fewer than `most_flop` operations and a kernel;
    of a whole table also chains of different problems. Raises PackError, ValueError and OSError."""
    from hgemm_packs.generator.measure.programs import ProgramBench

    wins = [
        problem
        for problem, _ in campaign.select(pack, wanted)
        if problem in pack.wins and 2.0 * problem.m * problem.n * problem.k < most_flop
    ]
    there = campaign.lines([plan.out])[0] if plan.out.exists() else []
    seed = there[0]["seed"] if there else secrets.randbits(40)
    bench = ProgramBench(pack, secrets.randbits(40))
    rows = {Problem(*row.key): row for row in pack.rows}
    names = {entry.id: name for name, entry in pack.entries.items()}
    chains = [] if wanted.shapes else draw(wins, random.Random(seed))
    tasks = [*order(pack, wins), *chains]

    def one(task: Task) -> Line:
        if task.problem is not None:
            return figures(bench, rows[task.problem], names)
        dtype, layout = task.fields["group"][:2]
        chain = task.fields["chain"]
        return measure_sixteen(bench, [Problem(m, n, k, layout, dtype) for m, n, k in chain])

    header = {
        "benchmark": "public",
        "protocol": "hgemm_packs.matmul and torch.matmul captured by torch.cuda.graph; both in one "
        "run, random order each block, N(0,1), out= given",
        "settings": {"blocks": BLOCKS, "again": AGAIN, "calls": CALLS, "most_us": MOST_US},
        "seed": seed,
    }
    return campaign.measure_here(plan, pack, tasks, header, one)
