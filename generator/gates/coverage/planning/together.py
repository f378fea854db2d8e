"""Problems for what several decisions come to together: `planner` finds each outcome of each
comparison for itself, but a kernel may do as it should for one alone and not for two.

Sizes and places in the grid are cut into cells where any outcome turns as one of them grows. The
cells of all are put together, and of each set of outcomes that a CTA then has and no tested problem
has one problem is kept for the numeric gate. Called by `gate` for kernels of no family.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage.bounds import Bounds
from hgemm_packs.generator.gates.coverage.launches import Launch, Sizes, grid, threads
from hgemm_packs.generator.gates.coverage.problems import (
    deepest,
    extremes,
    make,
    memory,
    ring_of,
    tested,
)
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.machine import MOST_STEPS, Endless
from hgemm_packs.generator.gates.coverage.program.outcomes import Apart
from hgemm_packs.generator.gates.coverage.trial import STEPS, Trial

PARTS: Final = 8  # that a range with a turn is cut into
MOST_TURNS: Final = 12  # of an instruction; what turns oftener goes by turns, and is met anywhere
MOST_CELLS: Final = 32  # of a size, or along a side of a grid
MOST_TOGETHER: Final = 1 << 14  # CTAs that are followed
MOST_BYTES: Final = 1 << 38  # of a problem that some card has room for
THREADS: Final = 1 << 16  # that are followed at a time


class TooMany(RuntimeError):
    """Sizes decide more than can be put together."""


def plan(trial: Trial, planned: Sequence[Sizes]) -> tuple[list[Sizes], list[str]]:
    """Problems beside the planned ones, and in words what a verdict refuses. The trial has the
    faults of what was followed."""
    together = Together(trial)
    try:
        found = together.plan(planned)
    except TooMany as error:
        return [], [str(error)]
    told = [
        f"lane: what no tested problem has in a thread is in '{trial.kernel.instructions[at].text}'"
        for at in together.new_in_lanes([*planned, *found])
    ]
    trial.faults = together.faults | trial.faults
    return found, told


class Cta(NamedTuple):
    """A CTA of a problem, by its place in the grid."""

    sizes: Sizes
    x: int
    y: int


@dataclass(slots=True)
class Together:
    """One kernel: `turns` has the first numbers of all cells but the first, of M, N, K and of the
    place along x and y; `faults` what CTAs touch that they may not, by instruction."""

    trial: Trial
    tested: Sequence[Sizes] = ()
    turns: tuple[set[int], ...] = field(default_factory=lambda: tuple(set() for _ in range(5)))
    faults: dict[int, str] = field(default_factory=dict)

    def plan(self, planned: Sequence[Sizes]) -> list[Sizes]:
        """Problems that have together what neither `planned` nor the tested ones have. Raises
        TooMany."""
        self.tested = tested(self.trial.fields)
        known = [*self.tested, *planned]
        for each in planned:
            for turns, size in zip(self.turns, each[:3], strict=False):
                turns.add(size)
        largest = [max(sizes) for sizes in zip(*(each[:3] for each in known), strict=True)]
        self._cut_sizes(self._usual, largest)
        self._cut_sizes([max(turns, default=8) for turns in self.turns[:3]], largest)
        self._cut_places()
        had = set(self._outcomes([*self._ctas(known)]))
        fresh = sorted(self._all(largest), key=lambda each: memory(self.trial.fields, each))
        ctas = list(self._ctas(fresh))
        if len(ctas) > MOST_TOGETHER:
            raise TooMany(f"untested: sizes decide too much, {len(ctas)} CTAs would tell")
        kept: dict[Sizes, None] = {}
        for cta, outcomes in zip(ctas, self._outcomes(ctas), strict=True):
            if outcomes not in had:
                had.add(outcomes)
                kept[cta.sizes] = None
        return list(kept)

    @property
    def _tile(self) -> tuple[int, int]:
        shape = self.trial.fields["grid"]
        return int(shape["tile_m"]), int(shape["tile_n"])

    @property
    def _usual(self) -> tuple[int, int, int]:
        rows, columns = self._tile
        return 2 * rows + 3, 2 * columns + 8, sum(ring_of(self.trial.fields))

    def _cut_sizes(self, base: Sequence[int], most: Sequence[int]) -> None:
        """Find the turns of each size up to the most, where the others are those of `base`."""
        for dim, largest in enumerate(most):
            step = int(self.trial.fields["dims"]["mnk"[dim]]["multiple_of"])

            def at(value: int, dim: int = dim) -> Cta | None:
                shape = [*base[:dim], value, *base[dim + 1 :]]
                made = [each for each in make(self.trial.fields, [shape]) if each[dim] == value]
                return Cta(made[0], 0, 0) if made else None

            self._cut(dim, step, largest, at)

    def _cut_places(self) -> None:
        """Find the turns of the place in the grid, along each side."""
        for side in (0, 1):
            sides = [(grid(self.trial.fields, each, None)[side], each) for each in self.tested]
            most, sizes = max(sides)

            def at(value: int, sizes: Sizes = sizes, side: int = side) -> Cta:
                return Cta(sizes, *((value, 0) if side == 0 else (0, value)))

            self._cut(3 + side, 1, most - 2, at)

    def _cut(self, dim: int, step: int, largest: int, at: Callable[[int], Cta | None]) -> None:
        """Find the turns of one number up to the largest, in multiples of `step`."""
        known: dict[int, Array] = {}
        due = {1 << i for i in range(largest.bit_length())} | {largest}
        due = {-(-each // step) * step for each in due}
        turns: list[int] = []
        while due:
            asked = {each: at(each) for each in sorted(due - known.keys())}
            there = {value: cta for value, cta in asked.items() if cta is not None}
            found = self._outcomes(list(there.values()))
            known.update(zip(there, (np.frombuffer(x, np.uint8) for x in found), strict=True))
            line = sorted(known)
            differ = np.array([known[low] != known[high] for low, high in itertools.pairwise(line)])
            if not differ.size:
                return
            often = differ.sum(axis=0) > MOST_TURNS
            there_turns = (differ & ~often).any(axis=1)
            turns, due = [], set()
            for (low, high), differs in zip(itertools.pairwise(line), there_turns, strict=True):
                if differs:
                    turns.append(high)
                    part = max((high - low) // step // PARTS, 1) * step
                    due.update(range(low + part, high, part))
        if len(turns) > MOST_CELLS:
            raise TooMany(f"untested: sizes decide too much, one of them has {len(turns)} turns")
        self.turns[dim].update(turns)

    def _all(self, most: Sequence[int]) -> Iterator[Sizes]:
        """A problem of each cell of each size, and grids that have each cell of places."""
        fields, tile, usual = self.trial.fields, self._tile, self._usual
        values = []
        for dim in range(3):
            turns = set(self.turns[dim])
            if dim < len(tile):
                turns |= {(place + 1) * tile[dim] for place in self.turns[3 + dim]}
            begins = sorted({1, *turns})
            ends = [*begins[1:], most[dim] + 1]
            values.append(
                [
                    usual[dim] if begin <= usual[dim] < end else begin
                    for begin, end in zip(begins, ends, strict=True)
                ]
            )
        for each in make(fields, itertools.product(*values)):
            if memory(fields, each) <= MOST_BYTES:
                yield each

    def _ctas(self, problems: Iterable[Sizes]) -> Iterator[Cta]:
        """Of each problem the first and the last CTA, and one of each cell of places."""
        for sizes in problems:
            sides = grid(self.trial.fields, sizes, None)
            along = [
                sorted({0, side - 1, *(place for place in turns if place < side)})
                for side, turns in zip(sides, self.turns[3:], strict=True)
            ]
            for x, y in itertools.product(*along):
                yield Cta(sizes, x, y)

    def _outcomes(self, ctas: Sequence[Cta]) -> list[bytes]:
        """What each instruction that counts comes to in each CTA."""
        found: dict[Cta, bytes] = {}
        at_a_time = max(THREADS // int(self.trial.fields["block"]), 1)
        order = sorted(dict.fromkeys(ctas), key=lambda each: each.sizes.k)
        for first in range(0, len(order), at_a_time):
            some = order[first : first + at_a_time]
            found.update(zip(some, self._follow(some), strict=True))
        return [found[each] for each in ctas]

    def _follow(self, ctas: Sequence[Cta]) -> list[bytes]:
        seen = self._run(ctas)
        had = [seen.get(at) for at in sorted(self.trial.machine.slice.observed)]
        table = [np.zeros(len(ctas), np.uint8) if each is None else each for each in had]
        return [row.tobytes() for row in np.stack(table, axis=1)] if table else [b""] * len(ctas)

    def new_in_lanes(self, planned: Sequence[Sizes]) -> Iterator[int]:
        """Instructions of which a thread has an outcome in the largest problems, or at the deepest
        K, that it has in none of the others: of all threads together both outcomes may be seen
        long before. CTAs of a cell of places are one, but for the first of a side."""
        usual = self._by_thread([*self._ctas([*self.tested, *planned])])
        first = [Cta(each, 0, 0) for each in extremes(self.trial.fields)]
        new = _new(usual, self._by_thread(first))
        # Rings go round in few of the problems that have all cells.
        turned = [*self._deep(max(each.k for each in self.tested))]
        for at, had in self._by_thread([*self._ctas(turned)]).items():
            usual[at] = usual[at] | had if at in usual else had
        for each in self._deep(deepest(self.trial.fields)[0].k):
            new |= _new(usual, self._by_thread([*self._ctas([each])], STEPS))
        yield from sorted(new)

    def _deep(self, depth: int) -> Iterator[Sizes]:
        """Tested problems with another K: of one tile or few, and the longest along each side."""
        sides = [(grid(self.trial.fields, each, None), each) for each in self.tested]
        long = [max(sides, key=lambda x: x[0][side])[1] for side in (0, 1)]
        shapes = [*long, *deepest(self.trial.fields)]
        yield from make(self.trial.fields, [(each.m, each.n, depth) for each in shapes])

    def _by_thread(self, ctas: Sequence[Cta], steps: int = MOST_STEPS) -> dict[int, Array]:
        """The outcomes of each instruction in each thread of each cell of places."""
        along_x, along_y = ([1, *sorted(turns - {0, 1})] for turns in self.turns[3:])
        block = -(-int(self.trial.fields["block"]) // 32) * 32
        found: dict[int, Array] = {}
        at_a_time = max(THREADS // block, 1)
        for first in range(0, len(ctas), at_a_time):
            some = ctas[first : first + at_a_time]
            x = np.searchsorted(along_x, [each.x for each in some], side="right")
            y = np.searchsorted(along_y, [each.y for each in some], side="right")
            place = x * (len(along_y) + 1) + y
            of = (place[:, None] * block + np.arange(block)).ravel()
            count = (len(along_x) + 1) * (len(along_y) + 1) * block
            for at, had in self._run(some, Apart(of, count), steps).items():
                found[at] = found[at] | had if at in found else had
        return found

    def _run(
        self, ctas: Sequence[Cta], apart: Apart | None = None, steps: int = MOST_STEPS
    ) -> dict[int, Array]:
        """The outcomes of each instruction in each CTA, or in each class of threads."""
        trial, machine = self.trial, self.trial.machine
        fields = trial.fields
        laid = [
            Launch(each.sizes, grid(fields, each.sizes, None), [(each.x, each.y)]) for each in ctas
        ]
        who = threads(fields, trial.kernel.params, trial.roles, laid)
        bounds = Bounds(fields, laid, who)
        outcomes, notes = machine.outcomes, machine.notes
        came, notes.came = notes.came, {}
        machine.outcomes = apart = apart or Apart(who.cta, len(ctas))
        with contextlib.suppress(Endless):
            machine.run(who, bounds, steps)
        machine.outcomes, notes.came = outcomes, came
        bounds.settle()
        self.faults = bounds.faults | self.faults
        return apart.had


def _new(usual: dict[int, Array], had: dict[int, Array]) -> set[int]:
    """Instructions of which a thread has an outcome that it had in none of the usual problems."""
    return {at for at, out in had.items() if at in usual and (out & ~usual[at]).any()}
