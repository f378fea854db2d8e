"""The sanitizer gate over many kernels: more processes than GPUs, dealt, watched, ended together.

`check_groups` gives verdicts on groups of kernels as they are known, `sweep_batches` what each
process said. Called by `generate`, `eval`, the red team and `generate sanitize`. Whoever leaves
either before its end, by an interrupt say, leaves no process behind.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.core.spec import CompiledKernel, Verdict
from hgemm_packs.generator.gates import sanitizer
from hgemm_packs.generator.gates.sanitizer import Item, ToolRun

PER_GPU = 12  # processes; they mostly wait for the host
SMALLEST, LARGEST = 4, 32  # kernels a process: its start takes as long as ten, and one may be lost
ROUNDS = 2  # processes one after the other, so that a slow one holds up little
AT_ONCE = 10  # kernels a process at most where there is one round: a second one would start longer
LEAST_S = 5.0  # a process that has less time does not even start

#: What CUDA_VISIBLE_DEVICES calls the GPU of a process; None: the first one here.
Seat = str | None
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch:
    """Kernels that one process runs under one tool."""

    tool: str
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the tool said of a batch, None where no time was left for it."""

    batch: Batch
    run: ToolRun | None
    seconds: float


def item(kernel: CompiledKernel, further: Mapping[str, Any]) -> Item:
    """A built kernel with the problems that the size gate's evidence `further` asks the tools for:
    those in which each comparison on sizes goes each way."""
    ways = [(m, n, k) for m, n, k in further.get("ways", ())]
    return entry(kernel.fields, kernel.cubin), kernel.cubin, ways


def seats(names: Sequence[str], processes: int | None = None) -> list[Seat]:
    """One for each process at a time, the GPUs in turn; none without a GPU."""
    count = processes or min(PER_GPU * len(names), os.cpu_count() or 1)
    return [names[i % len(names)] for i in range(count)] if names else []


def group_size(runs: int, processes: int) -> int:
    """Kernels a process, when so many runs of a kernel under a tool are to be done."""
    once = -(-runs // processes)
    size = once if once <= AT_ONCE else -(-runs // (ROUNDS * processes))
    return min(max(size, SMALLEST), LARGEST)


def deal(things: Sequence[T], size: int) -> list[Sequence[T]]:
    """Groups of at most that size, neighbours, of one family often, in different ones."""
    count = -(-len(things) // size)
    return [things[first::count] for first in range(count)]


class Waiting:
    """Processes under tools that import while nothing is to be run yet, one for a seat."""

    def __init__(self) -> None:
        self._left: list[sanitizer.ToolProcess] = []
        self._taking = threading.Lock()

    def start(self, seats: Sequence[Seat], tools: Sequence[str]) -> None:
        for i, seat in enumerate(seats):
            self._left.append(sanitizer.ToolProcess(tools[i % len(tools)], seat))

    def take(self, tool: str, seat: Seat) -> sanitizer.ToolProcess | None:
        """One of that tool and seat; None where none is left."""
        with self._taking:
            found = (each for each in self._left if (each.tool, each.gpu) == (tool, seat))
            chosen = next(found, None)
            if chosen is not None:
                self._left.remove(chosen)
            return chosen

    def close(self) -> None:
        for each in self._left:
            each.close()
        self._left.clear()


def sweep_batches(
    todo: Sequence[Batch],
    seats: Sequence[Seat],
    ends: float = math.inf,
    ahead: Waiting | None = None,
) -> Generator[Answer, None, None]:
    """Answers as they come, from as many processes at a time as there are seats, those `ahead`
    first; each kernel of a batch with findings runs again alone. At `ends` (of time.monotonic) what
    still runs is dropped.

    Raises SanitizerUnavailable.
    """
    stop = threading.Event()
    free: queue.SimpleQueue[Seat] = queue.SimpleQueue()
    for seat in seats:
        free.put(seat)

    def ask(batch: Batch) -> Answer:
        seat = free.get()
        began = time.monotonic()
        try:
            if ends - began < LEAST_S:
                return Answer(batch, None, 0.0)
            limit_s = min(sanitizer.TIMEOUT_S, ends - began)
            ready = ahead.take(batch.tool, seat) if ahead else None
            run = (
                ready.run(batch.items, limit_s, stop)
                if ready
                else sanitizer.run_tool(batch.items, batch.tool, seat, limit_s, stop)
            )
        finally:
            free.put(seat)
        now = time.monotonic()
        late = run.findings < 0 and now >= ends
        return Answer(batch, None if late else run, now - began)

    pool = ThreadPoolExecutor(len(seats))
    try:
        waiting = {pool.submit(ask, batch) for batch in todo}
        while waiting:
            # With an end: a signal that another thread took does not wake this one.
            done, waiting = wait(waiting, sanitizer.POLL_S, FIRST_COMPLETED)
            for future in done:
                answer = future.result()
                batch, run = answer.batch, answer.run
                if run is not None and run.findings and len(batch.items) > 1:
                    alone = (Batch(batch.tool, [item]) for item in batch.items)
                    waiting |= {pool.submit(ask, each) for each in alone}
                else:
                    yield answer
    finally:
        # Without these an interrupt would wait for all that is queued.
        stop.set()
        pool.shutdown(cancel_futures=True)


def check_groups(
    groups: Sequence[Sequence[Item]],
    seats: Sequence[Seat],
    tools: Sequence[str] = sanitizer.TOOLS,
    ahead: Waiting | None = None,
) -> Generator[tuple[int, list[Verdict]], None, None]:
    """(place, verdicts) of each group that is through all `tools`, in any order. A group shares its
    processes, one a tool, until one finds something.

    Raises SanitizerUnavailable.
    """
    todo = [Batch(tool, group) for group in groups for tool in tools]
    place = {id(item): i for i, group in enumerate(groups) for item in group}
    left = [len(group) * len(tools) for group in groups]
    runs: dict[tuple[int, str], ToolRun] = {}
    with contextlib.closing(sweep_batches(todo, seats, ahead=ahead)) as answers:
        for answer in answers:
            assert answer.run is not None, "there was no end to run out of"
            for item in answer.batch.items:
                runs[id(item), answer.batch.tool] = answer.run
                i = place[id(item)]
                left[i] -= 1
                if not left[i]:
                    said = ([runs[id(each), tool] for tool in tools] for each in groups[i])
                    yield i, [sanitizer.verdict(each) for each in said]
