"""A rival that learns on each problem by itself, as CMA-ES and TPE do.

What a search of one problem is, its module says; here is what a strategy is asked and told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal, Status
from hgemm_packs.generator.search.rivals.lattice import Lattice, generator, lattice_of
from hgemm_packs.problem import Problem


class ProblemSearch(Protocol):
    """The search of one problem."""

    def ask(self, n: int) -> list[Choice]:
        """At most `n` choices that were not asked before."""

    def tell(self, choice: Choice, log_us: float | None) -> None:
        """The value of a choice, None for a failure."""

    def learn(self) -> None:
        """What was told is all for now."""


class ByProblem:
    """A strategy of independent searches, each with random numbers of its own."""

    def __init__(
        self, name: str, seed: int, start: Callable[[Lattice, np.random.Generator], ProblemSearch]
    ) -> None:
        self.name = name
        self._seed, self._start = seed, start
        self._searches: dict[Problem, ProblemSearch] = {}

    def _search(self, space: Space) -> ProblemSearch:
        if space.problem not in self._searches:
            rng = generator(self._seed, space.problem)
            self._searches[space.problem] = self._start(lattice_of(space), rng)
        return self._searches[space.problem]

    def ask(self, space: Space, n: int) -> list[Proposal]:
        return [Proposal(choice, self.name) for choice in self._search(space).ask(n)]

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        search = self._search(space)
        for outcome in outcomes:
            worked = outcome.status is Status.OK
            search.tell(outcome.proposal.choice, math.log(outcome.us) if worked else None)
        search.learn()
