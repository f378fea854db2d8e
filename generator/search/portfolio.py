"""The default search: all sources propose, the cost model screens, a bandit shares out the budget.

A problem's first batch holds what won on similar problems and what the prior likes, spread out.
From then on each place goes to a source that has been improving problems: the cost model over the
catalogue, children of the islands, draws from the policy, winners of similar problems.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal
from hgemm_packs.generator.families import family
from hgemm_packs.generator.search.bandit import Bandit
from hgemm_packs.generator.search.cost import ChoicePool, CostModel
from hgemm_packs.generator.search.history import Told, draws
from hgemm_packs.generator.search.islands import Islands
from hgemm_packs.generator.search.policy import Policy
from hgemm_packs.generator.search.prior import rows_of
from hgemm_packs.generator.search.variation import neighbours

#: Wins and losses that each source starts with.
SOURCES = {"cost": (3.0, 6.0), "islands": (1.0, 3.0), "policy": (1.0, 3.0), "winners": (1.0, 3.0)}
FIRST_WINNERS = 8  # one place in so many of a problem's first batch is for a winner nearby
SCREENED_FOR_ONE = 10  # children and draws that are judged for one that is measured
POLICY_LEAST = 100  # times before the policy is fitted
POLICY_GROWTH = 1.5  # times as many as at the last fit call for the next


class Portfolio:
    """All of this package behind one ask."""

    name = "portfolio"

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._islands = Islands(seed)
        self._history = self._islands.history
        self._model = CostModel(seed)
        self.policy = Policy()
        self._policy_knows = 0
        self.sources = Bandit(SOURCES)

    def ask(self, space: Space, n: int) -> list[Proposal]:
        self._learn()
        told = self._history.of(space.problem)
        rng = draws(self._seed, told)
        places = self._places(space, told, n, rng)
        offers = self._offers(space, Counter(places), rng)
        found: list[Proposal] = []
        others = [offer.choice for offered in offers.values() for offer in offered]
        field = ChoicePool(self._model, self._history, space, [*others, *_beyond(space, told)])
        for source in places:
            offered = {
                offer.choice: offer
                for offer in offers.get(source, ())
                if offer.choice in field and not self._history.broken(offer.choice)
            }
            choice = field.pick_promising(tuple(offered))
            if choice is None:
                break
            field.take(choice)
            found.append(offered.get(choice) or Proposal(choice, self.name, "cost"))
        return found

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        before = self._history.of(space.problem).best_us
        self._islands.tell(space, outcomes)
        for outcome in outcomes:
            if outcome.proposal.proposer == self.name and before < math.inf:
                self.sources.reward("", _source(outcome.proposal), outcome.us < before)

    def _learn(self) -> None:
        self._model.refit(self._history)
        if self._history.timed >= max(POLICY_LEAST, POLICY_GROWTH * self._policy_knows):
            self._policy_knows = self._history.timed
            self.policy.fit(self._history, self._seed)

    def _places(self, space: Space, told: Told, n: int, rng: random.Random) -> list[str]:
        """A source for each of `n` places."""
        if not told.us:
            nearby = -(-n // FIRST_WINNERS)
            return ["winners"] * nearby + ["cost"] * (n - nearby)
        if n > len(space.core) - len(told.us):  # the rest of the space is outside the catalogue
            return ["islands"] * n
        return [self.sources.choose("", rng) for _ in range(n)]

    def _offers(
        self, space: Space, places: Counter[str], rng: random.Random
    ) -> dict[str, list[Proposal]]:
        """What each source but the cost model proposes for its places."""
        told = self._history.of(space.problem)
        offers: dict[str, list[Proposal]] = {}
        if places["islands"]:
            count = SCREENED_FOR_ONE * places["islands"]
            children = itertools.islice(self._islands.children(space, rng), count)
            offers["islands"] = [
                Proposal(child.choice, self.name, child.operator, child.parents)
                for child in children
            ]
        if places["policy"]:
            rows, draw = rows_of(space), np.random.default_rng(rng.getrandbits(64))
            count = SCREENED_FOR_ONE * places["policy"]
            drawn = self.policy.sample(rows, rows.open(told), count, draw)
            offers["policy"] = [Proposal(rows.choices[i], self.name, "policy") for i in drawn]
        if places["winners"]:
            near = self._history.winners(space, problems=places["winners"], each=1)
            offers["winners"] = [Proposal(choice, self.name, "winners") for choice in near]
        return offers


def _source(proposal: Proposal) -> str:
    """Which source an own proposal is from; the islands' are named after their moves."""
    return proposal.operator if proposal.operator in SOURCES else "islands"


def _beyond(space: Space, told: Told) -> list[Choice]:
    """Members one step from the best choice, that the catalogue may not list."""
    if told.best is None or not space.beyond:
        return []
    f = family(told.best.family)
    steps = (Choice.of(f.name, genome) for genome in neighbours(f, told.best.genome))
    return [choice for choice in steps if space.contains(choice)]


def make(seed: int) -> Portfolio:
    """The default search, with nothing learnt yet but the prior's constants."""
    return Portfolio(seed)
