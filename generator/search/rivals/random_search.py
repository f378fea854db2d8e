"""Random search: the choices of a space in an order drawn once a problem. The baseline that any
search must beat; it learns nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal
from hgemm_packs.problem import Problem


class RandomSearch:
    """Uniform over `Space.core`, without repeats."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._left: dict[Problem, Iterator[Choice]] = {}
        self._told: dict[Problem, set[Choice]] = {}

    def ask(self, space: Space, n: int) -> list[Proposal]:
        if space.problem not in self._left:
            rng = random.Random(f"{self._seed} {space.problem}")
            self._left[space.problem] = iter(rng.sample(space.core, len(space.core)))
        told = self._told.get(space.problem, set())
        found: list[Proposal] = []
        for choice in self._left[space.problem] if n > 0 else ():
            if choice not in told:
                found.append(Proposal(choice, self.name))
                if len(found) == n:
                    break
        return found

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        told = self._told.setdefault(space.problem, set())
        told.update(outcome.proposal.choice for outcome in outcomes)


def make(seed: int) -> RandomSearch:
    """A random search; the same seed draws the same order."""
    return RandomSearch(seed)
