"""What a search was told: times by problem and choice, kernels that failed, what won nearby.

The memory of every search of ours. It measures nothing and forgets nothing.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Status
from hgemm_packs.generator.families import computed
from hgemm_packs.generator.search.analytic.features import Array, Table
from hgemm_packs.problem import Problem

#: What a choice that failed somewhere costs in rank, in doublings of time, and what each near copy
#: of it costs: one that differs in one gene, of which only so many count.
BROKEN = 64.0
NEAR_BROKEN = 0.02
MOST_NEAR = 4
FRONT = 256  # a problem's fastest choices that are learnt from
#: Correct kernels that were told without a time say nothing of their neighbours.
CORRECT = (Status.OK, Status.SLOWER, Status.NOISE)
#: Another layout counts as this many doublings between two problems.
LAYOUT_APART = 2.0


@dataclass(slots=True)
class Told:
    """One problem's part: us by choice, infinite where it failed."""

    problem: Problem
    us: dict[Choice, float] = field(default_factory=dict)
    _front: tuple[list[Choice], Array] | None = None

    def add(self, choice: Choice, us: float) -> None:
        self.us[choice] = us
        self._front = None

    def front(self) -> tuple[list[Choice], Array]:
        """The choices that have a time, at most FRONT of them, and log2 of their us; fastest first,
        whatever the order in which they were told."""
        if self._front is None:
            found = [(us, str(choice), choice) for choice, us in self.us.items() if us < math.inf]
            found = heapq.nsmallest(FRONT, found, key=lambda item: item[:2])
            self._front = [choice for *_, choice in found], np.log2([us for us, *_ in found])
        return self._front

    @property
    def best(self) -> Choice | None:
        """The fastest so far."""
        choices, _ = self.front()
        return choices[0] if choices else None

    @property
    def best_us(self) -> float:
        """Infinite before anything has a time."""
        return math.inf if self.best is None else self.us[self.best]


class History:
    """All problems' outcomes; a choice that is told again keeps its last outcome."""

    def __init__(self) -> None:
        self._told: dict[Problem, Told] = {}
        self._broken: dict[Choice, None] = {}
        self._penalties: WeakKeyDictionary[Table, tuple[int, Array]] = WeakKeyDictionary()
        self.timed = 0  # choices with a time, over all problems

    def add(self, problem: Problem, outcomes: Sequence[Outcome]) -> None:
        """Remember outcomes."""
        told = self._told.setdefault(problem, Told(problem))
        for outcome in outcomes:
            choice, ok = outcome.proposal.choice, outcome.status is Status.OK
            self.timed += int(ok) - int(told.us.get(choice, math.inf) < math.inf)
            told.add(choice, outcome.us if ok else math.inf)
            if outcome.status not in CORRECT:
                self._broken[choice] = None

    def of(self, problem: Problem) -> Told:
        """What was told of a problem, perhaps nothing."""
        return self._told.get(problem) or Told(problem)

    def __iter__(self) -> Iterator[Told]:
        return iter(self._told.values())

    def sample(self, times: int, seed: int) -> list[Told]:
        """Problems to learn from: all that have two times or more, or some, drawn by the seed, that
        have `times` together. The order does not depend on that of the telling."""
        listed = [told for told in self if len(told.front()[0]) > 1]
        listed.sort(key=lambda told: str(told.problem))
        if self.timed > times:
            random.Random(seed).shuffle(listed)
        sums = itertools.accumulate((len(told.front()[0]) for told in listed), initial=0)
        return [told for told, before in zip(listed, sums, strict=False) if before < times]

    def broken(self, choice: Choice) -> bool:
        """Whether it failed on any problem."""
        return choice in self._broken

    def penalty(self, rows: Table) -> Array:
        """Doublings of time to add to the rows for what failed, on whatever problem."""
        if not self._broken:
            return np.zeros(len(rows))
        known = self._penalties.get(rows)
        if known is None or known[0] != len(self._broken):
            hot = Table(tuple(self._broken)).hot()
            genes = hot.sum(axis=1)
            shared = rows.hot() @ hot.T
            near = np.minimum(MOST_NEAR, (shared == genes - 1).sum(axis=1))
            of_rows = NEAR_BROKEN * near + BROKEN * (shared == genes).any(axis=1)
            known = self._penalties[rows] = (len(self._broken), of_rows)
        return known[1]

    def neighbours(self, problem: Problem) -> list[Told]:
        """Other problems that have a winner, the most alike first."""
        others = [told for told in self if told.best is not None and told.problem != problem]
        return sorted(others, key=lambda told: (distance(problem, told.problem), str(told.problem)))

    def winners(self, space: Space, problems: int, each: int) -> list[Choice]:
        """Choices of the space that were not told and are the fastest on the most alike problems,
        layout and dtype adapted: first all the best, then the second best."""
        told = self.of(space.problem).us
        near = [
            [adapt_choice(choice, space.problem) for choice in other.front()[0][:each]]
            for other in self.neighbours(space.problem)[:problems]
        ]
        ranked = [ranks[i] for i in range(each) for ranks in near if i < len(ranks)]
        return [c for c in dict.fromkeys(ranked) if c not in told and space.contains(c)]


def distance(a: Problem, b: Problem) -> float:
    """How unlike two problems are: doublings of M, N and K, and a step for the layout."""
    sizes = ((a.m, b.m), (a.n, b.n), (a.k, b.k))
    apart = math.hypot(*(math.log2(x / y) for x, y in sizes))
    return apart + LAYOUT_APART * (a.layout != b.layout)


def adapt_choice(choice: Choice, problem: Problem) -> Choice:
    """The choice with the problem's layout, dtype and epilogue; it may be invalid there."""
    genome = {**choice.genome, "layout": problem.layout, "dtype": problem.dtype}
    return Choice.of(choice.family, computed.compute_also(genome, problem.epilogue))


def draws(seed: int, told: Told) -> random.Random:
    """The randomness of one ask: it follows from the seed and from how much was told, so that a
    resumed search goes on as the first would have."""
    return random.Random(f"{seed} {told.problem} {len(told.us)}")
