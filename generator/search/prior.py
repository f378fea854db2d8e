"""The analytic prior: what the roofline says of a space's choices, ranked.

Every search of ours starts from it. As a strategy of its own it proposes the catalogue in its order
and learns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal
from hgemm_packs.generator.search.analytic.features import Array, Places, Table
from hgemm_packs.generator.search.analytic.roofline import Terms, terms
from hgemm_packs.generator.search.history import History, Told
from hgemm_packs.problem import Problem


class Rows:
    """Choices on a problem, a row each: as numbers, and as the prior judges them."""

    def __init__(self, choices: Sequence[Choice], problem: Problem) -> None:
        self.problem = problem
        self.table = Table(choices)
        self.terms: Terms = terms(self.table, problem)
        self.prior: Array = np.log2(self.terms.total)
        self.row = {choice: i for i, choice in enumerate(self.table.choices)}

    @property
    def choices(self) -> tuple[Choice, ...]:
        return self.table.choices

    def open(self, told: Told) -> NDArray[np.bool_]:
        """Which rows were not told."""
        mask = np.ones(len(self.choices), dtype=bool)
        mask[[self.row[choice] for choice in told.us if choice in self.row]] = False
        return mask


_rows: WeakKeyDictionary[Space, Rows] = WeakKeyDictionary()


def rows_of(space: Space) -> Rows:
    """The space's core, judged once."""
    if space not in _rows:
        _rows[space] = Rows(space.core, space.problem)
    return _rows[space]


def estimate_us(space: Space) -> Array:
    """The prior's time in us of each choice of the core."""
    return rows_of(space).terms.total


def rank(space: Space) -> Places:
    """Rows of the core, the fastest by the prior first."""
    return np.argsort(rows_of(space).prior, kind="stable")


class Prior:
    """The core in the prior's order, what failed elsewhere last."""

    name = "prior"

    def __init__(self) -> None:
        self._history = History()

    def ask(self, space: Space, n: int) -> list[Proposal]:
        rows = rows_of(space)
        score = rows.prior + self._history.penalty(rows.table)
        open_rows = np.flatnonzero(rows.open(self._history.of(space.problem)))
        first = open_rows[np.argsort(score[open_rows], kind="stable")][:n]
        return [Proposal(rows.choices[i], self.name, "prior") for i in first]

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        self._history.add(space.problem, outcomes)


def make(seed: int) -> Prior:
    """The strategy; the seed is not used."""
    return Prior()
