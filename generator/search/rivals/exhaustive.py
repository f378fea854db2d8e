"""Every listed choice of a problem, in catalogue order: what searches are judged by."""

from __future__ import annotations

from collections.abc import Sequence

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal
from hgemm_packs.generator.search.base import Strategy
from hgemm_packs.problem import Problem


class Exhaustive:
    """Learns nothing and leaves nothing out of the catalogue."""

    name = "exhaustive"

    def __init__(self) -> None:
        self._told: dict[Problem, set[Choice]] = {}

    def ask(self, space: Space, n: int) -> list[Proposal]:
        told = self._told.get(space.problem, set())
        rest = (choice for choice in space.core if choice not in told)
        return [Proposal(choice, self.name) for choice, _ in zip(rest, range(n), strict=False)]

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        told = self._told.setdefault(space.problem, set())
        told.update(outcome.proposal.choice for outcome in outcomes)


def make(seed: int) -> Strategy:
    """The strategy; the seed is not used."""
    return Exhaustive()
