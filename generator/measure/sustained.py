"""One arm for seconds on end: time, power and clock once the card has settled.

Called by `devices.protocols` for large problems, which run into the card's power limit: what is
fastest in a burst need not be what is fastest for long. The first half of a run only warms up.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, linear_regression
from typing import Any, NamedTuple

import torch

from hgemm_packs.measure.operands import Operands
from hgemm_packs.measure.replay import Arm, Replay, Single, Stage

REPLAY_US = 5_000.0  # of one replay; readings are this far apart
AHEAD = 4  # replays queued at a time
POLL_S = 2e-4  # between two looks at the energy counter, which moves every 20 to 100 ms
MIN_SPAN_S = 0.08  # between the first and the last step of it that make a slope
MEAN_S = 1.0  # what the driver's own figure of watts is a mean over


class Reading(NamedTuple):
    """At `t` seconds: joules counted so far (None: no counter), the driver's own mean of watts,
    SM clock, temperature."""

    t: float
    joules: float | None
    watts: float
    sm_mhz: int
    temperature_c: int


def power(readings: Sequence[Reading]) -> tuple[float | None, str | None]:
    """Watts, and where they are from: "energy", the slope of the energy counter through the
    readings at which it had moved, or "power", the mean of the driver's figure as far as all of the
    second that it stands for is of this arm. None where neither is to be had."""
    steps = [
        (now.t, now.joules)
        for before, now in pairwise(readings)
        if now.joules is not None and before.joules is not None and now.joules > before.joules
    ]
    if steps and steps[-1][0] - steps[0][0] >= MIN_SPAN_S:
        return linear_regression(*zip(*steps, strict=True)).slope, "energy"
    late = [each.watts for each in readings if each.t >= MEAN_S]
    return (fmean(late), "power") if late else (None, None)


def _calls(arm: Arm, one: Operands, at: Stage) -> int:
    arm(one.a, one.b, one.c)
    single = Single(arm, one)
    single.queue()
    at.stream.synchronize()
    return max(1, round(REPLAY_US / single.us()))


def sustain(arm: Arm, one: Operands, at: Stage, flop: float, seconds: float) -> dict[str, Any]:
    """Run `arm` back to back for `seconds` and report on the second half: us per call, watts,
    TFLOP/s, TFLOP/s per watt, mean SM clock, and the readings."""
    began = time.perf_counter()
    readings: list[Reading] = []
    ends: deque[torch.cuda.Event] = deque()
    half: torch.cuda.Event | None = None
    counted, settled = 0, False
    with at.active():
        replay = Replay(arm, [one], _calls(arm, one, at))
        while True:
            now = time.perf_counter() - began
            replay.queue()
            ends.append(torch.cuda.Event(enable_timing=True))
            ends[-1].record(at.stream)
            counted += half is not None
            if half is None and now >= seconds / 2:
                half = ends[-1]
            if half is not None and counted > AHEAD and now >= seconds:
                break
            if len(ends) > AHEAD:
                reached = ends.popleft()
                if settled:
                    readings += _watch(at, reached, began)
                else:
                    reached.synchronize()
                    settled = reached is half
        readings += _watch(at, ends[-1], began)
        us = float(half.elapsed_time(ends[-1])) * 1000.0 / (counted * replay.calls)
        replay.free()
    return report(us, flop, readings)


def _watch(at: Stage, end: torch.cuda.Event, began: float) -> list[Reading]:
    """A reading at once, and one as soon as the energy counter has moved, until `end`: so a slope
    of few steps knows when they were."""
    found = _read(at, time.perf_counter() - began)
    last = found[-1].joules if found else None
    while not end.query():
        joules = at.telemetry.energy_j()
        if joules != last:
            found += _read(at, time.perf_counter() - began)
            last = joules
        time.sleep(POLL_S)
    end.synchronize()
    return found


def _read(at: Stage, t: float) -> list[Reading]:
    joules, now = at.telemetry.energy_j(), at.telemetry.read()
    if now is None:
        return []
    return [Reading(round(t, 5), joules, now.power_w, now.sm_mhz, now.temperature_c)]


def report(us: float, flop: float, readings: Sequence[Reading]) -> dict[str, Any]:
    """The figures of one arm. What there are no readings of is None."""
    watts, source = power(readings)
    tflops = flop / us * 1e-6
    return {
        "us": round(us, 4),
        "tflops": round(tflops, 2),
        "watts": watts and round(watts, 2),
        "tflops_per_watt": watts and round(tflops / watts, 5),
        "power_from": source,
        "sm_mhz": round(fmean(r.sm_mhz for r in readings), 1) if readings else None,
        "readings": [list(each) for each in readings],
    }
