"""What won on another card comes first: its row of the very problem, then its nearest rows.

Made by the CLI for `generate --like`. A row names a kernel that was searched and confirmed, so that
few are tried, and another strategy goes on only where none of them beats torch. Touches no GPU.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hgemm_packs.generator.core.space import admits
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.search import near, transfer
from hgemm_packs.generator.search.base import Strategy
from hgemm_packs.problem import Problem

MOST = 6  # first choices of a problem, a batch with room
DEPENDENT = 3  # kernels for dependent launch, of a problem's row and its nearest


class Named(NamedTuple):
    """The kernels that a row names, for plain and for dependent launch."""

    plain: Choice | None
    dependent: Choice | None


class Like(transfer.Before):
    """Asks for what rows of another card name first."""

    def __init__(self, rows: Mapping[Problem, Named], then: Strategy | None) -> None:
        super().__init__("like", "row", lambda space: self.first_choices(space.problem), then)
        self._rows = rows
        self._alike: defaultdict[tuple[object, ...], list[Problem]] = defaultdict(list)
        known: defaultdict[transfer.Sizes, dict[Choice, None]] = defaultdict(dict)
        for row, named in rows.items():
            self._alike[_kind(row)].append(row)
            if named.plain is not None:
                known[row.m, row.n, row.k][named.plain] = None
        self._known = {sizes: list(choices) for sizes, choices in known.items()}

    def first_choices(self, problem: Problem) -> list[Choice]:
        """What to try first, MOST at most: the kernel of the problem's own row, those of the
        nearest rows of its layout, type and epilogue, made to fit its M, and where these are few,
        what is known of its sizes in any other."""
        found: dict[Choice, None] = {}
        for choice in self._list_plain(problem):
            if admits(choice, problem):
                found[choice] = None
        if len(found) < transfer.FEW:
            moved = transfer.start_choices(self._known, problem)
            found.update(dict.fromkeys(one for one in moved if admits(one, problem)))
        return [*found][:MOST]

    def _list_plain(self, problem: Problem) -> Iterator[Choice]:
        for row in self._nearest(problem):
            plain = self._rows[row].plain
            if plain is not None and row == problem:
                yield plain
            elif plain is not None:
                yield from near.fit(plain, problem.m)

    def dependent_choices(self, problem: Problem) -> list[Choice]:
        """Kernels for dependent launch, DEPENDENT at most: of the problem's own row first."""
        named = (self._rows[row].dependent for row in self._nearest(problem))
        found = dict.fromkeys(one for one in named if one is not None and admits(one, problem))
        return [*found][:DEPENDENT]

    def _nearest(self, problem: Problem) -> list[Problem]:
        """Rows of the same kind, the problem's own and then the nearest first."""

        def distance(row: Problem) -> tuple[float, tuple[object, ...]]:
            return near.distance((row.m, row.n, row.k), problem), row.key[:3]

        return heapq.nsmallest(near.PLACES, self._alike[_kind(problem)], key=distance)


def _kind(problem: Problem) -> tuple[object, ...]:
    """All of a problem but its sizes."""
    return problem.key[3:]
