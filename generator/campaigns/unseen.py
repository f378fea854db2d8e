"""Times on problems that nobody chose: torch and the kernels of a pack that promise most.

Called by `generate measure unseen`, in this process on one GPU; goes on where an earlier run
stopped. Models of times are fitted to the lines (`generate fit`). Which kernels are timed follows
from formulas, from rows near by and from the pack's predictor, never from a time on the problem
itself: what was drawn is no choice of winners.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hgemm_packs import launcher
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import CampaignCounts, CampaignOptions, Line, Task
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.space import admits
from hgemm_packs.generator.core.spec import FALLBACK, Choice
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.prediction import draw
from hgemm_packs.generator.search.analytic.features import Table
from hgemm_packs.generator.search.analytic.roofline import terms
from hgemm_packs.pack.predictor import Predictor
from hgemm_packs.problem import DTYPES, Problem

#: A layout and a type.
Kind = tuple[str, str]
BLOCKS, TARGET_US = 5, 150.0
#: Genes that only a dependent launch can show.
AHEAD = ("reads_ahead", "triggers_early")


@dataclass(frozen=True, slots=True)
class Draw:
    """How many problems a seed draws: layers of models with any M, sizes, sizes that are not
    aligned; and how many more, half of them layers, of which torch `alone` is timed."""

    layers: int = 1500
    sizes: int = 1500
    unaligned: int = 400
    alone: int = 0
    seed: int = 11


def draw_problems(wanted: Draw) -> tuple[list[Problem], list[Problem]]:
    """The problems of a draw, and those of torch alone, all of them different. Of layers half of
    all weights are left for others to judge by."""
    trained, _ = draw.split_weights(0)
    layers, sizes = wanted.alone - wanted.alone // 2, wanted.alone // 4
    unaligned = wanted.alone - layers - sizes
    drawn = (
        (wanted.layers, draw.layers(wanted.seed, wanted.layers + layers, trained)),
        (wanted.sizes, draw.sizes(wanted.seed, wanted.sizes + sizes, aligned=True)),
        (wanted.unaligned, draw.sizes(wanted.seed, wanted.unaligned + unaligned, aligned=False)),
    )
    return (
        [problem for count, found in drawn for problem in found[:count]],
        [problem for count, found in drawn for problem in found[count:]],
    )


@dataclass(frozen=True, slots=True)
class Mix:
    """How many kernels of a problem are chosen by the formulas, how many of rows near by, how many
    by the pack's predictor, and how many are drawn: trees learn nothing of a kernel that is always
    left out, and most of the mistakes that they would make."""

    formula: int = 3
    rows: int = 3
    predicted: int = 3
    drawn: int = 2


class _Hand(NamedTuple):
    """A predictor of some of the candidates, ready for C, and their names."""

    ready: object
    names: list[str]


class Chooser:
    """Chooses kernels of a pack for a problem."""

    def __init__(self, pack: Packed, mix: Mix | None = None) -> None:
        self._mix = mix or Mix()
        #: By layout and type: kernels of plain products, and rows that one won.
        self._choices: defaultdict[Kind, dict[str, Choice]] = defaultdict(dict)
        #: The same of wins in the other type, where the pack has the kernel in this one.
        self._wins: defaultdict[Kind, list[tuple[Problem, str]]] = defaultdict(list)
        names: dict[Choice, str] = {}
        for name, entry in pack.entries.items():
            if entry.epilogue == "none" and entry.family in FAMILIES:
                choice = Choice.of(entry.family, entry.genome)
                self._choices[entry.layout, entry.dtype][name] = choice
                names[choice] = name
        won = [
            (row, name)
            for row, name in pack.wins.items()
            if row.epilogue == "none" and pack.entries[name].family in FAMILIES
        ]
        for own in (True, False):
            for row, name in won:
                choice = self._choices[row.layout, row.dtype][name]
                for dtype in DTYPES:
                    twin = names.get(Choice.of(choice.family, {**choice.genome, "dtype": dtype}))
                    if twin is not None and own == (dtype == row.dtype):
                        self._wins[row.layout, dtype].append((row, twin))
        self._hands = [
            hand
            for predictor in pack.pack.manifest.predictors
            for hand in _deal(pack, predictor, self._mix.predicted)
        ]

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
        designs: dict[Choice, str] = {}
        for name in ranked:  # the formulas see no difference between twins
            designs.setdefault(_design(choices[name]), name)
        found = dict.fromkeys([*designs.values()][: self._mix.formula])
        may = set(taking)
        for name in (*self._near(problem, may), *self._predict(problem, may)):
            found[name] = None
        dice = random.Random(str(problem))
        rest = [name for name in ranked[: 2 + len(ranked) // 3] if name not in found]
        return [*found, *dice.sample(rest, min(self._mix.drawn, len(rest)))]

    def _predict(self, problem: Problem, taking: set[str]) -> list[str]:
        """The best of each hand, so the best of all, and others."""
        chosen = ((hand.names, launcher.predict(hand.ready, problem)) for hand in self._hands)
        return [names[best[0]] for names, best in chosen if best and names[best[0]] in taking]

    def _near(self, problem: Problem, taking: set[str]) -> list[str]:
        """Kernels of the nearest rows of the layout that a kernel won, in either type."""

        def distance(win: tuple[Problem, str]) -> float:
            other = win[0]
            sides = ((other.m, problem.m), (other.n, problem.n), (other.k, problem.k))
            return sum(abs(math.log2(a / b)) for a, b in sides)

        wins = self._wins[problem.layout, problem.dtype]
        nearest = heapq.nsmallest(8 * self._mix.rows, wins, key=distance)
        return list(dict.fromkeys(name for _, name in nearest if name in taking))[: self._mix.rows]


def _deal(pack: Packed, predictor: Predictor, hands: int) -> list[_Hand]:
    """The predictor, so many times, each with its share of the candidates."""
    profiles = pack.pack.manifest.device_profiles
    device = next(each for each in profiles if each.name == predictor.profile)
    names = {(entry.id, entry.layout, entry.dtype): name for name, entry in pack.entries.items()}
    found = []
    for hand in range(hands):
        share = predictor.candidates[hand::hands]
        ready = launcher.predictor(predictor._replace(candidates=share), device)
        found.append(_Hand(ready, [names[c.kernel, c.layout, c.dtype] for c in share]))
    return found


def _design(choice: Choice) -> Choice:
    """What twins have in common: kernels that differ in AHEAD alone."""
    return Choice(choice.family, tuple(each for each in choice.genes if each[0] not in AHEAD))


def tasks_of(
    problems: Sequence[Problem], alone: Sequence[Problem], chooser: Chooser, seed: int
) -> list[Task]:
    """A task for each problem that a kernel takes, and for each of torch `alone`; mixed, so that a
    run that was stopped is a fair sample."""
    listed = [(problem, False) for problem in problems if chooser.takes(problem)]
    listed += [(problem, True) for problem in alone]
    random.Random(seed).shuffle(listed)
    return [
        Task(
            "unseen",
            problem,
            tuple,
            {
                "problem": pack_kernels.problem_values(problem),
                **({"alone": True} if by_torch else {}),
            },
        )
        for problem, by_torch in listed
    ]


class Bench:
    """Times torch and kernels of a pack, all interleaved, on the same operands."""

    def __init__(self, pack: Packed) -> None:
        from hgemm_packs.generator.measure.chains import settle

        self._pack = pack
        self._arms: dict[str, object] = {}
        settle()

    def _arm(self, name: str) -> object:
        from hgemm_packs.measure.kernel_arm import KernelArm

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
        names = [] if task.fields.get("alone") else chooser.choose(task.problem)
        return {"us": dict(bench.times(task.problem, names, wanted.seed))}

    header = {
        "benchmark": "unseen",
        "protocol": "hot, plain launches, interleaved in random order each block, N(0,1)",
        "settings": {"blocks": BLOCKS, "target_us": TARGET_US},
        "draw": {
            name: getattr(wanted, name)
            for name in ("layers", "sizes", "unaligned", "alone", "seed")
        },
    }
    tasks = tasks_of(*draw_problems(wanted), chooser, wanted.seed)
    return campaign.measure_here(plan, pack, tasks, header, figures)
