"""A run in simulated time: compilers, a GPU and a sanitizer take seconds of a clock of their own.

`install` has `generate` run in this thread. What would take time is done at once. Its answer comes
when the clock gets there: a run of minutes is over in seconds, and two runs compare exactly.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from hgemm_packs.generator.core.spec import (
    Choice,
    CompiledKernel,
    Device,
    DeviceFacts,
    Job,
    Reply,
    Status,
    Verdict,
)
from hgemm_packs.generator.devices.sim import fake_kernel
from hgemm_packs.generator.run import generate, jobs
from hgemm_packs.generator.workers.worker import answer

#: Seconds of a compiler for a kernel, and for a look at one with the disassembler; of a new process
#: on a GPU; of the sanitizer for a kernel, on all cores.
COMPILE_S, INSPECT_S, FRESH_S, SANITIZE_S = 0.7, 0.25, 6.0, 0.1
WORKERS = 16

Span = tuple[float, float]


@dataclass
class Clock:
    """Simulated seconds, and what happens when."""

    now: float = 0.0
    later: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def __call__(self) -> float:
        return self.now

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.later, (when, next(self.numbers), what))

    def go_on(self) -> None:
        """Come to the next thing that happens."""
        self.now, _, what = heapq.heappop(self.later)
        what()


class Events:
    """The queue of a run: where it is empty, the clock goes on."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._items = clock, deque[Any]()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self) -> Any:
        while not self._items:
            self._clock.go_on()
        return self._items.popleft()


class Compilers:
    """`WORKERS` processes: a builder, and the pool of threads that waits for it. `built` has what
    was compiled, in the order of asking; `make` makes a kernel."""

    workers = WORKERS
    toolchain: Mapping[str, Any] = {"sources": "simulated"}

    def __init__(
        self, clock: Clock, make: Callable[[Choice], CompiledKernel] = fake_kernel
    ) -> None:
        self._clock, self._make = clock, make
        self._free = [0.0] * WORKERS
        self._ends = 0.0
        self.busy: list[Span] = []
        self.built: list[Choice] = []

    def build(self, choices: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        self.built += choices
        self._take(COMPILE_S, len(choices))
        return {choice: self._make(choice) for choice in choices}

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        self._take(INSPECT_S, len(kernels))
        return {one.id: Verdict("binary", Status.OK) for one in kernels}

    def _take(self, seconds: float, count: int) -> None:
        for _ in range(count):
            began = max(self._clock.now, heapq.heappop(self._free))
            heapq.heappush(self._free, began + seconds)
            self.busy.append((began, began + seconds))
            self._ends = max(self._ends, began + seconds)

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """The pool of threads: the work is done, and its answer is there when its last compiler has
        come to an end."""
        self._ends = self._clock.now
        found, future = work(*arguments), Future[Any]()
        self._clock.at(self._ends, lambda: future.set_result(found))
        return future

    def shutdown(self, **_: object) -> None: ...

    def close(self) -> None: ...


class Gpu:
    """One GPU, its jobs in the order of asking."""

    capacity = 1

    def __init__(self, clock: Clock, device: Device) -> None:
        self._clock, self._device, self._free = clock, device, 0.0
        self._ready = float("inf")  # when a process that was prepared has started
        self.waited = 0.0  # for processes
        self.busy: list[Span] = []
        self.by_kind: defaultdict[str, float] = defaultdict(float)

    def facts(self) -> DeviceFacts:
        return self._device.facts

    def submit(self, job: Job) -> Future[Reply]:
        reply = answer(self._device, job)
        began = max(self._clock.now, self._free)
        self._free = began + reply.gpu_seconds
        self.busy.append((began, self._free))
        self.by_kind[job.kind] += reply.gpu_seconds
        future: Future[Reply] = Future()
        self._clock.at(self._free, lambda: future.set_result(reply))
        return future

    def prepare(self) -> None:
        self._ready = self._clock.now + FRESH_S

    def fresh(self) -> None:
        now = max(self._clock.now, self._free)
        self._free = max(now, min(self._ready, now + FRESH_S))
        self.waited += self._free - now

    def close(self) -> None: ...


@dataclass
class World:
    """A machine with one GPU, and what became of a run on it: when each stage began."""

    clock: Clock
    compilers: Compilers
    gpu: Gpu
    stages: dict[str, float] = field(default_factory=dict)
    sanitized: list[str] = field(default_factory=list)

    def watch(self, snapshot: generate.Snapshot) -> None:
        self.stages.setdefault(snapshot.stage, self.clock.now)

    def sanitize(self, kernels: Sequence[CompiledKernel]) -> Iterator[dict[str, Verdict]]:
        for one in kernels:
            self.sanitized.append(one.id)
            self.clock.now += SANITIZE_S
            yield {one.id: Verdict("sanitizer", Status.OK)}

    def seconds(self, of: Sequence[Span], start: float = 0.0, end: float = float("inf")) -> float:
        """Seconds between start and end in which any of the spans is."""
        total, at = 0.0, start
        for began, ended in sorted(of):
            first, last = max(began, at), min(ended, end)
            if last > first:
                total, at = total + last - first, last
        return total


def install(patch: pytest.MonkeyPatch, device: Device) -> World:
    """A world for the runs of this patch."""
    clock = Clock()
    world = World(clock, Compilers(clock), Gpu(clock, device))
    patch.setattr(jobs, "SimpleQueue", lambda: Events(clock))
    patch.setattr(jobs, "ThreadPoolExecutor", lambda *_: world.compilers)
    patch.setattr(jobs, "GRACE_S", 0.0)
    patch.setattr(jobs, "monotonic", clock)
    patch.setattr(generate, "_SHOWN_S", 0.0)
    return world
