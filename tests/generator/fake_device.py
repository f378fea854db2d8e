"""A device that computes its times from hashes and misbehaves on request, for the evaluators and
the orchestrator. Its kernels do nothing; a crash is a real crash of the process it lives in."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hgemm_packs.generator.core.spec import CompiledKernel, DeviceFacts, Job, Reply, Result, Status
from hgemm_packs.problem import Problem

TORCH_US = 12.0


def true_us(problem: Problem, kernel_id: str) -> float:
    """What a kernel takes on a problem: 10 to 20 us, unrelated from one to the next."""
    text = f"{problem} {kernel_id}".encode()
    return 10.0 + 10.0 * int.from_bytes(hashlib.sha256(text).digest()[:6], "big") / (1 << 48)


@dataclass
class FakeDevice:
    """`faults`: kernel id -> "crash", "hang", "raise", "wrong", "launch", "gate" (wrong only for
    the numeric gate), "alone" (slower than torch where it is not launched behind itself) or "hack"
    (too fast to be true). `log`: a folder for one file a process, a
    line a finished job. `sleep_s`: of each kernel."""

    index: int = 0
    faults: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    sleep_s: float = 0.0

    @property
    def facts(self) -> DeviceFacts:
        return DeviceFacts("Fake 1", "sm_90a", 132, 1 << 26, f"u{self.index}", {"torch": "0"})

    def run(self, job: Job) -> Reply:
        began = time.monotonic()
        results = {kernel.id: self._result(job, kernel) for kernel in job.kernels}
        time.sleep(self.sleep_s)
        torch = {p: self._samples(job, "torch", TORCH_US) for p in self._protocols(job)}
        evidence = {"pid": os.getpid(), "index": self.index}
        if job.kind == "ceilings":
            evidence |= {"peak_tflops": 1000.0, "peak_gbps": 4000.0}
        if job.kind == "noise":
            evidence |= {"hot": [1.0, 0.999, 1.001], "cold": [1.0, 0.998, 1.001]}
        seconds = 0.004 * max(1, len(job.kernels))  # simulated, so that budgets are exact
        reply = Reply(results, {"torch": torch}, evidence, seconds)
        if self.log is not None:
            self._write(job, began)
        return reply

    def _protocols(self, job: Job) -> tuple[str, ...]:
        return ("hot",) if job.kind == "screen" else ("hot", "cold")

    def _samples(self, job: Job, arm: str, us: float) -> tuple[float, ...]:
        rng = random.Random(f"{job.problem} {job.kind} {arm}")
        return tuple(round(us * (1 + 1e-4 * rng.uniform(-1, 1)), 6) for _ in range(5))

    def _result(self, job: Job, kernel: CompiledKernel) -> Result:
        time.sleep(self.sleep_s)
        fault = self.faults.get(kernel.id)
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif fault == "hang":
            time.sleep(600)
        elif fault == "raise":
            raise RuntimeError("sticky error")
        elif fault == "launch":
            return Result(Status.LAUNCH, {}, "too many registers")
        elif fault == "wrong" or (fault == "gate" and job.kind == "gate"):
            return Result(Status.NUMERIC, {}, "3 elements wrong")
        if job.kind == "gate":
            return Result(Status.OK, {}, "", {"max_rel_err": 2e-4, "shapes_tested": 9})
        assert job.problem is not None
        us = 1e-3 if fault == "hack" else true_us(job.problem, kernel.id)
        samples = {p: self._samples(job, kernel.id, us) for p in self._protocols(job)}
        if job.kind == "behind":
            samples["alone"] = (TORCH_US * (1.1 if fault == "alone" else 0.9),) * 5
        return Result(Status.OK, samples)

    def _write(self, job: Job, began: float) -> None:
        ids = sorted(kernel.id for kernel in job.kernels)
        line = json.dumps([job.kind, str(job.problem), ids, job.seed, began, time.monotonic()])
        assert self.log is not None
        with (self.log / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(line + "\n")


@dataclass(frozen=True)
class Make:
    """A factory that a spawned process can import."""

    faults: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    sleep_s: float = 0.0

    def __call__(self, index: int) -> FakeDevice:
        return FakeDevice(index, self.faults, self.log, self.sleep_s)


@dataclass(frozen=True)
class Counted:
    """A factory that writes down the process of each device. `alone`: only one process has the
    device at a time."""

    log: Path
    alone: bool = False

    def __call__(self, index: int) -> FakeDevice:
        before = self.log.read_text().split() if self.log.exists() else []
        with self.log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if self.alone and before and Path(f"/proc/{before[0]}").exists():
            raise RuntimeError("all CUDA-capable devices are busy or unavailable")
        return FakeDevice(index)


def broken(index: int) -> FakeDevice:
    """A factory on a machine without a GPU."""
    raise RuntimeError(f"no device {index}")
