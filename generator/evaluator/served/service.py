"""A queue of evaluations over devices, each with a process of its own: the core of both served
doors.

Called by the HTTP door and the MCP door from any thread. A job is on disk before it has a number,
and its answer before anybody hears of it; a process that dies loses the job that it had and no
other.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hgemm_packs.generator.evaluator.evaluator import timed_out
from hgemm_packs.generator.evaluator.served import book, process
from hgemm_packs.generator.evaluator.served.book import Book, Job
from hgemm_packs.generator.evaluator.served.process import Process
from hgemm_packs.generator.evaluator.served.requests import Asked, Limits, Refusal, problem_document
from hgemm_packs.generator.evaluator.served.turn import turn

PRUNED_EVERY = 1000  # jobs
log = logging.getLogger("hgemm_packs.evaluator")


@dataclass(slots=True)
class _Live:
    """A job that is not finished, or has only just been: what its readers look at."""

    job: Job
    gates: list[dict[str, Any]] = field(default_factory=list)
    cancelled: bool = False


@dataclass(slots=True)
class _Seat:
    """One device, its process while there is one, and the job that it has."""

    device: str
    log: Path
    process: Process | None = None
    live: _Live | None = None
    problem: str = ""  # why there is no process


class Service:
    """Evaluates for its owners on `devices`, named as `places.open_device` takes them, with the
    jobs in `folder`.

    Jobs that another service left unfinished there go first. Raises LockHeld when a service has the
    folder, ValueError for one with other files, CannotStart when a device cannot be opened.
    """

    def __init__(self, folder: Path, devices: Sequence[str], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._book = Book(folder)
        self._ready = threading.Condition()
        self._closed = False
        self._added = 0
        left = self._book.unfinished()
        self._queue = deque(_Live(job) for job in left)
        self._live = {live.job.id: live for live in self._queue}
        self._book.prune(self.limits.kept)
        self._seats = [
            _Seat(device, folder / f"process-{at}.log") for at, device in enumerate(devices)
        ]
        try:
            for seat in self._seats:
                seat.process = Process(seat.device, seat.log)
        except BaseException:
            self._end_processes()
            self._book.close()
            raise
        self._threads = [
            threading.Thread(target=self._serve, args=(seat,), name=f"evaluator-{at}", daemon=True)
            for at, seat in enumerate(self._seats)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, owner: str, jobs: Sequence[Asked]) -> list[Job]:
        """Queue jobs, all or none. Raises Refusal when the owner has too many that are not
        finished, or the service ends."""
        made = [
            Job(
                secrets.token_urlsafe(12),
                owner,
                book.QUEUED,
                each.candidate.document(),
                problem_document(each.problem),
                created=time.time(),
            )
            for each in jobs
        ]
        with self._ready:
            if self._closed:
                raise Refusal(503, "closing", "the service ends", 10.0)
            waiting = sum(live.job.owner == owner for live in self._live.values())
            if waiting + len(made) > self.limits.waiting:
                words = f"{waiting} jobs are not finished, {self.limits.waiting} may be"
                raise Refusal(429, "too_many_waiting", words, 10.0)
            self._book.add(made)
            for job in made:
                self._queue.append(_Live(job))
                self._live[job.id] = self._queue[-1]
            self._added += len(made)
            if self._added >= PRUNED_EVERY:
                self._added = 0
                self._book.prune(self.limits.kept)
            self._ready.notify_all()
        return made

    def view(self, owner: str, id_: str) -> dict[str, Any]:
        """A job as its owner sees it. Raises Refusal for one that the owner has not."""
        with self._ready:
            return self._view(*self._find(owner, id_))

    def wait(self, owner: str, id_: str, seconds: float) -> dict[str, Any]:
        """The same once the job is finished, or after so many seconds. Raises Refusal."""
        with self._ready:
            live, job = self._find(owner, id_)
            if live is not None:
                self._ready.wait_for(lambda: live.job.finished or self._closed, seconds)
            return self._view(live, job)

    def events(self, owner: str, id_: str, beat_s: float = 10.0) -> Iterator[dict[str, Any]]:
        """Each gate's verdict as it is there, then the job as `view` has it when it is finished or
        the service ends; the state alone whenever nothing has happened for `beat_s`. Raises
        Refusal."""
        with self._ready:
            live, job = self._find(owner, id_)
        told = 0
        while live is not None:
            with self._ready:
                self._ready.wait_for(partial(self._has_news, live, told), beat_s)
                fresh, told = live.gates[told:], len(live.gates)
                over, state = live.job.finished or self._closed, live.job.state
            yield from fresh
            if over:
                break
            if not fresh:
                yield {"state": state}
        with self._ready:
            last = self._view(live, job)
        yield last

    def last(self, owner: str, count: int = 100) -> list[dict[str, Any]]:
        """Numbers and states of the last jobs of an owner, the newest first."""
        with self._ready:
            jobs = self._book.last(owner, count)
        return [{"id": job.id, "state": job.state} for job in jobs]

    def cancel(self, owner: str, id_: str) -> dict[str, Any]:
        """End a job: it is not begun, or its process is ended and replaced. Raises Refusal for one
        that the owner has not, or that is finished."""
        with self._ready:
            live, job = self._find(owner, id_)
            if live is None or live.job.finished:
                state = (live.job if live else job).state
                raise Refusal(409, "finished", f"the job is {state} already")
            live.cancelled = True
            if live in self._queue:
                self._queue.remove(live)
                self._finish(live, live.job.ends(book.CANCELLED))
            else:
                for running in [seat.process for seat in self._seats if seat.live is live]:
                    if running is not None:
                        running.kill()
                self._ready.wait_for(lambda: live.job.finished, process.KILL_S)
            return self._view(live, job)

    def status(self) -> dict[str, Any]:
        """How many jobs wait and run, and how the devices are."""
        with self._ready:
            return {
                "queued": len(self._queue),
                "running": sum(seat.live is not None for seat in self._seats),
                "devices": [{"device": seat.device, "state": _state(seat)} for seat in self._seats],
            }

    @property
    def closed(self) -> bool:
        return self._closed

    def pids(self) -> list[int | None]:
        """The processes of the devices, None for one that is being started."""
        running = [seat.process for seat in self._seats]
        return [each.pid if each is not None else None for each in running]

    def close(self) -> None:
        """End all processes; what is queued or running stays in the folder for the next service."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        self._end_processes()
        for thread in self._threads:
            while thread.is_alive():  # it may be starting a process that was not there to end
                self._end_processes()
                thread.join(0.2)
        self._book.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_processes(self) -> None:
        for running in [seat.process for seat in self._seats]:
            if running is not None:
                running.kill()

    def _find(self, owner: str, id_: str) -> tuple[_Live | None, Job]:
        live = self._live.get(id_)
        if live is not None and live.job.owner == owner:
            return live, live.job
        job = self._book.find(owner, id_)
        if job is None:
            raise Refusal(404, "no_job", "there is no such job")
        return None, job

    def _has_news(self, live: _Live, told: int) -> bool:
        return len(live.gates) > told or live.job.finished or self._closed

    def _view(self, live: _Live | None, job: Job) -> dict[str, Any]:
        job = live.job if live else job
        seen: dict[str, Any] = {"id": job.id, "state": job.state, "problem": job.problem}
        if live is not None and live in self._queue:
            seen["ahead"] = self._queue.index(live)
        if live is not None and not job.finished:
            seen["gates"] = list(live.gates)
        return {**seen, "answer": job.answer, "error": job.error}

    def _finish(self, live: _Live, job: Job) -> None:
        """Write what became of a job, then let its readers see it. The lock is held."""
        self._book.write(job)
        live.job = job
        self._live.pop(job.id, None)
        self._ready.notify_all()

    def _serve(self, seat: _Seat) -> None:
        """One device's thread, to the end."""
        while True:
            self._ensure_process(seat)
            with self._ready:
                self._ready.wait_for(lambda: self._closed or self._queue)
                if self._closed:
                    break
                live = seat.live = self._queue.popleft()
            try:
                job = self._run(seat, live)
            except Exception as error:  # a full disk, among others: nobody may wait for ever
                log.exception("a job failed in the service")
                job = live.job.ends(book.FAILED, error=_error("internal", type(error).__name__))
            with self._ready:
                seat.live = None
                try:
                    self._finish(live, job)
                except Exception:
                    log.exception("an answer could not be written")
                    live.job = live.job.ends(book.FAILED, error=_error("internal", "not written"))
                    self._live.pop(job.id, None)
                    self._ready.notify_all()
        if seat.process is not None:
            seat.process.close()

    def _ensure_process(self, seat: _Seat) -> None:
        """A new process where the last one is gone. Where none starts the next job tries again."""
        if seat.process is not None or self._closed:
            return
        try:
            seat.process, seat.problem = Process(seat.device, seat.log), ""
        except (OSError, process.CannotStart) as error:
            seat.problem = str(error)
            log.error("no process: %s", error)

    def _run(self, seat: _Seat, live: _Live) -> Job:
        """What becomes of a job on a device."""
        with turn(seat.device, lambda: not (self._closed or live.cancelled)) as granted:
            if live.cancelled:
                return live.job.ends(book.CANCELLED)
            if not granted:  # the service ends
                return live.job
            if seat.process is None:
                return live.job.ends(book.FAILED, error=_error("no_device", seat.problem))
            running = replace(live.job, state=book.RUNNING, attempts=live.job.attempts + 1)
            with self._ready:
                self._book.write(running)
                live.job = running
                self._ready.notify_all()
            return self._ask(seat, live)

    def _ask(self, seat: _Seat, live: _Live) -> Job:
        assert seat.process is not None

        def told(gate: dict[str, Any]) -> None:
            with self._ready:
                live.gates.append(gate)
                self._ready.notify_all()

        job, limit_s = live.job, self.limits.job_s
        try:
            answer = seat.process.evaluate(job.candidate, job.problem, told, limit_s)
            return job.ends(book.DONE, answer)
        except process.TooLong:
            seat.process = None
            return job.ends(book.DONE, timed_out(limit_s).document())
        except process.Died as error:
            seat.process = None
            if live.cancelled:
                return job.ends(book.CANCELLED)
            if self._closed:  # its end was ours: the next service begins it again
                return replace(job, state=book.QUEUED, attempts=job.attempts - 1)
            return job.ends(book.FAILED, error=_error("process_died", str(error)))
        except RuntimeError as error:  # the device's: a fresh process may do better
            seat.process.close()
            seat.process = None
            return job.ends(book.FAILED, error=_error("device_failed", str(error)))


def _error(code: str, text: str) -> dict[str, str]:
    return {"code": code, "message": text[:2000]}


def _state(seat: _Seat) -> str:
    if seat.live is not None:
        return "running"
    return "idle" if seat.process is not None else "down" if seat.problem else "starting"
