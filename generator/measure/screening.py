"""One problem laid out for screening: every kernel gets a check of its values and a few hot times.

Used by `devices.gpu`; the scenes of problems met before are kept. What a kernel costs here decides
how many can be tried, so most is done once per problem, hopeless kernels are not timed again, and
long ones are not captured in a graph.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from statistics import median

from hgemm_packs.generator.measure.values import Finding, Reference
from hgemm_packs.measure.operands import Operands, operands, overlap_sets
from hgemm_packs.measure.replay import Arm, Replay, Single, queue_block, stage
from hgemm_packs.measure.timing import torch_arm
from hgemm_packs.problem import Problem, set_bytes

SAMPLES = 3
TARGET_US = 150.0  # of one replay
MAX_CALLS = 32  # graph nodes of one replay: capturing them is what a tiny kernel costs
#: Calls above this are timed singly: the launch between two events is below 1% of them.
SINGLE_ABOVE_US = 200.0
#: A kernel this many times slower than the best right one so far gets no second sample.
HOPELESS = 4.0

Screened = tuple[Finding, tuple[float, ...]]


def calls_for(us: float) -> int:
    """Calls of one replay, given the time of a call in a replay. Not of a single call between two
    events: that of a tiny kernel is mostly launch, and replays of three calls would be too."""
    return min(MAX_CALLS, max(1, round(TARGET_US / us)))


class Scene:
    """Operands, reference and the best time so far of one problem on one device."""

    def __init__(self, problem: Problem, device: int, seed: int) -> None:
        self._at = stage(device)
        self._problem, self._device, self._seed = problem, device, seed
        self._other: Operands | None = None
        self._lay_out()
        sets = overlap_sets(problem, self._at.l2_bytes)
        self.bytes = sets * set_bytes(problem) + self._reference.bytes
        # torch is within a small factor of the best, so it sets the length of a replay for all.
        with self._at.active():
            torch_arm(self._problem)(self._one.a, self._one.b, self._one.c)
        _, self._best_us = self._first(torch_arm(self._problem))
        self._calls = MAX_CALLS
        self.torch_us = self._times(torch_arm(self._problem), self._best_us)
        self._calls = calls_for(median(self.torch_us))

    def screen(self, arm: Arm, *, overlapping: bool = False) -> Screened:
        """Check one call and time a few. No times where the values are wrong; one where the kernel
        is hopeless. Calls that may overlap with the one before (`overlapping`) read other memory
        than that, but where L2 holds it. Raises whatever the arm raises."""
        finding, first = self._first(arm)
        # Torch wrong too: a kernel before wrote over A or B.
        if finding.detail and self._first(torch_arm(self._problem))[0].detail:
            self._lay_out()
            finding, first = self._first(arm)
        if finding.detail:
            return finding, ()
        if first > HOPELESS * self._best_us:
            return finding, (first,)
        self._best_us = min(self._best_us, first)
        return finding, self._times(arm, first, overlapping)

    def _lay_out(self) -> None:
        self._one = operands(self._problem, self._device, seed=self._seed)[0]
        self._reference = Reference(self._problem, self._one)

    def _sets(self, overlapping: bool) -> list[Operands]:
        if not overlapping or overlap_sets(self._problem, self._at.l2_bytes) == 1:
            return [self._one]
        if self._other is None:
            self._other = operands(self._problem, self._device, seed=self._seed + 1)[0]
        return [self._one, self._other]

    def _times(self, arm: Arm, first: float, overlapping: bool = False) -> tuple[float, ...]:
        if first > SINGLE_ABOVE_US:
            return (first, *self._again(arm))
        return self._replays(arm, self._sets(overlapping))

    def _first(self, arm: Arm) -> tuple[Finding, float]:
        one, single = self._one, Single(arm, self._one)
        with self._at.active():
            one.c.fill_(math.nan)
            queue_block([single], False, self._at)
            finding = self._reference.check(one.c)
        return finding, single.us()

    def _again(self, arm: Arm) -> list[float]:
        singles = [Single(arm, self._one) for _ in range(SAMPLES - 1)]
        with self._at.active():
            queue_block(singles, False, self._at)
            self._at.stream.synchronize()
        return [single.us() for single in singles]

    def _replays(self, arm: Arm, sets: list[Operands]) -> tuple[float, ...]:
        samples = []
        with self._at.active():
            replay = Replay(arm, sets, self._calls + self._calls % len(sets))
            for _ in range(SAMPLES):
                queue_block([replay], False, self._at)
                self._at.stream.synchronize()
                samples.append(replay.us())
            replay.free()
        return tuple(samples)


class Scenes:
    """The scenes of the problems screened last, as many as fit into `limit_bytes`."""

    def __init__(self, device: int, limit_bytes: int) -> None:
        self._device, self._limit = device, limit_bytes
        self._kept: OrderedDict[Problem, Scene] = OrderedDict()

    def of(self, problem: Problem, seed: int) -> Scene:
        """The scene of a problem, with `seed` where it has to be made."""
        if problem not in self._kept:
            self._kept[problem] = Scene(problem, self._device, seed)
        self._kept.move_to_end(problem)
        while len(self._kept) > 1 and sum(s.bytes for s in self._kept.values()) > self._limit:
            self._kept.popitem(last=False)
        return self._kept[problem]
