"""What public `matmul` does with problems that nobody measured: drawn by a seed, against torch.

    python -m benchmarks.measure.unseen PACK OUT.jsonl --seed SEED [--part 1/1] [--deadline SECONDS]

needs one GPU, and goes on where an earlier run stopped. Of two GPUs each takes a --part, 1/2 and
2/2, and the lines of both are one run, without the host's: beside another process they would say
how busy the host is. Layers of models have M log-uniform, and
half of them an N and K that neither table nor training saw; sizes are log-uniform, a third of them
not aligned. Both arms are captured by torch.cuda.graph with a kernel of torch's on one number
between two calls, so that every launch is plain, and replayed in turn. Of each SHARED-th problem
every kernel that may be chosen is timed, too: by these lines the share of the gain is counted. The
last line is the host's: what the first call of a problem costs, and a stream of sizes.

`python -m benchmarks.publish.shapes_figures` makes results/shapes.json of the lines.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

from benchmarks import gpus
from hgemm_packs.generator.campaigns import campaign, unseen
from hgemm_packs.generator.campaigns.campaign import CampaignOptions, Line, Task
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.space import admits
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.prediction import draw
from hgemm_packs.problem import Problem

COUNT = 300
#: Each so many problems, every candidate is timed.
SHARED = 6
BLOCKS = 7
CALLS, MOST_US, TRIES = 16, 1500.0, 4
#: Sizes of the host's figures: rows of a product that takes the GPU no time, and of one that takes
#: it some.
STREAM, BLOCK, PAIRS, FIRST, WIDE, DEEP, LARGE = 10_000, 500, 5, 100, 64, 64, 4096


def draw_tasks(seed: int, count: int = COUNT) -> list[Task]:
    """The problems of both sets, mixed, each with what its figures are counted under."""
    trained, held_out = draw.split_weights(0)
    drawn = [
        *(("layers", p) for p in draw.layers(seed, count // 2, trained)),
        *(("layers_new", p) for p in draw.layers(seed + 1, count - count // 2, held_out)),
        *(("random", p) for p in draw.sizes(seed, count - count // 3, aligned=True)),
        *(("unaligned", p) for p in draw.sizes(seed, count // 3, aligned=False)),
    ]
    random.Random(seed).shuffle(drawn)
    return [
        Task(
            "unseen",
            problem,
            tuple,
            {"set": name, "problem": pack_kernels.problem_values(problem), "all": not i % SHARED},
        )
        for i, (name, problem) in enumerate(drawn)
    ] + [Task("host", None, tuple, {"set": "host"})]


def calls_of(product: Callable[[], object], wait: Callable[[], object]) -> int:
    """Calls of a graph. The least of some times counts: the first call loads a kernel, which takes
    longer than a thousand products."""
    least = math.inf
    for _ in range(TRIES):
        wait()
        started = time.perf_counter()
        product()
        wait()
        least = min(least, time.perf_counter() - started)
    return max(1, min(CALLS, int(MOST_US / (1e6 * least))))


class Bench:
    """Arms of one problem in graphs, replayed in turn."""

    def __init__(self, pack: Packed, seed: int) -> None:
        from hgemm_packs.generator.measure.programs import ProgramBench

        self._bench = ProgramBench(pack, seed)
        self._chooser = unseen.Chooser(pack)
        self._candidates = {
            each.kernel
            for predictor in pack.pack.manifest.predictors
            for each in predictor.candidates
        }

    def _kernels(self, problem: Problem) -> list[str]:
        """Every kernel that may be chosen, and those that promise most."""
        entries = self._bench.pack.entries
        may = [
            name
            for name, entry in entries.items()
            if entry.id in self._candidates
            and entry.admits(problem) is None
            and admits(Choice.of(entry.family, entry.genome), problem)  # as many CTAs at once
        ]
        return list(dict.fromkeys([*may, *self._chooser.choose(problem)]))

    def figures(self, problem: Problem, every: bool) -> Line:
        """Times of a call, samples by arm, without those of the kernels between."""
        import torch

        from hgemm_packs import launcher, matmul
        from hgemm_packs.generator.measure import chains, programs

        bench = self._bench
        one = bench.pool(problem.dtype).cut(problem)
        arms: dict[str, Callable[..., object]] = {"torch": torch.matmul, "ours": matmul}
        for name in self._kernels(problem) if every else ():
            arms[name] = bench.make_launcher(bench.pack.entries[name], False)
        for _ in range(3):
            matmul(one.a, one.b, out=one.c)
        parts = calls_of(lambda: torch.matmul(one.a, one.b, out=one.c), torch.cuda.synchronize)
        before = launcher.counters()
        gap = bench.gap()
        graphs = {
            name: bench.capture_calls(chains.apart([chains.product(arm, one)], 1, parts, gap))
            for name, arm in arms.items()
        }
        after = launcher.counters()
        graphs["gap"] = bench.capture_calls([gap] * max(1, parts - 1))
        samples = chains.time_chains(graphs, BLOCKS, bench.rng, bench.stream)
        lost = [each if parts > 1 else 0.0 for each in samples.pop("gap")]
        us = {
            name: [round((each - gone) / parts, 4) for each, gone in zip(found, lost, strict=True)]
            for name, found in samples.items()
        }
        with torch.cuda.stream(bench.stream):
            graphs["torch"].graph.replay()
            right = one.c.clone()
            one.c.fill_(torch.nan)
            graphs["ours"].graph.replay()
        bench.stream.synchronize()
        wrong = programs.differs(one, right, problem.dtype)
        for each in graphs.values():
            each.graph.reset()
        by = "predicted" if after.get("predicted", 0) > before.get("predicted", 0) else "row"
        by = by if after["hits"] > before["hits"] else "torch"
        return {"us": us, "parts": parts, "by": by, "wrong": wrong}


def seconds(product: Callable[..., object], operands: Sequence[Any], b: Any) -> float:
    """What calls take on the host, of a GPU that has nothing else to do."""
    import torch

    torch.cuda.synchronize()
    started = time.perf_counter()
    for a in operands:
        product(a, b)
    passed = time.perf_counter() - started
    torch.cuda.synchronize()
    return passed


def stream_extra() -> float:
    """Microseconds that a call of a stream of sizes, each seen once, takes over torch's. The arms
    take turns with blocks of sizes, and none meets a problem of the other's: cuBLAS, too, decides
    about what it has not seen."""
    import torch

    from hgemm_packs import matmul

    x = torch.randn(STREAM, DEEP, device="cuda", dtype=torch.float16)
    rows = [x[:m] for m in range(1, STREAM + 1)]

    def weight(more: int) -> torch.Tensor:
        return torch.randn(DEEP, WIDE + 8 * more, device="cuda", dtype=torch.float16)

    # The first calls are decided at first sight, however small the problem: a process has few.
    for product in (torch.matmul, matmul):
        seconds(product, rows[:BLOCK], weight(0))
    extra = []
    for pair in range(PAIRS):
        took = {matmul: 0.0, torch.matmul: 0.0}
        for turn in range(2):  # with another weight each arm has the sizes that the other had
            b = weight(1 + 2 * pair + turn)
            for block, start in enumerate(range(0, STREAM, BLOCK)):
                arm = [*took][(block + turn) % 2]
                took[arm] += seconds(arm, rows[start : start + BLOCK], b)
        extra.append((took[matmul] - took[torch.matmul]) / STREAM * 1e6)
    return median(extra)


def host_figures() -> Line:
    """`first_us`: what the call that decides about a problem takes over a later one, of small
    problems and of large ones; `first_kernel_us`: the same where it is the first of its kernel,
    which Python has to find and load; `stream_extra_us`: see `stream_extra`. torch has met all
    problems of a first call before: cuBLAS's own decision is not in it."""
    import torch

    from hgemm_packs import launcher, matmul, select

    extra = stream_extra()
    first, first_kernel, later = list[float](), list[float](), list[float]()
    for side in (DEEP, LARGE):
        x = torch.randn(2 * FIRST, side, device="cuda", dtype=torch.float16)
        b = torch.randn(side, side, device="cuda", dtype=torch.float16)
        rows = [x[:m] for m in range(1, 2 * FIRST + 1)]
        launcher.reset_table()
        for a in reversed(rows):  # the last ones are decided, the others wait to come again
            matmul(a, b)
        for a in rows[:FIRST]:
            with mock.patch.object(select, "resolve", wraps=select.resolve) as asked:
                us = seconds(matmul, [a], b) * 1e6
            (first_kernel if asked.called else first).append(us)
        later += [seconds(matmul, [a], b) * 1e6 for a in rows[:FIRST]]

    def extra_of(times: list[float], share: float = 0.5) -> float | None:
        return round(sorted(times)[int(share * len(times))] - median(later), 3) if times else None

    return {
        "first_us": extra_of(first),
        "first_p95_us": extra_of(first, 0.95),
        "first_kernel_us": extra_of(first_kernel),
        "first_kernels": len(first_kernel),
        "stream_extra_us": round(extra, 4),
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=COUNT, help="problems of each set")
    parser.add_argument("--part", type=gpus.part_of, default=gpus.ALL, help="as 1/2")
    parser.add_argument("--deadline", type=float, default=float("inf"), help="seconds")
    given = parser.parse_args(arguments)
    pack = Packed(given.pack)
    bench = Bench(pack, given.seed)

    def one(task: Task) -> Line:
        if task.problem is None:
            return host_figures()
        return bench.figures(task.problem, bool(task.fields["all"]))

    header = {
        "benchmark": "unseen",
        "protocol": "hgemm_packs.matmul and torch.matmul captured by torch.cuda.graph, a kernel of "
        "torch's between two calls; hot, random order each block, N(0,1), out= given",
        "seed": given.seed,
    }
    plan = CampaignOptions(given.out, deadline=given.deadline)
    *tasks, host = draw_tasks(given.seed, given.count)
    mine = [host, *tasks] if given.part == gpus.ALL else gpus.share(tasks, given.part)
    tally = campaign.measure_here(plan, pack, mine, header, one)
    return 0 if tally.whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
