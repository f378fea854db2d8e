"""Bytes of shared memory with the clock of their last write and of each strand's last read.

Made by `races` for a cluster (as FastTrack has it: Flanagan and Freund, PLDI 2009). What lanes of a
warp do to one another is the business of `lanes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array

#: Besides a strand's own steps, what others may know to be over of it: bytes that its bulk copies
#: or stores from afar brought, those of its other copies, what its products and its bulk stores
#: read, barriers that it made. A strand's clock has a column for each strand of each.
OWN, BROUGHT, FETCHED, MULTIPLYING, STORING, MAKING = range(6)
KINDS: Final = 6


class Groups:
    """Groups of copies, of products or of bulk stores of one strand, by the tick of each."""

    def __init__(self) -> None:
        self.tick = 1
        self.flying: list[int] = []

    def close(self) -> None:
        self.flying.append(self.tick)
        self.tick += 1

    def done(self, left: int) -> int:
        """The last tick that is over where so many groups may be in flight."""
        cut = max(len(self.flying) - left, 0)
        last = self.flying[cut - 1] if cut else 0
        self.flying = self.flying[cut:]
        return last


class Touched:
    """`units` are all that are touched, in order; `warps` says of which warp each strand is."""

    def __init__(self, units: Array, warps: Sequence[int]) -> None:
        self.units = units
        self.count = len(warps)
        of = np.array(warps)
        self.alike = of[:, None] == of[None, :]
        self.writer = np.zeros(units.size, np.int32)  # a column of clocks
        self.written = np.zeros(units.size, np.int32)
        self.read = np.zeros((KINDS * self.count, units.size), np.int32)
        self.readers: set[int] = set()  # rows of it that have something

    def at(self, places: Array) -> Array:
        """Where places are among the units."""
        return np.searchsorted(self.units, places)

    def reads(self, number: int, clock: Array, units: Array, column: int, tick: int) -> bool:
        """Note that a strand reads, which others know to be over by the tick in a column; whether
        it knows all that was written there."""
        self.readers.add(column)
        self.read[column, units] = tick
        return self._knows_writers(number, clock, units, OWN)

    def writes(self, number: int, clock: Array, units: Array, of: int, tick: int) -> bool:
        """The same of a write, which is to come behind all reads too."""
        known = self._knows_writers(number, clock, units, of)
        rows = np.array(sorted(self.readers), np.int64)
        rows = rows[~self._is_alike(number, rows)]
        if rows.size and (self.read[np.ix_(rows, units)] > clock[rows][:, None]).any():
            known = False
        self.writer[units] = of * self.count + number
        self.written[units] = tick
        return known

    def _is_alike(self, number: int, columns: Array) -> Array:
        """Which columns are own steps of the strand's warp."""
        alike: Array = (columns < self.count) & self.alike[number][columns % self.count]
        return alike

    def _knows_writers(self, number: int, clock: Array, units: Array, of: int) -> bool:
        writer = self.writer[units]
        late = clock[writer] < self.written[units]
        if not late.any():
            return True
        by = writer[late]
        excused = self._is_alike(number, by)
        if of == BROUGHT:  # copies of several CTAs may bring the same rows of an operand
            excused |= (by // self.count == BROUGHT) & (by % self.count != number)
        return bool(excused.all())
