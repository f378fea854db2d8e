"""Whether any two threads of a cluster touch the same bytes of shared memory with nothing that
orders them, one of them writing.

Made by `clusters` of the strands of one, which are run once more in an order in which each wait
blocks. Each strand has a clock: how far it knows every strand to be, and what it
knows to be over of each one's copies, products and bulk stores. A wait that is over here may be
over earlier elsewhere: it teaches the least that its parity says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.watchers.arrivals import Barrier, barrier_at
from hgemm_packs.generator.gates.coverage.watchers.meetings import Meetings
from hgemm_packs.generator.gates.coverage.watchers.strands import (
    ARRIVE,
    COPIED,
    COPIES,
    COPY,
    FENCE,
    FETCH,
    FILL,
    LOOK,
    MAKE,
    MEET,
    MULTIPLIED,
    MULTIPLY,
    OF_CLUSTER,
    OF_WARP,
    PASS,
    PRODUCTS,
    READ,
    SEND,
    STORE,
    STORED,
    STORES,
    UNKNOWN,
    WAIT,
    WRITE,
    Act,
    Strand,
    Touch,
    regions,
    targets_of,
)
from hgemm_packs.generator.gates.coverage.watchers.touched import (
    BROUGHT,
    FETCHED,
    KINDS,
    MAKING,
    MULTIPLYING,
    OWN,
    STORING,
    Groups,
    Touched,
)

READS: Final = "race: nothing orders a read behind what another thread writes"
WRITES: Final = "race: nothing orders a write behind what another thread reads or writes"
STUCK: Final = "race: nobody is seen to end what is waited for"
UNENDED: Final = "race: a CTA ends before it knows of all that is brought to it"
UNMADE: Final = "race: a barrier may not have been made yet"
UNREAD: Final = "race: a CTA ends while a bulk store may still read"
NO_SUCH: Final = "race: a CTA has 16 barriers to meet at, and another is named"
MEETINGS: Final = 16  # of a CTA


@dataclass(slots=True)
class _Barrier:
    count: int
    came: int = 0
    bytes_: int = 0
    pending: Array | None = None
    over: list[Array] = field(default_factory=list)


class Races:
    """One cluster: its strands, and how many arrivals end a phase of each barrier."""

    def __init__(
        self, strands: Sequence[Strand], counts: Mapping[Barrier, int], together: int
    ) -> None:
        self.strands, self.together = strands, together
        self.count = count = len(strands)
        acts = [(each, act) for each in strands for act in each.acts if act.kind in _TELLING]
        named = {
            key for each, act in acts for key in (self._key(each, act), *self._told(each, act))
        }
        self.column = {key: KINDS * count + i for i, key in enumerate(sorted(named))}
        self.clocks = np.zeros((count, KINDS * count + len(named)), np.int32)
        self.clocks[range(count), range(count)] = 1
        self.seen = np.zeros_like(self.clocks)  # what a wait has shown, and no fence acquired yet
        self.barriers = {key: _Barrier(counts.get(key, 0)) for key in named}
        self.at = [0] * count
        self.meetings = Meetings(strands, self.clocks, self._goes_on)
        self.groups = [{kind: Groups() for kind in range(1, KINDS)} for _ in strands]
        warps = np.array([each.warp for each in strands])
        self.first = [int(np.argmax(warps == warp)) for warp in warps]
        self.made: dict[Barrier, tuple[int, int]] = {}  # by whom, and a tick of theirs
        self.bytes_ = Touched(self._used(), warps.tolist())
        self.found: tuple[int, str] | None = None

    def _key(self, strand: Strand, act: Act) -> Barrier:
        return barrier_at(strand.cta, self.together, act.numbers[0])

    def _used(self) -> Array:
        """All places that are touched, in order."""
        every = [t.places for s in self.strands for some in s.touched.values() for t in some]
        for strand in self.strands:
            for act in strand.acts:
                every += regions(strand.cta, self.together, act)
        return np.unique(np.concatenate(every)) if every else np.zeros(0, np.int64)

    def run(self) -> tuple[int, str] | None:
        """The first race: the instruction and words."""
        moved = True
        while moved and not self.found:
            moved = False
            for number, strand in enumerate(self.strands):
                while self.at[number] <= len(strand.acts) and not self.found:
                    at = self.at[number]
                    for touch in strand.touched.pop(at, ()):
                        self._touch(number, touch)
                    if at == len(strand.acts):
                        self.at[number] += 1
                        moved = True
                        break
                    if not self._step(number, strand, strand.acts[at]):
                        break
                    self.at[number] += 1
                    moved = True
        left = (s.acts[at] for s, at in zip(self.strands, self.at, strict=True) if at < len(s.acts))
        stuck = next(((act.ins.index, STUCK) for act in left), None)
        return self.found or stuck or self._unended()

    def _unended(self) -> tuple[int, str] | None:
        """An instruction that brings what is still under way when its CTA ends, or so recently that
        no thread there has waited for it; or a bulk store that nobody waited for."""
        for number, strand in enumerate(self.strands):
            for act in strand.acts:
                if act.kind == STORE and not self._is_read(number):
                    return act.ins.index, UNREAD
                if act.kind in (COPY, SEND, PASS):
                    for cta, at in self._told(strand, act):
                        barrier, column = self.barriers[cta, at], self.column[cta, at]
                        own = [i for i, each in enumerate(self.strands) if each.cta == cta]
                        known = int(self.clocks[own, column].max()) if own else 0
                        if known < len(barrier.over) or barrier.bytes_:
                            return act.ins.index, UNENDED
        return None

    def _is_read(self, number: int) -> bool:
        """Whether all bulk stores of a strand are known to have read what they store."""
        acts = self.strands[number].acts
        last = next(act for act in reversed(acts) if act.kind in (STORE, STORES))
        tick = self.groups[number][STORING].tick - (last.kind == STORES)
        return bool(self.clocks[number, self._column(number, STORING)] >= tick)

    def _is_made(self, number: int, key: Barrier) -> bool:
        """Whether a strand knows of a barrier that it was made; lanes of a warp are not told
        apart."""
        if key not in self.made:
            return False
        by, tick = self.made[key]
        is_own = self.first[by] == self.first[number]
        return is_own or bool(self.clocks[number, self._column(by, MAKING)] >= tick)

    def _told(self, strand: Strand, act: Act) -> list[Barrier]:
        """The barriers that an act tells."""
        if act.kind == COPY:
            return targets_of(strand.cta, self.together, act)
        return [self._key(strand, act)]

    def _touch(self, number: int, touch: Touch) -> None:
        units = self.bytes_.at(touch.places)
        if touch.kind == READ:
            self._read(number, touch.ins, units, number, self.clocks[number, number])
        elif touch.kind == WRITE:
            self._write(number, touch.ins, units, OWN, self.clocks[number, number])
        else:
            of = FETCHED if touch.kind == FETCH else BROUGHT
            self._write(number, touch.ins, units, of, self.groups[number][of].tick)

    def _read(self, number: int, ins: int, units: Array, column: int, tick: int) -> None:
        if not self.bytes_.reads(number, self.clocks[number], units, column, tick):
            self.found = self.found or (ins, READS)

    def _write(self, number: int, ins: int, units: Array, of: int, tick: int) -> None:
        if not self.bytes_.writes(number, self.clocks[number], units, of, tick):
            self.found = self.found or (ins, WRITES)

    def _column(self, number: int, of: int) -> int:
        """Where clocks have what is over of a strand; of a warp, which multiplies as one, the first
        strand has all products."""
        return of * self.count + (self.first[number] if of == MULTIPLYING else number)

    def _step(self, number: int, strand: Strand, act: Act) -> bool:
        """Whether a strand gets past what it does next."""
        kind, numbers, own = act.kind, act.numbers, self.groups[number]
        at = act.ins.index
        if kind == MAKE:
            self.made[self._key(strand, act)] = number, own[MAKING].tick
            self.clocks[number, self._column(number, MAKING)] = own[MAKING].tick
            own[MAKING].close()
            return True
        if kind in _TELLING and not all(self._is_made(number, x) for x in self._told(strand, act)):
            self.found = at, UNMADE
            return True
        if kind in (WAIT, LOOK):
            return self._wait(number, strand, act)
        if kind == FENCE:
            if not numbers[0] or self.together == 1:
                np.maximum(self.clocks[number], self.seen[number], out=self.clocks[number])
            return True
        if kind == MEET and not 0 <= numbers[0] < MEETINGS:
            self.found = at, NO_SUCH
            return True
        if kind in (MEET, OF_WARP, OF_CLUSTER):
            return self.meetings.pass_by(number, act)
        if kind in _COLLECTIVE and not self.meetings.do_as_one(number):
            return False
        places = [self.bytes_.at(each) for each in regions(strand.cta, self.together, act)]
        if kind in (MULTIPLY, STORE):
            of = MULTIPLYING if kind == MULTIPLY else STORING
            for units in places:
                self._read(number, at, units, self._column(number, of), own[of].tick)
        elif kind in (PRODUCTS, STORES, COPIES):
            own[_OF[kind]].close()
        elif kind in (MULTIPLIED, STORED, COPIED):
            of, column = _OF[kind], self._column(number, _OF[kind])
            if numbers[0] == UNKNOWN:  # those of no group as well
                own[of].close()
            last = own[of].done(max(numbers[0], 0))
            self.clocks[number, column] = max(self.clocks[number, column], last)
        else:
            self._bring(number, strand, act, places)
        return True

    def _bring(self, number: int, strand: Strand, act: Act, places: list[Array]) -> None:
        """Arrive at a barrier, or have it told of bytes."""
        kind, numbers, own = act.kind, act.numbers, self.groups[number]
        at, told = act.ins.index, self.clocks[number].copy()
        arrivals = bytes_ = 0
        if kind == ARRIVE:
            arrivals, bytes_ = numbers[2] * strand.weight, numbers[1] * strand.weight
            if not numbers[2]:
                told[:] = 0
        elif kind == FILL:
            arrivals = numbers[2] * strand.weight
            own[FETCHED].close()
            told[self._column(number, FETCHED)] = own[FETCHED].tick - 1
        else:
            tick = own[BROUGHT].tick
            told[:] = 0
            told[self._column(number, BROUGHT)] = tick
            bytes_ = -numbers[1] * (strand.weight if kind == SEND else 1)
            if kind == PASS:
                source = self._column(number, STORING)
                self._read(number, at, places.pop(0), source, own[STORING].tick)
            for units in places:
                self._write(number, at, units, BROUGHT, tick)
            own[BROUGHT].close()
        for key in self._told(strand, act):
            barrier = self.barriers[key]
            if barrier.pending is None:
                barrier.pending = told.copy()
            else:
                np.maximum(barrier.pending, told, out=barrier.pending)
            barrier.came += arrivals
            barrier.bytes_ += bytes_
            if barrier.came >= barrier.count > 0 and not barrier.bytes_:
                barrier.came -= barrier.count
                barrier.pending[self.column[key]] = len(barrier.over) + 1
                barrier.over.append(barrier.pending.copy())
        if kind in (ARRIVE, FILL):
            self.clocks[number, number] += 1

    def _wait(self, number: int, strand: Strand, act: Act) -> bool:
        key = self._key(strand, act)
        barrier = self.barriers[key]
        if act.numbers[1] == UNKNOWN:
            return True
        clock = self.clocks[number]
        phases = int(clock[self.column[key]])
        phases += (phases - 1 ^ act.numbers[1]) & 1
        if phases > len(barrier.over):
            return False
        if phases:
            learns = clock if act.kind == WAIT else self.seen[number]
            np.maximum(learns, barrier.over[phases - 1], out=learns)
            clock[self.column[key]] = max(clock[self.column[key]], phases)
        return True

    def _goes_on(self, number: int) -> bool:
        return self.at[number] < len(self.strands[number].acts)


_COLLECTIVE: Final = frozenset((MULTIPLY, PRODUCTS, MULTIPLIED))
_TELLING: Final = frozenset((ARRIVE, FILL, WAIT, LOOK, COPY, SEND, PASS))
_OF: Final = {
    PRODUCTS: MULTIPLYING,
    MULTIPLIED: MULTIPLYING,
    STORES: STORING,
    STORED: STORING,
    COPIES: FETCHED,
    COPIED: FETCHED,
}
