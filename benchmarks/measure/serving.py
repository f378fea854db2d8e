"""Single products as a program calls them, back to back and now and then: the offline and the
server mode of CUDA-L2, with torch, ours and the best of cuBLASLt.

    python -m benchmarks.measure.serving PACK OUT.jsonl [--grid 200] [--layers 100] [--deadline S]

measures on one GPU (two minutes) and goes on where an earlier run stopped; `models.py --summary`
takes its lines (results/serving/) to results/models.json.

"offline": calls on one set of operands back to back, launched one by one; the host's time counts
where it is the longer. "server": one call at a time. Before each, an elementwise kernel of torch
walks over some of a large buffer, so that the caches are as other work leaves them, and a pause of
random length passes; a call's time is what lies between two events of its stream, hence the launch
as well where the GPU has nothing left to do. Every arm meets the same pauses and the same other
work, turn by turn, in random order. Figures are medians of paired ratios.

"torch" is torch.matmul, "ours" hgemm_packs.matmul, both with out=, and "cublaslt" the algorithm
that screening found best of all that cuBLASLt offers: hot for offline, cold for server. The
problems: some of the 1000-shape grid (fp16 nn) and of the layers that the table measured (bf16 nt),
drawn evenly over regimes and sizes.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import torch

import hgemm_packs
from hgemm_packs.generator.campaigns import cases
from hgemm_packs.generator.campaigns.campaign import Line
from hgemm_packs.generator.campaigns.cases import Arm, Fields, Samples
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.measure.values import sample_reference
from hgemm_packs.generator.tables import speedups
from hgemm_packs.measure import baselines
from hgemm_packs.measure.operands import operands
from hgemm_packs.problem import Problem

DEVICE = torch.device("cuda", 0)
#: Of a block of calls back to back, and of all blocks of one problem.
TARGET_US = 600.0
BUDGET_US = 60_000.0
#: Turns of one problem: as many as the budget has room for.
SERVER_BUDGET_US = 80_000.0
MIN_TURNS = 9
TURNS = 60
#: Mean pause before a call, and the least and the most bytes that other work walks over.
PAUSE_US = 200.0
OTHER_BYTES = (1 << 20, 1 << 28)
#: Screening of cuBLASLt's algorithms.
SCREEN_REPLAYS = 2
SCREEN_TARGET_US = 100.0


def draw_problems(listed: Iterable[Problem], count: int, seed: int) -> list[Problem]:
    """`count` problems, one of each of as many parts of a list in the order of regimes and sizes;
    as they come, a run that was stopped is a fair sample."""
    order = sorted(listed, key=lambda p: (problems.regime(p.m, p.n, p.k), problems.cost(p)))
    count, draw = min(count, len(order)), random.Random(seed)
    ends = [i * len(order) // count for i in range(count + 1)] if count else []
    chosen = [order[draw.randrange(*part)] for part in pairwise(ends)]
    steps = max(1, round(count**0.5))
    return [each for first in range(steps) for each in chosen[first::steps]]


def every_case(pack: Packed, grid: int, layers: int, seed: int) -> list[Fields]:
    """Grid and layers in turn, so that each has its share of a run that was stopped."""
    listed = speedups.shapes("llm")
    sets = {
        "grid": draw_problems(
            [p for p in problems.read("grid") if (p.layout, p.dtype) == ("nn", "f16")], grid, seed
        ),
        "layers": draw_problems(
            [
                p
                for p in pack.measured
                if (p.layout, p.dtype) == ("nt", "bf16") and (p.m, p.n, p.k) in listed
            ],
            layers,
            seed,
        ),
    }
    placed = [
        ((i + 0.5) / len(chosen), {"set": name, "problem": pack_kernels.problem_values(p)})
        for name, chosen in sets.items()
        for i, p in enumerate(chosen)
    ]
    return [fields for _, fields in sorted(placed, key=lambda each: each[0])]


class Server:
    """Calls at random intervals, each timed alone."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._others = torch.ones(OTHER_BYTES[1] // 4, device=device)

    def _call_us(self, arm: Arm, other_bytes: int, pause_us: float) -> float:
        torch.neg(self._others[: other_bytes // 4], out=self._others[: other_bytes // 4])
        ends = time.perf_counter() + pause_us * 1e-6
        while time.perf_counter() < ends:
            pass
        if self._device.type != "cuda":
            began = time.perf_counter()
            arm()
            return (time.perf_counter() - began) * 1e6
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        arm()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3

    def samples(self, arms: Mapping[str, Arm], seed: int) -> Samples:
        """A time of each arm a turn, in us."""
        draw, order = random.Random(seed), list(arms)
        pilot = min(self._call_us(arms[order[0]], OTHER_BYTES[0], 0.0) for _ in range(cases.PILOTS))
        turns = int(SERVER_BUDGET_US / (len(arms) * (pilot + PAUSE_US)))
        found: Samples = {name: [] for name in arms}
        for _ in range(min(TURNS, max(MIN_TURNS, turns))):
            draw.shuffle(order)
            pause_us = draw.expovariate(1.0 / PAUSE_US)
            other = int(math.exp(draw.uniform(*map(math.log, OTHER_BYTES))))
            for name in order:
                found[name].append(round(self._call_us(arms[name], other, pause_us), 3))
        return found


class ServingBench:
    """Measures one problem after another."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self._device, self._seed = device, seed
        self._server = Server(device)

    def measure(self, case: Fields) -> Line:
        """Samples of both modes, what runs the product, and what is wrong."""
        problem, _ = pack_kernels.parse(case["problem"])
        one = operands(problem, self._device, seed=self._seed)[0]

        def ours() -> object:
            return hgemm_packs.matmul(one.a, one.b, out=one.c)

        arms: dict[str, Arm] = {
            "torch": lambda: torch.matmul(one.a, one.b, out=one.c),
            "ours": ours,
        }
        ours()  # loads the kernel
        before = Counter(hgemm_packs.counters())
        one.c.fill_(math.nan)
        ours()
        finding = sample_reference(problem, one, self._seed).check(one.c)
        ran = sorted((Counter(hgemm_packs.counters()) - before).keys() - {"launches", "fallbacks"})
        tuned = self._tune(problem)
        hot, cold = (
            arms | ({"cublaslt": lambda arm=arm: arm(one.a, one.b, one.c)} if arm else {})
            for arm in ((tuned.hot, tuned.cold) if tuned else (None, None))
        )
        offline, calls = cases.sample_in_turn(
            hot, target_us=TARGET_US, budget_us=BUDGET_US, device=self._device, seed=self._seed
        )
        return {
            "offline": offline,
            "calls": calls,
            "server": self._server.samples(cold, self._seed),
            "ran": ran,
            "wrong": [finding.detail] if finding.detail else [],
        }

    def _tune(self, problem: Problem) -> baselines.TunedCublasLt | None:
        return baselines.best_cublaslt(
            problem,
            device=self._device.index,
            seed=self._seed,
            replays=SCREEN_REPLAYS,
            target_us=SCREEN_TARGET_US,
        )


def main(arguments: Sequence[str]) -> int:
    parser = cases.parser(__doc__ or "")
    parser.add_argument("--grid", type=int, default=200, help="problems of the grid")
    parser.add_argument("--layers", type=int, default=100, help="layers of models")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(arguments)
    pack = Packed(options.pack)
    header = {
        "benchmark": "serving",
        "protocol": "offline: calls back to back, paired blocks; server: one call at a time, with "
        "pauses and other work between, the same for all arms; in random order",
        "settings": {
            "grid": options.grid,
            "layers": options.layers,
            "seed": options.seed,
            "pause_us": PAUSE_US,
            "other_bytes": OTHER_BYTES,
        },
    }
    chosen = every_case(pack, options.grid, options.layers, options.seed)
    bench = ServingBench(DEVICE, options.seed)
    return cases.main(options, pack, chosen, bench.measure, header)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
