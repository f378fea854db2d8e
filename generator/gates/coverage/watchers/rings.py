"""Which barriers tell of a ring's stages and give them back, by what threads did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage.watchers.events import (
    ARRIVE,
    COPY,
    FILL,
    READ,
    WAIT,
    Event,
)


class Stage(NamedTuple):
    """The barriers that tell of a stage, and that it is given back by, None where nobody knows."""

    told: int
    back: int | None


def find_ring(events: Mapping[int, list[Event]]) -> dict[int, Stage]:
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


def find_ring_of_fills(events: Mapping[int, list[Event]]) -> dict[int, Stage]:
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


def find_given(events: Mapping[int, list[Event]], ring: Mapping[int, Stage]) -> dict[int, set[int]]:
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
