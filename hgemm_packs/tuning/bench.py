"""A GPU on which kernels and torch are timed: short screens, finals, confirmations.

Made by `session`. Kernels of packs have passed the gates; here each finalist must prove its values
on this very GPU before it is timed against torch. Nothing is decided here.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, Protocol

import torch

from .. import dispatch, launcher, select, selftest
from ..errors import PackError, TuneError
from ..measure import timing
from ..measure.kernel_arm import KernelArm
from ..measure.replay import Arm, Replay, queue_block, stage
from ..problem import Problem
from ..settings import LOGGER, settings
from .candidates import Candidate
from .journal import AGAIN, TORCH

#: Of a screen: times of a kernel, length of a replay, and its calls at most, for to capture them is
#: what a tiny kernel costs.
SAMPLES, SCREEN_US, MOST_CALLS = 3, 150.0, 32
#: A kernel this many times slower than the best so far gets no second sample.
HOPELESS = 1.5
FINALS_BLOCKS, FINALS_US = 7, 300.0
CONFIRM_BLOCKS, CONFIRM_US = 21, 600.0
COPY_BYTES, COPIES = 256 << 20, 10


class Screened(NamedTuple):
    """Medians in us with caches hot: of torch, and by id of the kernels that were tried."""

    torch_us: float
    times: Mapping[str, float]


class Compared(NamedTuple):
    """protocol -> arm -> us of each block, arms interleaved; and how it was measured."""

    samples: Mapping[str, Mapping[str, Sequence[float]]]
    conditions: Mapping[str, Mapping[str, Any]]


class Bench(Protocol):
    """What `session` asks of a GPU. Raises torch.OutOfMemoryError where a problem is too large."""

    def gbps(self) -> float:
        """The bandwidth of a copy, read and written."""
        ...

    def screen(self, problem: Problem, candidates: Sequence[Candidate], until: float) -> Screened:
        """Time torch and, until `until` (time.monotonic), kernels in their order; at least one."""
        ...

    def finals(
        self, problem: Problem, candidates: Sequence[Candidate], seed: int
    ) -> Compared | None:
        """Time kernels against torch, hot and cold; None where none computes the problem."""
        ...

    def confirm(self, problem: Problem, candidate: Candidate, seed: int) -> Compared | None:
        """The same of one kernel for longer, and of torch once more, as the arm AGAIN."""
        ...


class GpuBench:
    """CUDA device `index`. Loaded kernels stay loaded."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._arms: dict[str, KernelArm] = {}

    def gbps(self) -> float:
        return _copy_gbps(self._index)

    def screen(self, problem: Problem, candidates: Sequence[Candidate], until: float) -> Screened:
        baseline = timing.torch_arm(problem)
        with torch.no_grad():
            how = timing.plan(
                baseline, problem, "hot", target_us=SCREEN_US, device=self._index, seed=0
            )
            calls = min(how.calls, MOST_CALLS)
            torch_us = self._time(baseline, how, calls, float("inf"))
            times: dict[str, float] = {}
            for each in candidates:
                if times and time.monotonic() >= until:
                    break
                best = min([torch_us, *times.values()])
                measure = functools.partial(self._time, how=how, calls=calls, best=best)
                us = self._try(each, problem, measure)
                if us is not None:
                    times[each.entry.id] = us
        return Screened(torch_us, times)

    def finals(
        self, problem: Problem, candidates: Sequence[Candidate], seed: int
    ) -> Compared | None:
        proven = self._prove(problem, candidates)
        if not proven:
            return None
        arms = {TORCH: timing.torch_arm(problem), **proven}
        return self._compare(arms, problem, FINALS_BLOCKS, FINALS_US, seed)

    def confirm(self, problem: Problem, candidate: Candidate, seed: int) -> Compared | None:
        proven = self._prove(problem, [candidate])
        if not proven:
            return None
        arms = {TORCH: timing.torch_arm(problem), AGAIN: timing.torch_arm(problem), **proven}
        return self._compare(arms, problem, CONFIRM_BLOCKS, CONFIRM_US, seed)

    def _compare(
        self, arms: Mapping[str, Arm], problem: Problem, blocks: int, target_us: float, seed: int
    ) -> Compared:
        samples: dict[str, Mapping[str, Sequence[float]]] = {}
        conditions: dict[str, Mapping[str, Any]] = {}
        protocols: tuple[timing.Protocol, ...] = ("hot", "cold")
        with torch.no_grad():
            for protocol in protocols:
                done = timing.compare(
                    arms,
                    problem,
                    protocol=protocol,
                    blocks=blocks,
                    target_us=target_us,
                    device=self._index,
                    seed=seed,
                )
                samples[protocol] = done.samples
                conditions[protocol] = timing.conditions(done)
        return Compared(samples, conditions)

    def _time(self, arm: Arm, how: timing.TimingPlan, calls: int, best: float) -> float:
        at = stage(self._index)
        found: list[float] = []
        with at.active():
            replay = Replay(arm, how.sets, calls)
            while len(found) < SAMPLES and (not found or found[0] < HOPELESS * best):
                queue_block([replay], False, at)
                at.stream.synchronize()
                found.append(replay.us())
            replay.free()
        return median(found)

    def _prove(self, problem: Problem, candidates: Sequence[Candidate]) -> dict[str, Arm]:
        """The kernels, as arms, whose values on the problem are right here."""
        place = torch.device(dispatch.kind, self._index)
        arms: dict[str, Arm] = {}
        for each in candidates:

            def prove(arm: KernelArm, each: Candidate = each) -> KernelArm:
                selftest.prove(arm.kernel, each.entry, problem, place)
                return arm

            arm = self._try(each, problem, prove)
            if arm is not None:
                arms[each.entry.id] = arm
        return arms

    def _try(self, each: Candidate, problem: Problem, work: Callable[[KernelArm], Any]) -> Any:
        """What `work` makes of a kernel; None for a kernel that fails, which no call gets again in
        this process. Raises TuneError where it has taken the device with it: then in none."""
        entry = each.entry
        try:
            if entry.id not in self._arms:
                handle = launcher.load(self._index, entry, each.pack.image(entry))
                self._arms[entry.id] = KernelArm(handle, entry.epilogue)
            return work(self._arms[entry.id])
        except torch.OutOfMemoryError:
            raise
        except PackError as error:
            select.refuse(each.pack, error)
            return None
        except (RuntimeError, ValueError) as error:
            LOGGER.warning("tune: kernel %s on %s: %s", entry.name, problem, error)
            select.quarantine(entry, str(error))
            try:
                torch.cuda.synchronize(self._index)
            except RuntimeError as lost:
                selftest.keep_out(settings().cache, entry, f"tune lost the device on {problem}")
                raise TuneError(
                    f"{entry.name} on {problem} has taken the device with it ({lost}), and is "
                    "never used again: the same call, in a new process, goes on"
                ) from error
            return None


def _copy_gbps(index: int) -> float:
    """Bytes read and written by the fastest of a few copies."""
    place = torch.device("cuda", index)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    size = min(COPY_BYTES, torch.cuda.mem_get_info(index)[0] // 4)
    one = torch.empty(size, dtype=torch.uint8, device=place)
    other = torch.empty_like(one)
    best = float("inf")
    for _ in range(COPIES):
        start.record()
        other.copy_(one)
        end.record()
        end.synchronize()
        best = min(best, float(start.elapsed_time(end)))
    return 2 * size / best / 1e6
