"""Whether wgmma reads a stage that has been waited for, and has read it when it is given back.

Made by `counts` for a run of whole clusters without a GPU. A thread's copies, waits, products and
arrivals are noted as it comes to them. Copies say which bytes a barrier tells of, and the wait
ahead of them which barrier gives those back. How many groups of products may still be in flight
behind a wait, and whose stage a ring's slot is, the tools that see races do not know.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.registers import Frame
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Kernel, Operand

LAST_LANE: Final = 31
#: Bits of an address in shared memory that a descriptor keeps, and of those that it leaves out.
KEPT, UNIT = 14, 4
WITHIN: Final = (1 << KEPT + UNIT) - 1
COPY, WAIT, READ, COMMIT, LEFT, ARRIVE, MEET, FILL = range(8)
PENDING: Final = "stage: given back with products of it in flight"
UNTOLD: Final = "stage: multiplied before its copies were waited for"
UNREAD: Final = "stage: given back before its copies were waited for"
OVER: Final = "stage: copied over by a thread that has not waited since its copy before"
UNGIVEN: Final = "stage: copied over with no wait for any who read it"
MOST: Final = 16  # groups of products in flight that are told apart
_NOTHING: Final = (Operand("number"),)


#: What a warp does as one, or its first thread.
_OF_ONE: Final = frozenset((READ, COMMIT, LEFT, ARRIVE, FILL))


class Event(NamedTuple):
    """What a thread does: `number` is a barrier, the beginning of what is read, or groups that may
    be in flight; `to` where a copy goes, or the parity of the phase that is waited for."""

    kind: int
    number: int
    ins: Instruction
    to: int = 0


def watched(ins: Instruction) -> Iterable[Operand]:
    """Operands that say what a thread does to a stage."""
    kind = _kind(ins)
    return () if kind is None else (*ins.operands, *_NOTHING)


def _kind(ins: Instruction) -> int | None:
    name, words = ins.opcode[0], ins.opcode[1:]
    if name == "wgmma":
        return {"mma_async": READ, "commit_group": COMMIT, "wait_group": LEFT}.get(words[0])
    if name == "mbarrier":
        if words[0] in ("try_wait", "test_wait"):
            return WAIT
        return ARRIVE if words[0] == "arrive" and "expect_tx" not in words else None
    if name in ("bar", "barrier"):
        return MEET
    if name == "cp" and words[:3] == ("async", "mbarrier", "arrive"):
        return FILL
    is_copy = name == "cp" and "bulk" in words and "global" in words
    return COPY if is_copy and any(each.startswith("mbarrier") for each in words) else None


@dataclass(slots=True)
class Stages:
    """A watcher: events of the first thread of each warp, and of the last one those of copying: an
    election may name any, and here names the last. `lane` is each thread's."""

    lane: Array
    events: dict[int, list[Event]] = field(default_factory=dict)

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Note what the threads `who` do."""
        kind = _kind(ins)
        if kind is None:
            return
        lane = self.lane[who]
        mine = lane == 0 if kind in _OF_ONE else (lane == 0) | (lane == LAST_LANE)
        first = np.flatnonzero(mine)
        if not first.size:
            return
        for number, to in _numbers(ins, kind, frame):
            numbers, tos = (np.broadcast_to(x, who.shape)[first] for x in (number, to))
            for thread, each, where in zip(who[first], numbers, tos, strict=True):
                event = Event(kind, int(each), ins, int(where))
                self.events.setdefault(int(thread), []).append(event)

    def copied_over(self) -> Iterator[str]:
        """Copies that may go over what is still read, where no ring is known."""
        return itertools.chain.from_iterable(map(_over, self.events.values()))

    def faults(self) -> Iterator[str]:
        """The first rule that a thread breaks, of each thread that does."""
        ring, filled = _ring(self.events), {}
        if not ring:
            ring = _ring_of_fills(self.events)
            filled = {stage.told: place for place, stage in ring.items()}
        given = _given(self.events, ring)
        everyone = [*self.events.values()]
        of_threads = [itertools.chain(_over(each), _broken(each, ring)) for each in everyone]
        for told in (*of_threads, *(_ungiven(each, filled, given) for each in everyone)):
            yield from itertools.islice(told, 1)


def _numbers(ins: Instruction, kind: int, frame: Frame) -> Iterator[tuple[Any, Any]]:
    """The numbers of an instruction's events, with where they go; none where they are not known."""
    nowhere = np.array([0], np.int64)
    if kind == READ:
        for operand in ins.operands[1:3]:
            value = frame.value(operand, np.int64) if operand.kind == "register" else None
            if value is not None:
                yield (value & (1 << KEPT) - 1) << UNIT, nowhere
        return
    if kind in (COMMIT, LEFT, MEET):
        count = ins.operands[0].value if kind == LEFT else 0
        yield np.array([count], np.int64), nowhere
        return
    addresses = [frame.sum(each) for each in ins.operands if each.kind == "address"]
    if addresses and addresses[-1] is not None:
        of_wait = frame.value(ins.operands[-1], np.int64) if "parity" in ins.opcode else None
        to = of_wait if kind == WAIT else addresses[0]
        yield addresses[-1] & (1 << 20) - 1, (nowhere if to is None else to) & WITHIN


class Stage(NamedTuple):
    """The barriers that tell of a stage, and that it is given back by, None where nobody knows."""

    told: int
    back: int | None


def _ring(events: Mapping[int, list[Event]]) -> dict[int, Stage]:
    """Stages by where they begin. What a thread waits for right ahead of a copy gives the place of
    the copy back; where it waits once for several, what it waited for last, but for the first copy
    to a place, ahead of which nobody need wait."""
    told: dict[int, set[int]] = {}
    right: dict[int, set[int]] = {}
    last: dict[int, set[int]] = {}
    for own in events.values():
        waited, is_fresh = -1, False
        seen: set[int] = set()
        for event in own:
            if event.kind == WAIT:
                waited, is_fresh = event.number, True
            elif event.kind == COPY:
                told.setdefault(event.to, set()).add(event.number)
                if is_fresh:
                    right.setdefault(event.to, set()).add(waited)
                elif event.to in seen:
                    last.setdefault(event.to, set()).add(waited)
                seen.add(event.to)
                is_fresh = False
    found = {}
    for place, barriers in told.items():
        ahead = right.get(place) or last.get(place, set())
        known = next(iter(ahead)) if len(ahead) == 1 and ahead != {-1} else None
        if len(barriers) == 1:
            found[place] = Stage(next(iter(barriers)), known)
    return found


def _ring_of_fills(events: Mapping[int, list[Event]]) -> dict[int, Stage]:
    """Stages of a kernel whose threads copy and tell a barrier of it, by the first place that is
    read behind a wait for that barrier. Such a thread goes round its barriers in one order: the
    first that it tells goes with the first that it waits for."""
    back: dict[int, set[int]] = {}
    first: dict[int, int] = {}
    fills: set[int] = set()
    for own in events.values():
        waited = -1
        orders: tuple[dict[int, None], dict[int, None]] = {}, {}  # told of, and waited for
        for event in own:
            if event.kind == WAIT:
                waited = event.number
                orders[1][waited] = None
            elif event.kind in (FILL, ARRIVE):
                orders[0][event.number] = None
            elif event.kind == READ and waited >= 0:
                first[waited] = min(event.number, first.get(waited, event.number))
        if not any(event.kind == READ for event in own):
            fills.update(orders[0])
            for told, ahead in zip(*orders, strict=False):
                back.setdefault(told, set()).add(ahead)
    found = {}
    for told, place in first.items() if fills else ():
        known = back.get(told, set())
        found[place] = Stage(told, next(iter(known)) if len(known) == 1 else None)
    return found


def _given(events: Mapping[int, list[Event]], ring: Mapping[int, Stage]) -> dict[int, set[int]]:
    """By stage, the barriers at which those arrive who have read it, before they wait for its next
    copies."""
    starts = np.array(sorted(ring), np.int64)
    given: dict[int, set[int]] = {}
    for own in events.values():
        read: set[int] = set()
        for event in own:
            if event.kind == READ and starts.size:
                at = int(np.searchsorted(starts, event.number, "right")) - 1
                read.update([int(starts[at])] if at >= 0 else ())
            elif event.kind == WAIT:
                read = {place for place in read if ring[place].told != event.number}
            elif event.kind == ARRIVE:
                for place in read:
                    given.setdefault(place, set()).add(event.number)
    return given


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
            if event.number in met or event.to == 0:
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


def faults_on_paths(kernel: Kernel) -> Iterator[str]:
    """The same where no address is known, of kernels that give each stage back in turn: where one
    is given back, no products may be in flight but those behind the last wait for copies."""
    known = kernel.instructions
    told: set[int] = set()
    seen: set[tuple[int, int, int]] = set()
    due = [(0, 0, 0)]  # an instruction, groups in flight, and groups since the last wait
    while due:
        state = due.pop()
        at, flying, since = state
        if state in seen or at == len(known):
            continue
        seen.add(state)
        ins = known[at]
        kind, name = _kind(ins), ins.opcode[0]
        if kind == ARRIVE and flying > since and at not in told:
            told.add(at)
            yield f"{PENDING} in '{ins.text[:60]}'"
        elif kind == WAIT:
            since = 0
        elif kind == COMMIT:
            flying, since = min(flying + 1, MOST), min(since + 1, MOST)
        elif kind == LEFT:
            flying = min(flying, ins.operands[0].value)
        if name == "bra":
            due.append((kernel.labels.get(ins.operands[0].name, len(known)), flying, since))
        if name not in ("bra", "ret", "exit") or ins.guard:
            due.append((at + 1, flying, since))
