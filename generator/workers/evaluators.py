"""Who runs jobs: this process, or one process a GPU on this host. `ray_evaluator` has many hosts.

Called by the orchestrator, which sees futures of replies and never a process. A GPU is measured by
one process at a time, of all runs on the host; a process that dies or hangs costs its job a retry.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hgemm_packs.generator.core.spec import Device, DeviceFacts, Job, Reply, Status
from hgemm_packs.generator.store.filelock import FileLock
from hgemm_packs.generator.workers.seats import DevicesLost, Lost, SeatLost, Seats
from hgemm_packs.generator.workers.worker import BOOT, Factory, answer

__all__ = ["DevicesLost", "Evaluator", "Inline", "Local", "gpu_lock"]

#: Longer than any honest job: the gate of eight kernels, finals of the largest problem.
TIMEOUT_S = 120.0
START_S = 180.0
LOCK_WAIT_S = 15.0  # a killed run's processes may need some seconds to give up their GPU
DIED = "the worker died"
_LAST_WORDS = 400  # characters of the log that a failure quotes


class Evaluator(Protocol):
    """Runs up to `capacity` jobs at a time and queues the rest."""

    capacity: int

    def facts(self) -> DeviceFacts:
        """One of the devices; all must be of a kind."""
        ...

    def submit(self, job: Job) -> Future[Reply]:
        """Queue a job. A kernel's failure is a result; an exception ends the run."""
        ...

    def prepare(self) -> None:
        """Processes for what comes after the next `fresh` may start: a first call has them import
        what they need. A second has them take their GPU, beside jobs that nobody times."""
        ...

    def fresh(self) -> None:
        """Jobs submitted from now on run in processes that had none before, where there are
        any."""
        ...

    def close(self) -> None: ...


class Inline(Seats):
    """A device in this process: `submit` returns when the job is done. For simulation, replay and
    tests; nothing here outlives a crash, and nothing is fresh. `renew` makes another device when
    one is lost; without it the same is asked again."""

    def __init__(self, device: Device, renew: Callable[[], Device] | None = None) -> None:
        super().__init__([_InProcess(device, renew)], threads=False)
        self._facts.set_result(device.facts)

    def submit(self, job: Job) -> Future[Reply]:
        future = super().submit(job)
        while self._tasks:
            self._step(0, self._tasks.popleft())
        return future


class _InProcess:
    def __init__(self, device: Device, renew: Callable[[], Device] | None) -> None:
        self._device, self._renew = device, renew

    def start(self) -> DeviceFacts:
        return self._device.facts

    def attempt(self, job: Job) -> Reply | Lost:
        began = time.monotonic()
        try:
            return answer(self._device, job)
        except Exception as error:
            self._device = self._renew() if self._renew else self._device
            words = f"{type(error).__name__}: {error}"
            return Lost(Status.LAUNCH, words, time.monotonic() - began)

    def prepare(self) -> None: ...

    def stop(self) -> None: ...


class Local(Seats):
    """One process for each of `count` GPUs of this host (in tests: for each simulated device).

    `factory(index)`, which must be importable, makes the device inside the process, or what is
    called so ("module:name"), which this process need not import. The process sees one GPU, which
    CUDA calls 0 there. `logs` gets what the processes print. Raises LockHeld
    when another run measures on a GPU.
    """

    def __init__(
        self,
        factory: Factory | str,
        count: int,
        *,
        logs: Path,
        timeout_s: float = TIMEOUT_S,
        start_s: float = START_S,
        locks: Path | None = None,
    ) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._locks: list[FileLock] = []
        seats = []
        try:
            for index, gpu in enumerate([visible_gpu(index) for index in range(count)]):
                self._locks.append(gpu_lock(gpu, locks))
                log = logs / f"worker-{index}.log"
                lock = self._locks[-1].fd
                seats.append(_Process(factory, index, gpu, lock, log, timeout_s, start_s))
        except BaseException:
            self._release()
            raise
        super().__init__(seats)

    def close(self) -> None:
        super().close()
        self._release()

    def _release(self) -> None:
        for lock in self._locks:
            lock.close()


class _Worker(NamedTuple):
    """A spawned process that knows what makes its device. Told which, it makes it and says "ready".
    What it prints is in the log from `log_start` on."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    log_start: int

    def send(self, value: object) -> None:
        """Where it has died, who waits for its answer will see."""
        with contextlib.suppress(OSError):
            self.pipe.send(value)


class _Process:
    """A seat on a spawned process with one visible GPU. The process inherits the GPU's lock, so
    that it is held until both it and the run are gone."""

    def __init__(
        self,
        factory: Factory | str,
        index: int,
        gpu: str,
        lock: int,
        log: Path,
        timeout_s: float,
        start_s: float,
    ) -> None:
        self._factory, self._index, self._gpu = factory, index, gpu
        self._lock, self._log = lock, log
        self._timeout_s, self._start_s = timeout_s, start_s
        self._now: _Worker | None = None
        self._next: _Worker | None = None
        self._takes = False  # the next one was told to take the GPU
        self._taking = threading.Lock()

    def prepare(self) -> None:
        with self._taking:
            if self._next is None:
                self._next = self._launch()
            elif not self._takes:
                self._next.send(self._index)
                self._takes = True

    def start(self) -> DeviceFacts:
        self._end(self._now)
        with self._taking:
            self._now, told = self._next, self._takes
            self._next, self._takes = None, False
        facts = self._take_gpu(told) if self._now else None
        # A GPU that only one process may have has refused the one that was prepared.
        if facts is None or isinstance(facts, Lost):
            self._now = self._launch()
            facts = self._take_gpu()
        if isinstance(facts, Lost):
            raise SeatLost(f"GPU {self._gpu}: no worker: {facts.detail}")
        found: DeviceFacts = facts
        return found

    def _take_gpu(self, told: bool = False) -> DeviceFacts | Lost:
        assert self._now is not None
        if not told:
            self._now.send(self._index)
        facts: DeviceFacts | Lost = self._answer(self._start_s)
        return facts

    def attempt(self, job: Job) -> Reply | Lost:
        assert self._now is not None
        began = time.monotonic()
        try:
            self._now.pipe.send(job)
        except OSError:
            return self._lose(Status.LAUNCH, DIED, began)
        answer: Reply | Lost = self._answer(self._timeout_s)
        return answer

    def stop(self) -> None:
        self._end(self._now)
        self._end(self._next)

    def _launch(self) -> _Worker:
        ours, theirs = socket.socketpair()
        environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **os.environ}
        environment["CUDA_VISIBLE_DEVICES"] = self._gpu
        with theirs, self._log.open("ab") as log:
            log_start = log.tell()
            arguments = [str(theirs.fileno()), str(os.getpid()), json.dumps(sys.path)]
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-u",
                    "-c",
                    BOOT,
                    *arguments,
                ],  # last words must not wait in a buffer
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(), self._lock),
                env=environment,
            )
        worker = _Worker(process, Connection(ours.detach()), log_start)
        worker.send(self._factory)
        return worker

    def _end(self, worker: _Worker | None) -> None:
        if worker is None:
            return
        worker.process.kill()
        try:
            worker.process.wait(10.0)
        except subprocess.TimeoutExpired:  # stuck in the driver; its GPU stays locked
            return

    def _answer(self, timeout_s: float) -> Any:
        """What the process says next, or Lost, with the process gone."""
        assert self._now is not None
        began = time.monotonic()
        try:
            if not self._now.pipe.poll(timeout_s):
                return self._lose(Status.TIMEOUT, f"no answer in {timeout_s:g} s", began)
            kind, value = self._now.pipe.recv()
        except (EOFError, OSError):
            return self._lose(Status.LAUNCH, DIED, began)
        return value if kind != "lost" else self._lose(Status.LAUNCH, value, began)

    def _lose(self, status: Status, words: str, began: float) -> Lost:
        assert self._now is not None
        self._end(self._now)
        code = self._now.process.returncode
        if words == DIED and code is not None:
            words += f" of signal {-code}" if code < 0 else f" with status {code}"
        return Lost(status, words + self._said(), time.monotonic() - began)

    def _said(self) -> str:
        """The end of what the process printed."""
        assert self._now is not None
        with self._log.open("rb") as log:
            log.seek(self._now.log_start)
            text = log.read().decode(errors="replace").strip()
        return f"\n{text[-_LAST_WORDS:]}" if text else ""


def visible_gpu(index: int) -> str:
    """What CUDA_VISIBLE_DEVICES must be for the process of the `index`-th GPU that we may use."""
    ours = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not ours:
        return str(index)
    listed = [gpu.strip() for gpu in ours.split(",")]
    if index >= len(listed):
        raise ValueError(f"GPU {index} is not among CUDA_VISIBLE_DEVICES={ours}")
    return listed[index]


def gpu_lock(gpu: str, folder: Path | None = None, wait_s: float = LOCK_WAIT_S) -> FileLock:
    """The host-wide lock of a GPU, named as in CUDA_VISIBLE_DEVICES. Raises LockHeld when it is
    still taken after `wait_s` seconds."""
    folder = folder or Path(tempfile.gettempdir())
    return FileLock(folder / f"hgemm_packs-gpu-{_uuid(gpu)}.lock", wait_s)


def _uuid(gpu: str) -> str:
    """The UUID of a GPU given by number; the name itself where NVML cannot tell."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(int(gpu))))
    except (ImportError, ValueError):
        return gpu
    except pynvml.NVMLError:
        return gpu
