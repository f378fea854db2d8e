"""The tree of a run: hypotheses as branches, attempts as their leaves, and who is worth more.

Follows from what it is told alone. The orchestrator decides by it; terminal and page draw it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hgemm_packs.generator.agents.words import Attempt, Hypothesis, best
from hgemm_packs.generator.search.bandit import Bandit

#: A step counts as won when it makes the best of all faster by this share.
GAIN = 1.002


@dataclass
class Branch:
    """One hypothesis and what was tried for it. `closed` says why no more is."""

    number: int
    hypothesis: Hypothesis
    attempts: list[Attempt] = field(default_factory=list)
    wins: int = 0
    losses: int = 0
    closed: str = ""
    barren: int = 0  # steps in a row that were no gain to the branch itself

    @property
    def best(self) -> Attempt | None:
        return best(self.attempts)

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None


@dataclass
class Tree:
    """All branches in the order in which they were grown. A branch that has had `patience` steps
    without a gain of its own is closed, and so is one that has nothing left to propose."""

    patience: int = 4
    branches: list[Branch] = field(default_factory=list)

    @property
    def attempts(self) -> list[Attempt]:
        """Every attempt, in the order of rounds and places."""
        found = [each for branch in self.branches for each in branch.attempts]
        return sorted(found, key=lambda each: (each.round, each.place))

    @property
    def best(self) -> Attempt | None:
        return best(self.attempts)

    @property
    def live(self) -> list[Branch]:
        return [branch for branch in self.branches if not branch.closed]

    @property
    def dead_ends(self) -> list[tuple[Hypothesis, str]]:
        return [(branch.hypothesis, branch.closed) for branch in self.branches if branch.closed]

    @property
    def keys(self) -> set[str]:
        """Keys of all candidates that were tried."""
        return {each.key for each in self.attempts if each.key}

    def grow(self, hypotheses: Sequence[Hypothesis]) -> None:
        """New branches."""
        for each in hypotheses:
            self.branches.append(Branch(len(self.branches), each))

    def add(self, number: int, attempts: Sequence[Attempt]) -> None:
        """What one step of a branch came to; nothing means that it has no more to propose."""
        branch, before = self.branches[number], self.best
        own = branch.best
        branch.attempts += attempts
        now = best(attempts)
        won = now is not None and now.score > GAIN * (before.score if before else 0.0)
        gained = now is not None and now.score > GAIN * (own.score if own else 0.0)
        branch.wins += won
        branch.losses += not won
        branch.barren = 0 if gained else branch.barren + 1
        if not attempts:
            branch.closed = self._outcome(branch, "it has nothing left to propose")
        elif branch.barren >= self.patience:
            branch.closed = self._outcome(branch, f"{branch.barren} steps without a gain")

    def _outcome(self, branch: Branch, why: str) -> str:
        top = branch.best
        if top is not None:
            return f"{why}; at best {top.score:.3f}x torch"
        gates = sorted({each.gate or each.status for each in branch.attempts})
        return f"{why}; nothing passed" + (f" ({', '.join(gates)})" if gates else "")

    def choose(self, count: int, rng: random.Random) -> list[Branch]:
        """`count` live branches by Thompson's rule, each at most once; fewer where fewer live. A
        branch without a step comes first: nothing is known of it."""
        live = self.live
        fresh = [branch for branch in live if not branch.attempts][:count]
        arms = {
            str(branch.number): (1.0 + branch.wins, 1.0 + branch.losses)
            for branch in live
            if branch not in fresh
        }
        picked = [branch.number for branch in fresh]
        bandit = Bandit(arms)
        while arms and len(picked) < count:
            arm = bandit.choose("", rng, among=tuple(arms))
            del arms[arm]
            picked.append(int(arm))
        return [self.branches[number] for number in picked]
