"""Paired device timing: the same buffers, the same graph length, arms interleaved block by block.

Called by the generator, `hgemm-packs bench` and the benchmarks. An arm is any function of (a, b, c)
that queues the product on the current stream and may be captured in a CUDA graph. Clocks are read
but never set, results are never checked here, and no arm is told that it is being timed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

import torch

from ..problem import Problem
from .epilogue import torch_arm as torch_arm
from .epilogue import torch_mm as torch_mm
from .evidence import Ratio, ratio
from .operands import Operands, cold_sets, operands, overlap_sets
from .replay import Arm, Replay, Single, Stage, queue_block, stage
from .telemetry import Conditions

Protocol = Literal["hot", "cold", "chained"]

#: Graph nodes of one replay: past this, capture and upload cost more than the longer mean gains.
MAX_CALLS = 1000
MIN_COLD_SETS = 8
#: Layers of a chain; as few as MIN_LAYERS where one call is long against the target.
LAYERS = 24
MIN_LAYERS = 8
ELEMENTWISE = "elementwise"
PILOT_CALLS = 16
PILOTS = 3
#: Above this a single eager call is long against its launch and needs no pilot graph.
PILOT_BELOW_US = 100.0
#: Change of the SM clock within a block above which its arms did not run under the same conditions.
CLOCK_TOLERANCE = 0.01


def feed(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> object:
    """The elementwise kernel of a chain: A of the next product from C, over the columns that both
    have. A sine keeps the values of any chain within [-1, 1] and off zero."""
    both = min(a.shape[1], c.shape[1])
    return torch.sin(c[:, :both], out=a[:, :both])


def _feed_arm(arm: Arm) -> Arm:
    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        arm(a, b, c)
        feed(a, b, c)

    return call


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """How one problem is measured under one protocol: sets to rotate over, calls per replay.
    `chained` sets are layers, and every call but those of `feed` itself is followed by one."""

    sets: Sequence[Operands]
    calls: int
    flushed: bool
    chained: bool = False

    def queue_arm(self, arm: Arm) -> Arm:
        """What a call of `arm` queues."""
        return _feed_arm(arm) if self.chained and arm is not feed else arm


@dataclass(slots=True)
class Comparison:
    """Samples in us per call, one per block and arm, and the conditions of each block. `repeated`
    counts blocks that were dropped because the clock moved."""

    samples: dict[str, list[float]]
    calls: int
    sets: int
    flushed: bool
    conditions: list[Conditions | None] = field(default_factory=list)
    repeated: int = 0

    def median_us(self, arm: str) -> float:
        return median(self.samples[arm])

    def best(self, arms: Sequence[str]) -> str:
        """The fastest of `arms` by its median."""
        return min(arms, key=self.median_us)

    def ratio(self, base: str, ours: str, *, seed: int = 0) -> Ratio:
        """Speed-up of `ours` over `base` from paired samples."""
        return ratio(self.samples[base], self.samples[ours], seed=seed)


def clocks(done: Comparison) -> dict[str, list[float]]:
    """Clock in MHz and power in W of each block; empty lists where NVML is not to be had."""
    read = [c for c in done.conditions if c is not None]
    return {
        "sm_mhz": [float(c.sm_mhz) for c in read],
        "power_w": [round(c.power_w, 1) for c in read],
    }


def conditions(done: Comparison) -> dict[str, Any]:
    """How a comparison was made: replay length, sets, blocks repeated, clocks; `led` tells it from
    those in which nothing ran ahead of the first arm of a block."""
    fields = ("calls", "sets", "flushed", "repeated")
    return {**{name: getattr(done, name) for name in fields}, "led": True, **clocks(done)}


def _per_call_us(arm: Arm, one: Operands, at: Stage) -> float:
    """Device time of one call, near enough to choose a replay length. Inside `active()`.

    The least of a few: a host that pauses between launch and event only adds to it, and a replay
    planned by such a time would be as much too short.
    """

    def least(timed: Single | Replay) -> float:
        found = []
        for _ in range(PILOTS):
            queue_block([timed], False, at)
            at.stream.synchronize()
            found.append(timed.us())
        return min(found)

    arm(one.a, one.b, one.c)
    us = least(Single(arm, one))
    if us <= PILOT_BELOW_US:
        pilot = Replay(arm, [one], PILOT_CALLS)
        us = least(pilot)
        pilot.free()
    return us


def is_alike(problem: Problem, device: int) -> bool:
    """Whether hot and cold are the same figure: one set of operands exceeds the caches by far."""
    return cold_sets(problem, stage(device).l2_bytes) == 1


def plan(
    arm: Arm,
    problem: Problem,
    protocol: Protocol,
    *,
    target_us: float,
    device: int,
    seed: int,
    overlapping: bool = False,
) -> TimingPlan:
    """Buffers and replay length so that one replay of `arm` lasts about `target_us`.

    Cold rotates over more than three times the L2. Where that takes more calls than the target
    allows (tiny problems), fewer sets are used, each once per replay, and L2 is flushed before.
    Chained is a model: one A and C, and layers with weights of their own, so that small weights
    are found in L2 and large ones are not. Calls of `overlapping` arms may begin while the one
    before still runs, and never read the same memory then, but where L2 holds it.
    """
    if protocol not in ("hot", "cold", "chained"):
        raise ValueError(f'protocol must be "hot", "cold" or "chained", not {protocol!r}')
    at, chained = stage(device), protocol == "chained"
    first = operands(problem, device, seed=seed)
    with at.active():
        per_call = _per_call_us(_feed_arm(arm) if chained else arm, first[0], at)
    calls = min(MAX_CALLS, max(1, round(target_us / per_call)))
    if chained:
        count = min(LAYERS, max(MIN_LAYERS, calls))
        sets = operands(problem, device, seed=seed, sets=count, chained=True)
        return TimingPlan(sets, count * max(1, round(calls / count)), flushed=False, chained=True)
    needed = cold_sets(problem, at.l2_bytes) if protocol == "cold" else 1
    if overlapping:
        needed = max(needed, overlap_sets(problem, at.l2_bytes))
    if needed == 1:
        return TimingPlan(first, calls, flushed=False)
    count = min(needed, max(MIN_COLD_SETS, calls))
    sets = operands(problem, device, seed=seed, sets=count)
    if count < needed:
        return TimingPlan(sets, count, flushed=True)
    # A whole number of rounds, or the next replay would start on the sets used last.
    return TimingPlan(sets, math.ceil(calls / count) * count, flushed=False)


class ArmBench:
    """Arms captured on the buffers of one plan, to be timed block by block. Made, used and freed
    inside `Stage.active()`."""

    def __init__(self, arms: Mapping[str, Arm], how: TimingPlan, at: Stage) -> None:
        self.plan, self._at = how, at
        self.replays = {
            name: Replay(how.queue_arm(arm), how.sets, how.calls) for name, arm in arms.items()
        }
        at.stream.synchronize()

    def block(self, order: Sequence[str]) -> tuple[dict[str, float], tuple[Conditions | None, ...]]:
        """Time each of `order` once, one behind the other: us per call, and the conditions while
        the first and the last of them ran.

        Several are led by one more replay of the last: what runs first after a pause is up to 11%
        slower or 7% faster than behind another, for caches, clocks and power are those of a pause.
        """
        at, last = self._at, self.replays[order[-1]]
        lead = order[-1:] if len(order) > 1 else ()
        queue_block([self.replays[name] for name in (*lead, *order)], self.plan.flushed, at)
        readings = [at.telemetry.read()]
        if readings[0] is not None:
            while not last.has_started():
                pass
            readings.append(at.telemetry.read())
        at.stream.synchronize()
        return {name: self.replays[name].us() for name in order}, tuple(readings)

    def free(self, names: Iterable[str]) -> None:
        """Give up arms that are not timed any more."""
        for name in names:
            self.replays.pop(name).free()


def is_steady(readings: Sequence[Conditions | None]) -> bool:
    """Whether the SM clock stood still over a block, as far as its readings tell."""
    clocks = [reading.sm_mhz for reading in readings if reading is not None]
    return not clocks or max(clocks) <= min(clocks) * (1.0 + CLOCK_TOLERANCE)


def compare(
    arms: Mapping[str, Arm],
    problem: Problem,
    *,
    protocol: Protocol = "hot",
    blocks: int = 20,
    target_us: float = 1000.0,
    device: int = 0,
    seed: int = 0,
    between: Callable[[int, ArmBench], None] | None = None,
    overlapping: bool = False,
) -> Comparison:
    """Time all `arms` on the same buffers, once each per block, in random order.

    The first arm sets the replay length for all. A block in which the clock moved is dropped and
    repeated, half as many times as there are blocks at most. `between` is called after each block
    with its number, and may replay and overwrite. `overlapping` is for arms that launch kernels
    which read ahead: see `plan`. Raises whatever an arm raises.

    Chained samples are of an arm's call and `feed` together; those of the arm ELEMENTWISE, which
    is added, of `feed` alone.
    """
    if protocol == "chained":
        arms = {**arms, ELEMENTWISE: feed}
    how = plan(
        next(iter(arms.values())),
        problem,
        protocol,
        target_us=target_us,
        device=device,
        seed=seed,
        overlapping=overlapping,
    )
    at = stage(device)
    result = Comparison({name: [] for name in arms}, how.calls, len(how.sets), how.flushed)
    shuffle = random.Random(seed)
    with at.active():
        running = ArmBench(arms, how, at)
        while len(result.conditions) < blocks:
            order = list(arms)
            shuffle.shuffle(order)
            us, readings = running.block(order)
            if not is_steady(readings) and result.repeated < blocks // 2:
                result.repeated += 1
                continue
            result.conditions.append(readings[0])
            for name in arms:
                result.samples[name].append(us[name])
            if between is not None:
                between(len(result.conditions) - 1, running)
        running.free(arms)
    return result


def screen(
    arms: Mapping[str, Arm],
    problem: Problem,
    *,
    protocol: Protocol = "hot",
    replays: int = 3,
    target_us: float = 200.0,
    device: int = 0,
    seed: int = 0,
) -> dict[str, float]:
    """Median us per call of each arm from a few replays: to drop losers, never to claim a win.

    Arms run one after the other, each graph freed before the next is captured.
    """
    how = plan(
        next(iter(arms.values())), problem, protocol, target_us=target_us, device=device, seed=seed
    )
    at = stage(device)
    medians = {}
    for name, arm in arms.items():
        with at.active():
            replay = Replay(how.queue_arm(arm), how.sets, how.calls)
            samples = []
            for _ in range(replays):
                queue_block([replay], how.flushed, at)
                at.stream.synchronize()
                samples.append(replay.us())
            replay.free()
        medians[name] = median(samples)
    return medians
