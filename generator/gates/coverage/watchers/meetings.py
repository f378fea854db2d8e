"""Where strands of a cluster meet: at the barriers of a CTA, of a warp and of the cluster.

Made by `races`. A strand that comes tells what it knows, one that waits learns what all had told
when the meeting was over.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.watchers.strands import (
    MEET,
    MULTIPLY,
    OF_CLUSTER,
    OF_WARP,
    Act,
    Strand,
)


@dataclass(slots=True)
class _Meeting:
    here: set[int] = field(default_factory=set)
    told: list[Array] = field(default_factory=list)
    over: list[Array] = field(default_factory=list)

    def end(self) -> None:
        """Let those go on who are here."""
        self.over.append(np.maximum.reduce(self.told))
        self.here, self.told = set(), []


@dataclass(slots=True)
class Meetings:
    """Those of one cluster: its strands with their clocks, and which of them have more to do."""

    strands: Sequence[Strand]
    clocks: Array
    goes_on: Callable[[int], bool]
    meetings: dict[Hashable, _Meeting] = field(default_factory=dict)
    came: dict[tuple[int, Hashable], int] = field(default_factory=dict)  # to which of a place
    members: dict[Hashable, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, each in enumerate(self.strands):
            for place in ((MEET, each.cta), (OF_WARP, each.warp), OF_CLUSTER):
                self.members.setdefault(place, []).append(number)

    def pass_by(self, number: int, act: Act) -> bool:
        """Whether a strand gets past a barrier, to which it may only come, or wait at it."""
        kind, strand = act.kind, self.strands[number]
        comes = kind != OF_CLUSTER or not act.numbers[0]
        waits = act.numbers[0] if kind == OF_CLUSTER else kind == OF_WARP or not act.numbers[2]
        if kind == OF_WARP and not act.numbers[0]:
            return True  # some lanes alone
        of = {MEET: (MEET, strand.cta, act.numbers[0]), OF_WARP: (OF_WARP, strand.warp)}
        place: Hashable = of.get(kind, OF_CLUSTER)
        meeting = self.meetings.setdefault(place, _Meeting())
        if comes and (number, place) not in self.came:
            if number in meeting.here:
                return False  # the meeting before is not over
            self._come(number, place, meeting, is_relaxed=kind == OF_CLUSTER and act.numbers[1] > 0)
        if meeting.here and self._is_met(meeting, act):
            meeting.end()
        if not waits:
            if kind == MEET:
                del self.came[number, place]
            return True
        return self._learn(number, place, meeting)

    def do_as_one(self, number: int) -> bool:
        """Whether all strands of a warp have come to what they do together."""
        warp = self.strands[number].warp
        place: Hashable = (MULTIPLY, warp)
        meeting = self.meetings.setdefault(place, _Meeting())
        if (number, place) not in self.came:
            self._come(number, place, meeting, teaches=False)
        if self._are_here(meeting, (OF_WARP, warp)):
            meeting.end()
        return self._learn(number, place, meeting)

    def _come(
        self,
        number: int,
        place: Hashable,
        meeting: _Meeting,
        is_relaxed: bool = False,
        teaches: bool = True,
    ) -> None:
        told = self.clocks[number].copy()
        if is_relaxed:  # what has been brought or read is over, no more
            told[: len(self.strands)] = 0
        meeting.told.append(told if teaches else np.zeros_like(told))
        meeting.here.add(number)
        self.came[number, place] = len(meeting.over)
        self.clocks[number, number] += teaches

    def _learn(self, number: int, place: Hashable, meeting: _Meeting) -> bool:
        turn = self.came.get((number, place))
        if turn is None:
            return True  # one that never came waits for nobody
        if turn >= len(meeting.over):
            return False
        np.maximum(self.clocks[number], meeting.over[turn], out=self.clocks[number])
        del self.came[number, place]
        return True

    def _is_met(self, meeting: _Meeting, act: Act) -> bool:
        if act.kind == MEET and act.numbers[1]:
            return sum(self.strands[each].weight for each in meeting.here) >= act.numbers[1]
        some = self.strands[next(iter(meeting.here))]
        of = {MEET: (MEET, some.cta), OF_WARP: (OF_WARP, some.warp)}
        return self._are_here(meeting, of.get(act.kind, OF_CLUSTER))

    def _are_here(self, meeting: _Meeting, place: Hashable) -> bool:
        here = meeting.here
        return all(each in here or not self.goes_on(each) for each in self.members[place])
