"""Whether copies to a stage come behind all who read it, and reads behind the copies.

Made by `stages` from what threads of a cluster did, one of each warp. They are run once more, in an
order in which each wait blocks, and each knows what it has learnt: of others by meetings and by
arrivals at barriers that it waited for, and how many phases of a barrier are over. A wait that is
over in this order may be over earlier in another: it teaches the least that its parity says.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from hgemm_packs.generator.gates.coverage.watchers.arrivals import Barrier
from hgemm_packs.generator.gates.coverage.watchers.events import (
    ARRIVE,
    COMMIT,
    COPY,
    FILL,
    HALF,
    LEFT,
    LOAD,
    MEET,
    OF_CLUSTER,
    OF_WARP,
    READ,
    UNKNOWN,
    WAIT,
    Event,
)
from hgemm_packs.generator.gates.coverage.watchers.rings import Stage

TAKEN: Final = "stage: copied over what a warp may still read"
EARLY: Final = "stage: read by a warp that does not know of its copies"
STUCK: Final = "stage: nobody is seen to end what is waited for"
WARP: Final = 32
EVENTS: Final = 5_000  # that are looked at of one run, but of one cluster all
_NEVER: Final = 1 << 60
_WHAT: Final = itemgetter(0, 1, 3)

Clock = dict[Hashable, int]  # by thread, how far it is known to be; by barrier, its phases


def _learn(mine: Clock, other: Clock) -> None:
    for key, value in other.items():
        if mine.get(key, 0) < value:
            mine[key] = value


@dataclass(slots=True)
class _Barrier:
    """`over` has what those knew who arrived, by phases that are over; `places` are copied to."""

    count: int
    came: int = 0
    pending: Clock = field(default_factory=dict)
    over: list[Clock] = field(default_factory=list)
    places: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class _Meeting:
    weight: int = 0
    here: set[int] = field(default_factory=set)
    pending: Clock = field(default_factory=dict)
    over: list[Clock] = field(default_factory=list)


@dataclass(slots=True)
class _Thread:
    number: int
    cta: int
    events: Sequence[Event]
    clock: Clock
    at: int = 0
    fresh: set[int] = field(default_factory=set)
    flying: list[set[int]] = field(default_factory=list)
    came: dict[Hashable, int] = field(default_factory=dict)  # to a meeting: which one


@dataclass(slots=True)
class Turns:
    """A cluster: its threads' events, the CTA of each, arrivals that end a barrier's phase, and the
    stages, with the bytes of what a copy brings there."""

    events: Mapping[int, list[Event]]
    cta: Mapping[int, int]
    counts: Mapping[Barrier, int]
    ring: Mapping[int, Stage]
    sizes: Mapping[int, int]
    threads: list[_Thread] = field(default_factory=list)
    barriers: dict[Barrier, _Barrier] = field(default_factory=dict)
    meetings: dict[Hashable, _Meeting] = field(default_factory=dict)
    readers: dict[Barrier, dict[int, int]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)  # by address
    found: str = ""

    def __post_init__(self) -> None:
        self.starts = sorted(self.ring)
        for number, own in self.events.items():
            self.threads.append(_Thread(number, self.cta[number], own, {number: 1}))
            for event in own:
                if event.kind in (COPY, ARRIVE, FILL):
                    for cta in event.ctas:
                        key = cta, event.number
                        if key not in self.barriers:
                            self.barriers[key] = _Barrier(self.counts.get(key, 0))
                        if event.kind == COPY:
                            self.barriers[key].places[event.to] = 0

    def run(self) -> str:
        """The first rule that is broken."""
        moved = True
        while moved and not self.found:
            moved = False
            for thread in self.threads:
                start = thread.at
                for event in itertools.islice(thread.events, start, None):
                    again = event.kind == READ and self.places.get(event.number) in thread.fresh
                    if not again and not self._step(thread, event):
                        break
                    thread.at += 1
                moved |= thread.at > start
        left = (each.events[each.at] for each in self.threads if each.at < len(each.events))
        stuck = next((f"{STUCK} in '{event.ins.text[:60]}'" for event in left), "")
        return self.found or stuck

    def _step(self, thread: _Thread, event: Event) -> bool:
        """Whether a thread gets past what it does next."""
        kind = event.kind
        if kind == READ:
            self._read(thread, event)
        elif kind == LOAD:
            self._load(thread, event)
        elif kind == WAIT:
            return self._wait(thread, event)
        elif kind == COMMIT:
            thread.flying.append(thread.fresh)
            thread.fresh = set()
        elif kind == LEFT:
            self._leave(thread, event.number)
        elif kind == MEET:
            return self._meet(thread, event)
        else:
            for cta in dict.fromkeys(event.ctas):
                self._tell(thread, event, cta)
            thread.clock[thread.number] += 1
        return True

    def _place(self, address: int) -> int:
        place = self.places.get(address)
        if place is None:
            at = bisect_right(self.starts, address)
            place = self.places[address] = self.starts[at - 1] if at else -1
        return place

    def _read(self, thread: _Thread, event: Event) -> None:
        place = self._place(event.number)
        if place < 0 or place in thread.fresh:
            return
        thread.fresh.add(place)
        self.readers.setdefault((thread.cta, place), {})[thread.number] = _NEVER
        self._know(thread, event, place)

    def _load(self, thread: _Thread, event: Event) -> None:
        place = self._place(event.number)
        if place < 0 or event.number >= place + self.sizes.get(place, 0):
            return
        self.readers.setdefault((thread.cta, place), {})[thread.number] = thread.clock[
            thread.number
        ]
        self._know(thread, event, place)

    def _know(self, thread: _Thread, event: Event, place: int) -> None:
        """See to it that a thread knows of the last copies to a place."""
        key = thread.cta, self.ring[place].told
        barrier = self.barriers.get(key)
        if barrier is None or place not in barrier.places:
            return
        if thread.clock.get(key, 0) < max(barrier.places[place], 1):
            self.found = self.found or f"{EARLY} in '{event.ins.text[-60:]}'"

    def _leave(self, thread: _Thread, left: int) -> None:
        done = max(len(thread.flying) - left, 0)
        read = set().union(*thread.flying[:done])
        thread.flying = thread.flying[done:]
        for place in read.difference(thread.fresh, *thread.flying):
            self.readers[thread.cta, place][thread.number] = thread.clock[thread.number]

    def _wait(self, thread: _Thread, event: Event) -> bool:
        key = thread.cta, event.number
        barrier = self.barriers.get(key)
        if barrier is None or event.to == UNKNOWN:
            return True
        phases = thread.clock.get(key, 0)
        phases += (phases - 1 ^ event.to) & 1
        if phases > len(barrier.over):
            return False
        if phases:
            _learn(thread.clock, barrier.over[phases - 1])
        return True

    def _tell(self, thread: _Thread, event: Event, cta: int) -> None:
        """Copy to a stage, or arrive at a barrier."""
        key = cta, event.number
        barrier = self.barriers[key]
        told = [event.to] if event.kind == COPY else []
        if event.kind == FILL:
            told = [place for place, stage in self.ring.items() if stage.told == event.number]
        for place in told:
            for reader, when in self.readers.get((cta, place), {}).items():
                if reader != thread.number and thread.clock.get(reader, 0) < when:
                    self.found = self.found or f"{TAKEN} in '{event.ins.text[:60]}'"
        _learn(barrier.pending, thread.clock)
        if event.kind == COPY:
            barrier.places[event.to] += 1
            is_over = min(barrier.places.values()) > len(barrier.over)
        else:
            barrier.came += event.ctas.count(cta)
            is_over = not barrier.places and barrier.came >= barrier.count > 0
        if is_over:
            barrier.came -= barrier.count
            barrier.pending[key] = len(barrier.over) + 1
            barrier.over.append(dict(barrier.pending))

    def _meet(self, thread: _Thread, event: Event) -> bool:
        warp = thread.number // WARP
        partner = thread.number ^ (WARP - 1)
        if event.number == OF_WARP and (event.to or partner not in self.events):
            return True
        scope: Hashable = (thread.cta, event.number)
        if event.number in (OF_WARP, OF_CLUSTER):
            scope = (warp, OF_WARP) if event.number == OF_WARP else OF_CLUSTER
        meeting = self.meetings.get(scope)
        if meeting is None:
            meeting = self.meetings[scope] = _Meeting()
        words = event.ins.opcode
        waits_alone = event.number == OF_CLUSTER and "wait" in words
        if thread.number not in meeting.here and scope not in thread.came and not waits_alone:
            thread.came[scope] = len(meeting.over)
            meeting.here.add(thread.number)
            _learn(meeting.pending, thread.clock)
            thread.clock[thread.number] += 1
            meeting.weight += HALF if partner in self.events else WARP
        if meeting.here and self._is_met(meeting, event, thread):
            meeting.over.append(meeting.pending)
            meeting.here, meeting.weight, meeting.pending = set(), 0, {}
        if "arrive" in words:
            if event.number != OF_CLUSTER:
                thread.came.pop(scope, None)
            return True
        came = thread.came.get(scope)
        if came is None:
            return True
        if came >= len(meeting.over):
            return False
        _learn(thread.clock, meeting.over[came])
        del thread.came[scope]
        return True

    def _is_met(self, meeting: _Meeting, event: Event, thread: _Thread) -> bool:
        if event.to:
            return meeting.weight >= event.to
        of_warp, of_cluster = event.number == OF_WARP, event.number == OF_CLUSTER
        return all(
            each.number in meeting.here
            for each in self.threads
            if each.at < len(each.events)
            and (of_cluster or each.cta == thread.cta)
            and (not of_warp or each.number // WARP == thread.number // WARP)
        )


def taken(
    events: Mapping[int, list[Event]],
    cta: Mapping[int, int],
    together: int,
    counts: Mapping[Barrier, int],
    ring: Mapping[int, Stage],
    sizes: Mapping[int, int],
) -> Iterator[str]:
    """The rules that clusters break, or CTAs where none tells another: the one that does most, and
    as many of those that do other things as EVENTS allow."""
    if not ring:
        return
    told = ((number, event) for number, own in events.items() for event in own if event.ctas)
    if not any(to != cta[number] for number, event in told for to in event.ctas):
        together = 1
    clusters: dict[int, dict[int, list[Event]]] = {}
    for number, each in events.items():
        clusters.setdefault(cta[number] // together, {})[number] = each
    different = {_done(own, first * together): own for first, own in clusters.items()}
    many = {number: sum(map(len, own.values())) for number, own in different.items()}
    done = 0
    for number in sorted(different, key=lambda number: -many[number]):
        if done and done + many[number] > EVENTS:
            continue
        done += many[number]
        own = different[number]
        words = Turns(own, cta, counts, ring, sizes).run()
        if words:
            yield words


def _done(events: Mapping[int, list[Event]], first: int) -> int:
    """What the threads of a cluster did, but for its place: `first` is its first CTA."""
    begin = min(events)
    return hash(
        tuple(
            (
                number - begin,
                tuple(map(_WHAT, own)),
                tuple(cta - first for event in own if event.ctas for cta in event.ctas),
            )
            for number, own in events.items()
        )
    )
