"""Jobs for several devices that may die: one queue, one thread a device, and who is to blame.

The common part of the local and the ray evaluator. A seat is one device's process, wherever it
runs; when it dies over a job, the job's kernels are tried one by one, and the kernel that keeps
killing is reported as failed. A job that fails through none of its kernels ends its process too,
and is believed of one that had done nothing else. Nothing here knows how a process is started.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from hgemm_packs.generator.core.spec import DeviceFacts, Job, Reply, Result, Status
from hgemm_packs.problem import Problem

#: Deaths that a kernel must take part in, the last of them alone, to be blamed.
CRASHES, TIMEOUTS = 3, 2
#: Kinds whose kernels are compared with each other: survivors run together again.
JOINT = ("race", "finals", "confirm")
#: Starts in a row that may fail before a seat is given up.
STARTS = 3


class DevicesLost(RuntimeError):
    """No device is left to run on; the message has the words of the last one."""


class SeatLost(RuntimeError):
    """A device's process could not be started."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A process died or hung over a job: LAUNCH or TIMEOUT, its last words, the seconds it took."""

    status: Status
    detail: str
    seconds: float


class Seat(Protocol):
    """The process of one device. All other calls come from one thread."""

    def prepare(self) -> None:
        """Begin to start the next process, if that can be done beside this one; asked again, have
        it take its GPU. Any thread may call."""
        ...

    def start(self) -> DeviceFacts:
        """End the process, if there is one, and start a new one. Raises SeatLost."""
        ...

    def attempt(self, job: Job) -> Reply | Lost:
        """Run a job; after Lost the process is gone."""
        ...

    def stop(self) -> None: ...


@dataclass(slots=True)
class _Task:
    job: Job
    generation: int
    done: Callable[[Reply], None]
    failed: Callable[[BaseException], None]
    deaths: tuple[Lost, ...] = ()
    spent: float = 0.0  # seconds of deaths that no reply has been charged with


@dataclass(slots=True)
class _Gathering:
    """Replies of a task's kernels, one by one; when all are in, the task is answered."""

    push: Callable[..., None]
    task: _Task
    replies: list[Reply] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, reply: Reply) -> None:
        with self.lock:
            self.replies.append(reply)
            if len(self.replies) < len(self.task.job.kernels):
                return
        blamed = {k: r for each in self.replies for k, r in each.results.items() if _is_blamed(r)}
        alive = tuple(k for k in self.task.job.kernels if k.id not in blamed)
        if self.task.job.kind in JOINT and len(alive) > 1:
            job = replace(self.task.job, kernels=alive)
            self.push(replace(self.task, job=job, done=self._joint), first=True)
        else:
            # The last one's baselines stand: those that ran beside the survivor, if there is one.
            by_outcome = sorted(self.replies, key=lambda each: not blamed.keys() & each.results)
            self.task.done(_unite_replies(by_outcome))

    def _joint(self, reply: Reply) -> None:
        alone = self.replies
        if "failed" in reply.evidence:  # what ran alone was compared with nothing
            blamed = ({k: r for k, r in e.results.items() if _is_blamed(r)} for e in alone)
            alone = [
                replace(e, results=r, baselines={}) for e, r in zip(alone, blamed, strict=True)
            ]
        self.task.done(_unite_replies([*alone, reply]))


class Seats:
    """An evaluator over seats. Jobs go to the seat that had their problem last, if it is waiting:
    it has the operands. No process runs jobs from both sides of a `fresh`.

    Without `threads` a subclass takes the steps itself.
    """

    def __init__(self, seats: Sequence[Seat], *, threads: bool = True) -> None:
        self.capacity = len(seats)
        self._seats = tuple(seats)
        self._tasks: deque[_Task] = deque()
        self._ready = threading.Condition()
        self._generation = 0
        self._generations = [-1] * len(seats)  # -1: no process
        self._failures = [0] * len(seats)
        self._used = [False] * len(seats)  # the process has had jobs
        self._closed = False
        self._last_words = ""
        self._home: dict[Problem | None, int] = {}
        self._idle: set[int] = set()  # seats that wait for tasks
        self._facts: Future[DeviceFacts] = Future()
        self._threads = [
            threading.Thread(target=self._serve, args=(i,), name=f"seat-{i}", daemon=True)
            for i in range(len(seats) if threads else 0)
        ]
        for thread in self._threads:
            thread.start()

    def facts(self) -> DeviceFacts:
        """One of the devices, once its process is up. Raises DevicesLost when none comes up."""
        return self._facts.result()

    def submit(self, job: Job) -> Future[Reply]:
        """Queue a job. Failures of kernels are results; DevicesLost when no device is left."""
        future: Future[Reply] = Future()

        def fail(error: BaseException) -> None:
            if not future.done():  # several parts of one job may fail
                future.set_exception(error)

        self._push(_Task(job, self._generation, future.set_result, fail))
        return future

    def prepare(self) -> None:
        """Processes for what comes after the next `fresh` begin to start, or, where they have, take
        their GPUs. Where none can be started now, they are when they are needed."""
        for seat in self._seats:
            with contextlib.suppress(OSError):
                seat.prepare()

    def fresh(self) -> None:
        """Jobs submitted from now on run in processes that had none before."""
        self._generation += 1

    def close(self) -> None:
        """End all processes; what was queued or running fails with DevicesLost."""
        with self._ready:
            self._closed = True
            self._last_words = "the evaluator was closed"
            self._ready.notify_all()
        for thread, seat in zip(self._threads, self._seats, strict=False):
            while thread.is_alive():  # it may be starting a process that was not there to stop
                seat.stop()
                thread.join(0.2)
        self._push()

    def __enter__(self) -> Seats:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _push(self, *tasks: _Task, first: bool = False) -> None:
        """Queue tasks, behind or before all others; without a device left, fail all."""
        with self._ready:
            if first:
                self._tasks.extendleft(reversed(tasks))
            else:
                self._tasks.extend(tasks)
            lost: list[_Task] = []
            lost_all = self._closed or min(self._failures) >= STARTS
            if lost_all:
                lost, self._tasks = list(self._tasks), deque()
            self._ready.notify_all()
            if lost_all and not self._facts.done():
                self._facts.set_exception(DevicesLost(self._last_words))
        for task in lost:
            task.failed(DevicesLost(self._last_words))

    def _serve(self, index: int) -> None:
        """One device's thread, to the end. No task waits for a process to start: it might not."""
        generation = 0
        while not self._closed and self._failures[index] < STARTS:
            if not self._ensure_started(index, generation):
                self._push()
            elif (task := self._take(index)) is None:
                break
            elif task.generation == generation:
                try:
                    self._step(index, task)
                except Exception as error:  # nothing that a device does; nobody may wait for it
                    self._generations[index] = -1
                    task.failed(error)
                self._used[index] = True
            else:
                generation = task.generation
                self._push(task, first=True)
        self._seats[index].stop()

    def _ensure_started(self, index: int, generation: int) -> bool:
        """Whether the seat has a process of this generation, started now if need be."""
        if self._generations[index] == generation:
            return True
        try:
            facts = self._seats[index].start()
        except Exception as error:  # SeatLost, or what the host refuses, such as a process
            self._generations[index] = -1
            self._failures[index] += 1
            self._last_words = str(error) if isinstance(error, SeatLost) else repr(error)
            return False
        self._generations[index] = generation
        self._failures[index] = 0
        self._used[index] = False
        with self._ready:
            if not self._facts.done():
                self._facts.set_result(facts)
        return True

    def _step(self, index: int, task: _Task) -> None:
        """Run a task on a seat that has a process."""
        answer = self._seats[index].attempt(task.job)
        if isinstance(answer, Lost):
            self._generations[index] = -1
            self._settle(task, answer)
            return
        spent = answer.gpu_seconds + task.spent
        failed = "failed" in answer.evidence
        if failed:
            self._generations[index] = -1
        if failed and self._used[index]:  # of jobs before it may be what it lacks, or stumbled over
            self._push(replace(task, spent=spent), first=True)
        else:
            task.done(replace(answer, gpu_seconds=spent))

    def _take(self, index: int) -> _Task | None:
        """The next task for a seat: the first of a problem that no other seat is at home with, else
        the first whose home has other work. None when closed."""
        with self._ready:
            self._idle.add(index)
            while not self._closed:
                homes = [(self._home.get(t.job.problem, index), t) for t in self._tasks]
                mine = [task for home, task in homes if home == index]
                free = mine or [task for home, task in homes if home not in self._idle]
                if free:
                    self._idle.remove(index)
                    self._tasks.remove(free[0])
                    self._home[free[0].job.problem] = index
                    self._ready.notify_all()  # its other tasks are for anybody now
                    return free[0]
                self._ready.wait()
            return None

    def _settle(self, task: _Task, lost: Lost) -> None:
        """Who killed the process? Several suspects run alone next; one is blamed when it is enough.
        A job that killed CRASHES processes without a kernel, or with several of which none did so
        alone, fails as a whole."""
        kernels, deaths = task.job.kernels, (*task.deaths, lost)
        task = replace(task, deaths=deaths, spent=task.spent + lost.seconds)
        timeouts = sum(death.status is Status.TIMEOUT for death in deaths)
        if len(deaths) >= CRASHES or (timeouts >= TIMEOUTS and len(kernels) <= 1):
            if len(kernels) == 1:
                blame = Result(lost.status, detail=lost.detail)
                task.done(Reply({kernels[0].id: blame}, gpu_seconds=task.spent))
            else:
                task.done(Reply({}, {}, {"failed": lost.detail}, task.spent))
        elif len(kernels) > 1:
            gathering = _Gathering(self._push, replace(task, spent=0.0))
            alone = [
                replace(task, job=replace(task.job, kernels=(k,)), done=gathering.add, spent=0.0)
                for k in kernels
            ]
            alone[0].spent = task.spent
            self._push(*alone, first=True)
        else:
            self._push(task, first=True)


def _is_blamed(result: Result) -> bool:
    return result.status in (Status.LAUNCH, Status.TIMEOUT)


def _unite_replies(replies: Sequence[Reply]) -> Reply:
    """Parts of one job as one reply: later results and baselines win, costs add up."""
    merged = replies[-1]
    for each in reversed(replies[:-1]):
        merged = replace(
            merged,
            results={**each.results, **merged.results},
            baselines={**each.baselines, **merged.baselines},
            evidence={**each.evidence, **merged.evidence},
            gpu_seconds=each.gpu_seconds + merged.gpu_seconds,
            device=merged.device or each.device,
        )
    return merged
