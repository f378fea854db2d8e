"""Times on problems that nobody chose: torch and the kernels of a pack that promise most.

Called by `generate measure unseen`, in this process on one GPU; goes on where an earlier run
stopped. Models of times are fitted to the lines (`generate fit`). Which kernels are timed follows
from formulas and from rows near by, never from a time on the problem itself: what was drawn is no
choice of winners.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import CampaignCounts, CampaignOptions, Line, Task
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.space import admits
from hgemm_packs.generator.core.spec import FALLBACK, Choice
from hgemm_packs.generator.prediction import draw
from hgemm_packs.generator.search.analytic.features import Table
from hgemm_packs.generator.search.analytic.roofline import terms
from hgemm_packs.problem import Problem

#: A layout and a type.
Kind = tuple[str, str]
#: Kernels of a problem by the formulas, of rows near by, and drawn: trees learn nothing of a kernel
#: that is always left out.
BY_FORMULA, BY_ROWS, DRAWN = 5, 3, 2
BLOCKS, TARGET_US = 5, 150.0


@dataclass(frozen=True, slots=True)
class Draw:
    """How many problems a seed draws: layers of models with any M, sizes, sizes that are not
    aligned."""

    layers: int = 1500
    sizes: int = 1500
    unaligned: int = 400
    seed: int = 11


def draw_problems(wanted: Draw) -> list[Problem]:
    """The problems of a draw, the sorts mixed, so that a run that was stopped is a fair sample. Of
    layers half of all weights are left for others to judge by."""
    trained, _ = draw.split_weights(0)
    found = [
        *draw.layers(wanted.seed, wanted.layers, trained),
        *draw.sizes(wanted.seed, wanted.sizes, aligned=True),
        *draw.sizes(wanted.seed, wanted.unaligned, aligned=False),
    ]
    random.Random(wanted.seed).shuffle(found)
    return found


class Chooser:
    """Chooses kernels of a pack for a problem."""

    def __init__(self, pack: Packed) -> None:
        #: By layout and type: kernels of plain products, and rows that one won.
        self._choices: defaultdict[Kind, dict[str, Choice]] = defaultdict(dict)
        self._wins: defaultdict[Kind, dict[Problem, str]] = defaultdict(dict)
        for name, entry in pack.entries.items():
            if entry.epilogue == "none":
                choice = Choice.of(entry.family, entry.genome)
                self._choices[entry.layout, entry.dtype][name] = choice
        for row, name in pack.wins.items():
            if row.epilogue == "none":
                self._wins[row.layout, row.dtype][row] = name

    def takes(self, problem: Problem) -> bool:
        """Whether any kernel takes the problem."""
        choices = self._choices[problem.layout, problem.dtype].values()
        return any(admits(choice, problem) for choice in choices)

    def choose(self, problem: Problem) -> list[str]:
        """Names of the kernels to time, of a problem that some take."""
        choices = self._choices[problem.layout, problem.dtype]
        taking = [name for name, choice in choices.items() if admits(choice, problem)]
        us = terms(Table([choices[name] for name in taking]), problem).total
        ranked = [taking[place] for place in us.argsort(kind="stable").tolist()]
        found = dict.fromkeys(ranked[:BY_FORMULA])
        for name in self._near(problem, set(taking)):
            found[name] = None
        dice = random.Random(str(problem))
        rest = [name for name in ranked[: 2 + len(ranked) // 3] if name not in found]
        return [*found, *dice.sample(rest, min(DRAWN, len(rest)))]

    def _near(self, problem: Problem, taking: set[str]) -> list[str]:
        """Kernels of the nearest rows of the type and layout that a kernel won."""

        def distance(other: Problem) -> float:
            sides = ((other.m, problem.m), (other.n, problem.n), (other.k, problem.k))
            return sum(abs(math.log2(a / b)) for a, b in sides)

        wins = self._wins[problem.layout, problem.dtype]
        nearest = heapq.nsmallest(4 * BY_ROWS, wins, key=distance)
        names = dict.fromkeys(wins[row] for row in nearest if wins[row] in taking)
        return list(names)[:BY_ROWS]


def tasks_of(problems: Sequence[Problem], chooser: Chooser) -> list[Task]:
    """A task for each problem that a kernel takes."""
    return [
        Task("unseen", problem, tuple, {"problem": pack_kernels.problem_values(problem)})
        for problem in problems
        if chooser.takes(problem)
    ]


class Bench:
    """Times torch and kernels of a pack, all interleaved, on the same operands."""

    def __init__(self, pack: Packed) -> None:
        from hgemm_packs.generator.measure.chains import settle

        self._pack = pack
        self._arms: dict[str, object] = {}
        settle()

    def _arm(self, name: str) -> object:
        from hgemm_packs import launcher
        from hgemm_packs.generator.gates.arm import KernelArm

        if name not in self._arms:
            entry = self._pack.entries[name]
            handle = launcher.load(0, entry, self._pack.pack.image(entry))
            self._arms[name] = KernelArm(handle, entry.epilogue)
        return self._arms[name]

    def times(self, problem: Problem, names: Sequence[str], seed: int) -> Mapping[str, list[float]]:
        """Samples in us a call, hot, launched plainly."""
        import torch

        from hgemm_packs.measure import timing

        arms: dict[str, object] = {FALLBACK: timing.torch_arm(problem)}
        arms |= {name: self._arm(name) for name in names}
        found = timing.compare(
            arms,  # type: ignore[arg-type]
            problem,
            blocks=BLOCKS,
            target_us=TARGET_US,
            seed=seed,
        )
        if torch.cuda.memory_reserved() > 16 << 30:
            torch.cuda.empty_cache()
        return {name: [round(us, 4) for us in each] for name, each in found.samples.items()}


def measure(plan: CampaignOptions, pack: Packed, wanted: Draw) -> CampaignCounts:
    """Measure the problems of a draw until they or the seconds are used up."""
    chooser, bench = Chooser(pack), Bench(pack)

    def figures(task: Task) -> Line:
        assert task.problem is not None
        names = chooser.choose(task.problem)
        return {"us": dict(bench.times(task.problem, names, wanted.seed))}

    header = {
        "benchmark": "unseen",
        "protocol": "hot, plain launches, interleaved in random order each block, N(0,1)",
        "settings": {"blocks": BLOCKS, "target_us": TARGET_US},
        "draw": {name: getattr(wanted, name) for name in ("layers", "sizes", "unaligned", "seed")},
    }
    tasks = tasks_of(draw_problems(wanted), chooser)
    return campaign.measure_here(plan, pack, tasks, header, figures)
