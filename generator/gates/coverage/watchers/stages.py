"""Whether wgmma reads a stage that has been waited for, and has read it when it is given back.

Made by `counts` for a run of whole clusters without a GPU. A thread's copies, waits, products and
arrivals are noted as it comes to them. Copies say which bytes a barrier tells of, and the wait
ahead of them which barrier gives those back. How many groups of products may still be in flight
behind a wait, and whose stage a ring's slot is, the tools that see races do not know.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import RANK_BIT, Array
from hgemm_packs.generator.gates.coverage.program.registers import Frame
from hgemm_packs.generator.gates.coverage.watchers.arrivals import barrier_at
from hgemm_packs.generator.gates.coverage.watchers.events import (
    ARRIVE,
    COMMIT,
    COPY,
    FILL,
    LAST_LANE,
    LEFT,
    MEET,
    OF_ONE,
    READ,
    UNKNOWN,
    WAIT,
    Event,
    kind_of,
    numbers_of,
)
from hgemm_packs.generator.gates.coverage.watchers.lanes import WARP
from hgemm_packs.generator.gates.coverage.watchers.rings import (
    Stage,
    find_given,
    find_ring,
    find_ring_of_fills,
)
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

PENDING: Final = "stage: given back with products of it in flight"
UNTOLD: Final = "stage: multiplied before its copies were waited for"
UNREAD: Final = "stage: given back before its copies were waited for"
UNTURNED: Final = "stage: a wait for copies that are over, or never come,"
OVER: Final = "stage: copied over by a thread that has not waited since its copy before"
UNGIVEN: Final = "stage: copied over with no wait for any who read it"
MOST: Final = 16  # groups of products in flight that are told apart


@dataclass(slots=True)
class Stages:
    """A watcher: events of the first thread of each warp, and of the last one those of copying: an
    election may name any, and here names the last. `lane` and `cta` are each thread's."""

    lane: Array
    cta: Array
    together: int = 1
    events: dict[int, list[Event]] = field(default_factory=dict)

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Note what the threads `who` do."""
        kind = kind_of(ins)
        if kind is None:
            return
        if kind in (ARRIVE, FILL):
            self._arrive(kind, ins, who, frame)
            return
        lane = self.lane[who]
        mine = lane == 0 if kind in OF_ONE else (lane == 0) | (lane == LAST_LANE)
        first = np.flatnonzero(mine)
        if not first.size:
            return
        masks = self._masks(ins, who, frame) if kind == COPY else None
        for number, to in numbers_of(ins, kind, frame):
            numbers, tos = (np.broadcast_to(x, who.shape)[first] for x in (number, to))
            for i, thread, each, where in zip(first, who[first], numbers, tos, strict=True):
                ctas = () if masks is None else self._ctas(int(thread), int(masks[i]))
                event = Event(kind, int(each), ins, int(where), ctas)
                self.events.setdefault(int(thread), []).append(event)

    def _masks(self, ins: Instruction, who: Array, frame: Frame) -> Array | None:
        mask = None
        if "multicast::cluster" in ins.opcode:
            mask = frame.value(ins.operands[-1], np.int64)
        return np.broadcast_to(0 if mask is None else mask & 0xFFFF, who.shape)

    def _ctas(self, thread: int, mask: int) -> tuple[int, ...]:
        own = int(self.cta[thread])
        first = own - own % self.together
        return tuple(first + i for i in range(self.together) if mask >> i & 1) or (own,)

    def _arrive(self, kind: int, ins: Instruction, who: Array, frame: Frame) -> None:
        """Note arrivals of all lanes, as of a warp's first thread."""
        address = frame.sum(next(each for each in ins.operands if each.kind == "address"))
        if address is None:
            return
        key = np.broadcast_to(address, who.shape) | (who // WARP) << RANK_BIT + 6
        each, first, times = np.unique(key, return_index=True, return_counts=True)
        told: dict[tuple[int, int], list[int]] = {}
        for one, i, often in zip(each.tolist(), who[first].tolist(), times.tolist(), strict=True):
            thread = i if self.lane[i] == LAST_LANE else i - int(self.lane[i])
            where = one & (1 << RANK_BIT + 6) - 1
            cta, number = barrier_at(int(self.cta[i]), self.together, where)
            told.setdefault((thread, number), []).extend([cta] * often)
        for (thread, number), ctas in told.items():
            event = Event(kind, number, ins, 0, tuple(ctas))
            self.events.setdefault(thread, []).append(event)

    def copied_over(self) -> Iterator[str]:
        """Copies that may go over what is still read, where no ring is known."""
        return itertools.chain.from_iterable(map(_over, self.events.values()))

    def faults(self) -> Iterator[str]:
        """The first rule that a thread breaks, of each thread that does."""
        ring, filled = find_ring(self.events), {}
        if not ring:
            ring = find_ring_of_fills(self.events)
            filled = {stage.told: place for place, stage in ring.items()}
        given = find_given(self.events, ring)
        everyone = [*self.events.values()]
        of_threads = [itertools.chain(_over(each), _broken(each, ring)) for each in everyone]
        came = self._phases()
        turns = (
            _unturned(own, ring, came[int(self.cta[thread])])
            for thread, own in self.events.items()
            if int(self.cta[thread]) in came
        )
        ungiven = (_ungiven(each, filled, given) for each in everyone)
        for told in itertools.chain(of_threads, turns, ungiven):
            yield from itertools.islice(told, 1)

    def _phases(self) -> Mapping[int, Mapping[int, int]]:
        """By CTA and barrier, how often it tells of copies: as often as one goes to one place."""
        copies: dict[int, Counter[tuple[int, int]]] = {}
        for thread, own in self.events.items():
            of = copies.setdefault(int(self.cta[thread]), Counter())
            of.update((event.number, event.to) for event in own if event.kind == COPY)
        found: dict[int, dict[int, int]] = {}
        for cta, of in copies.items():
            each = found.setdefault(cta, {})
            for (barrier, _), times in of.items():
                each[barrier] = max(times, each.get(barrier, 0))
        return found


def _ungiven(
    events: list[Event], filled: Mapping[int, int], given: Mapping[int, set[int]]
) -> Iterator[str]:
    """Copies over a stage by a thread that has waited for nobody who read it since its last copy
    there. Where threads copy, they are seen to when they tell a barrier of a stage that is `filled`
    so, once or twice; and whom they meet are no readers."""
    places = {} if any(event.kind == READ for event in events) else filled
    since: dict[int, set[int]] = {}
    met: set[int] = set()
    last = -1
    for event in events:
        if event.kind == WAIT:
            # The first for phase 1 of a barrier is over at once: nothing has been read yet.
            if event.number in met or event.to in (0, UNKNOWN):
                for waited in since.values():
                    waited.add(event.number)
            met.add(event.number)
        elif event.kind == MEET and not places:
            since.clear()
        elif event.kind in (COPY, FILL, ARRIVE):
            to = event.to if event.kind == COPY else places.get(event.number, -1)
            again = to in since and (event.kind == COPY or to != last)
            if again and to in given and not since[to] & given[to]:
                yield f"{UNGIVEN} in '{event.ins.text[:60]}'"
            since[to], last = set(), to


def _over(events: list[Event]) -> Iterator[str]:
    """Copies over what a thread has had copied, with no wait and no meeting between them."""
    since: set[int] = set()
    for event in events:
        if event.kind in (WAIT, MEET):
            since.clear()
        elif event.kind == COPY:
            if event.to in since:
                yield f"{OVER} in '{event.ins.text[:60]}'"
            since.add(event.to)


def _broken(events: list[Event], ring: Mapping[int, Stage]) -> Iterator[str]:
    """Rules that a thread breaks, with the instruction."""
    starts = np.array(sorted(ring), np.int64)
    waits = {event.number for event in events if event.kind == WAIT}
    every = {stage.told for stage in ring.values()}
    flying: list[set[int]] = []
    fresh: set[int] = set()  # read by products that are not committed
    ready: set[int] = set()  # barriers that were waited for since their stage was given back
    for event in events:
        if event.kind == READ and starts.size:
            at = int(np.searchsorted(starts, event.number, "right")) - 1
            if at < 0:
                continue
            place = int(starts[at])
            fresh.add(place)
            if waits & every and ring[place].told not in ready:
                yield f"{UNTOLD} in '{event.ins.text[-60:]}'"
        elif event.kind == WAIT:
            ready.add(event.number)
        elif event.kind == COMMIT:
            flying, fresh = [*flying, fresh], set()
        elif event.kind == LEFT:
            flying = flying[len(flying) - event.number :] if event.number < len(flying) else flying
        elif event.kind == ARRIVE:
            places = {place for place, stage in ring.items() if stage.back == event.number}
            if places & set().union(fresh, *flying):
                yield f"{PENDING} in '{event.ins.text}'"
            told = {ring[place].told for place in places}
            if told and not told & ready:
                yield f"{UNREAD} in '{event.ins.text}'"
            ready -= told


def _unturned(
    events: list[Event], ring: Mapping[int, Stage], came: Mapping[int, int]
) -> Iterator[str]:
    """Waits for the next copies to a stage that was given back, by a parity that stands for a phase
    behind the last that `came`. A stage that is kept may be waited for again and again."""
    told = {stage.told: stage.back for stage in ring.values() if stage.back is not None}
    phases: dict[int, int] = {}
    given: set[int] = set()
    for event in events:
        if event.kind == ARRIVE:
            given.update(each for each, back in told.items() if back == event.number)
        elif event.kind == WAIT and event.number in told and event.to != UNKNOWN:
            phase = phases.get(event.number, -1)
            phase += event.number in given or event.number not in phases
            phase += (phase ^ event.to) & 1
            given.discard(event.number)
            phases[event.number] = phase
            if phase >= came.get(event.number, phase + 1):
                yield f"{UNTURNED} in '{event.ins.text[:60]}'"
                return
