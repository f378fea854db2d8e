"""The ask/tell interface that every search implements.

A strategy sees many problems: `ask` names one, `tell` says what became of its proposals. What it
learns on one problem it may use on another. A strategy has no files and no clock; its randomness
comes from the seed, and its state follows from what it was told, so that telling a stored history
again restores it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Outcome, Proposal


class Strategy(Protocol):
    """One way to search. Made by a factory `make(seed: int) -> Strategy`."""

    name: str

    def ask(self, space: Space, n: int) -> list[Proposal]:
        """Up to `n` distinct choices of `space` that were not yet told for its problem; fewer only
        when the space is used up."""
        ...

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        """Learn from measured, failed or foreign choices of this problem, in any order; outcomes of
        proposals of other strategies are welcome."""
        ...
