"""A GPU that does not exist: every kind of job, answered from a model, with noise and with kernels
that fail or cheat, always the same ones.

Made by tests, by demonstrations without a GPU and to make recordings up. It compiles and runs
nothing, and no figure that comes from it is a measurement.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import median, pstdev
from typing import Any

from hgemm_packs.generator.core.space import Space, admits
from hgemm_packs.generator.core.spec import (
    JOB_KINDS,
    PROTOCOLS,
    Choice,
    CompiledKernel,
    DeviceFacts,
    DeviceLost,
    Job,
    Reply,
    Result,
    Status,
)
from hgemm_packs.generator.devices import model
from hgemm_packs.generator.devices.fake import choice_of, fake_kernel
from hgemm_packs.generator.measure.race import MAX_BLOCKS, Block, race
from hgemm_packs.problem import Problem

__all__ = ["Faults", "Noise", "SimDevice", "fake_kernel"]

SCREENED = 3  # samples of a screen
BLOCKS = {"finals": 11, "confirm": 21, "noise": 21}
#: GPU seconds of a job, and on top of it of each of its kernels.
JOB_SECONDS = {"finals": 0.3, "confirm": 0.4, "noise": 0.1, "ceilings": 3.0}
KERNEL_SECONDS = {
    **{"screen": 0.0015, "behind": 0.0015, "race": 0.02, "finals": 0.02, "confirm": 0.04},
    "gate": 0.03,
}
HANG_SECONDS = 10.0
ROUNDING = {"f16": 2.07e-4, "bf16": 1.66e-3}  # relative error of an honest product
HACK = 0.3  # of the least time that the machine allows


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of all choices that misbehave, each in one way and always.

    launch: the driver refuses it. numeric: wrong values, seen at once. subtle: wrong values that
    only the numeric gate sees. hang: never ends. lost: takes the device with it. hack: right values
    in an impossible time, which the device reports as it finds it.
    """

    launch: float = 0.0
    numeric: float = 0.0
    subtle: float = 0.0
    hang: float = 0.0
    lost: float = 0.0
    hack: float = 0.0

    def of(self, choice: Choice) -> str:
        """The name of what is wrong with a choice, or nothing."""
        left = model.uniform("fault", choice.key)
        for each in fields(self):
            left -= getattr(self, each.name)
            if left < 0.0:
                return each.name
        return ""


@dataclass(frozen=True, slots=True)
class Noise:
    """Of one sample: spread of its logarithm, and how often it is an outlier of up to 1.5 times."""

    spread: float = 0.004
    outliers: float = 0.01

    def sample(self, us: float, *words: object) -> float:
        """A measured `us`; the same words give the same noise."""
        measured = us * math.exp(self.spread * model.normal(*words))
        if model.uniform("outlier", *words) < self.outliers:
            measured *= 1.0 + 0.5 * model.uniform("how far", *words)
        return measured


class SimDevice:
    """The machine that `seed` makes: what is fast on it, and what its samples are."""

    def __init__(self, seed: int, faults: Faults | None = None, noise: Noise | None = None) -> None:
        self._seed = seed
        self._faults = faults or Faults()
        self._noise = noise or Noise()
        self._lost = ""
        self._optima: dict[Problem, tuple[Choice, float]] = {}
        self._facts = DeviceFacts(
            name="Simulated GPU",
            arch="sm_90a",
            sm_count=model.SMS,
            l2_bytes=model.L2_BYTES,
            uuid_hash=f"{seed:016x}",
            versions={"torch": "simulated", "cublas": "simulated", "driver": "simulated"},
        )

    @property
    def facts(self) -> DeviceFacts:
        """The ceilings in it are zero until a ceilings job has run here."""
        return self._facts

    def renew(self) -> SimDevice:
        """The same machine, as it was before any kernel took it."""
        return SimDevice(self._seed, self._faults, self._noise)

    def fault(self, choice: Choice) -> str:
        """Which of the Faults a choice has, or nothing."""
        return self._faults.of(choice)

    def true_us(self, choice: Choice, problem: Problem, *, cold: bool = False) -> float:
        """What an honest measurement of the choice tends to, in us."""
        return model.kernel_us(choice, problem, self._seed, cold=cold)

    def optimum(self, problem: Problem) -> tuple[Choice, float]:
        """The fastest choice that is listed for a problem and has no fault, and its true hot time
        in us."""
        if problem not in self._optima:
            honest = (choice for choice in Space(problem).core if not self.fault(choice))
            best = min(honest, key=lambda choice: self.true_us(choice, problem))
            self._optima[problem] = best, self.true_us(best, problem)
        return self._optima[problem]

    def run(self, job: Job) -> Reply:
        """Do a job. Raises DeviceLost once a kernel has taken the device, at that job and at all
        later ones, and ValueError for a job of no known kind or without the problem it needs."""
        if self._lost:
            raise DeviceLost(f"lost earlier, to {self._lost}")
        if job.kind not in JOB_KINDS:
            raise ValueError(f"no job kind {job.kind!r}; known: {', '.join(JOB_KINDS)}")
        if job.problem is None and job.kind not in ("gate", "ceilings"):
            raise ValueError(f"a {job.kind} job needs a problem")
        work = {
            "screen": self._screen,
            "behind": self._screen,
            "race": self._race,
            "gate": self._gate,
        }
        work |= {"noise": self._noise_floor, "ceilings": self._ceilings}
        reply = work.get(job.kind, self._finals)(job)
        seconds = JOB_SECONDS.get(job.kind, 0.0)
        for result in reply.results.values():
            hung = result.status is Status.TIMEOUT
            seconds += HANG_SECONDS if hung else KERNEL_SECONDS[job.kind]
        return replace(reply, gpu_seconds=seconds)

    def _screen(self, job: Job) -> Reply:
        arms, results = self._try_kernels(job)
        for id_, choice in arms.items():
            results[id_] = self._time_choice(job, choice, ("hot",), SCREENED)
        torch_us = self._samples(job, "torch", "hot", SCREENED)
        return Reply(results, {"torch": {"hot": torch_us}})

    def _race(self, job: Job) -> Reply:
        arms, results = self._try_kernels(job)
        if arms:
            full = {id_: self._time_choice(job, arms[id_], PROTOCOLS, MAX_BLOCKS) for id_ in arms}
            number = itertools.count()

            def measure(alive: Sequence[str]) -> Block:
                i = next(number)
                return {p: {id_: full[id_].samples[p][i] for id_ in alive} for p in PROTOCOLS}

            tally = race(list(arms), measure)
            for id_, result in full.items():
                status = Status.OK if id_ in tally.alive else Status.SLOWER
                seen = {p: tuple(times[id_]) for p, times in tally.samples.items()}
                results[id_] = replace(result, status=status, samples=seen)
        return Reply(results, evidence={"seed": job.seed})

    def _finals(self, job: Job) -> Reply:
        arms, results = self._try_kernels(job)
        blocks = BLOCKS[job.kind]
        for id_, choice in arms.items():
            results[id_] = self._time_choice(job, choice, PROTOCOLS, blocks)
        baselines = {
            arm: {p: self._samples(job, arm, p, blocks) for p in PROTOCOLS}
            for arm in ("torch", "cublaslt")
        }
        return Reply(results, baselines, _evidence(job))

    def _gate(self, job: Job) -> Reply:
        arms, results = self._try_kernels(job)
        for id_, choice in arms.items():
            error = 1.02 * ROUNDING[str(choice.genome["dtype"])]
            evidence = {"max_rel_err": error, "shapes_tested": 90}
            results[id_] = Result(Status.OK, evidence=evidence)
        return Reply(results, evidence={"seed": job.seed})

    def _noise_floor(self, job: Job) -> Reply:
        blocks = BLOCKS["noise"]
        samples = {
            arm: {p: self._samples(job, arm, p, blocks) for p in PROTOCOLS}
            for arm in ("torch", "again")
        }
        evidence = _evidence(job)
        for p in PROTOCOLS:
            pairs = zip(samples["torch"][p], samples["again"][p], strict=True)
            ratios = [first / second for first, second in pairs]
            # 1.645 standard errors of a median of normal samples
            half = 1.645 * 1.2533 * pstdev(ratios) / math.sqrt(blocks)
            evidence[p] = [median(ratios), median(ratios) - half, median(ratios) + half]
        return Reply({}, samples, evidence)

    def _ceilings(self, job: Job) -> Reply:
        peaks = {"peak_tflops": model.PEAK_TFLOPS, "peak_gbps": model.DRAM_GBPS}
        self._facts = replace(self._facts, peak_tflops=model.PEAK_TFLOPS, peak_gbps=model.DRAM_GBPS)
        return Reply({}, evidence=peaks)

    def _try_kernels(self, job: Job) -> tuple[dict[str, Choice], dict[str, Result]]:
        """The kernels that run, and the results of those that do not, by id. Raises DeviceLost."""
        arms, failures = {}, {}
        for kernel in job.kernels:
            choice = choice_of(kernel)
            result = self._failure(job, kernel, choice)
            if result is None:
                arms[kernel.id] = choice
            else:
                failures[kernel.id] = result
        return arms, failures

    def _failure(self, job: Job, kernel: CompiledKernel, choice: Choice) -> Result | None:
        fault = self.fault(choice)
        if fault == "lost":
            self._lost = str(kernel.fields["name"])
            raise DeviceLost(f"CUDA error in {self._lost} ({kernel.id})")
        if fault == "launch":
            return Result(Status.LAUNCH, detail="the driver refuses it (simulated)")
        if job.problem is not None and not admits(choice, job.problem):
            return Result(Status.LAUNCH, detail=f"does not admit {job.problem}")
        if fault == "hang":
            return Result(Status.TIMEOUT, detail=f"no end in {HANG_SECONDS:g} s (simulated)")
        if fault == "numeric" or (fault == "subtle" and job.kind == "gate"):
            return Result(Status.NUMERIC, detail="wrong values (simulated)")
        return None

    def _time_choice(
        self, job: Job, choice: Choice, protocols: Sequence[str], count: int
    ) -> Result:
        samples = {p: self._samples(job, choice, p, count) for p in protocols}
        return Result(Status.OK, samples, evidence={"error": ROUNDING[str(choice.genome["dtype"])]})

    def _samples(self, job: Job, arm: Choice | str, protocol: str, count: int) -> tuple[float, ...]:
        """`count` samples in us of a choice, or of a library by its name."""
        problem, cold = job.problem, protocol == "cold"
        assert problem is not None  # `run` saw to it
        if isinstance(arm, str):
            name, tuned = arm, arm == "cublaslt"
            us = model.library_us(problem, self._seed, tuned=tuned, cold=cold)
        elif self.fault(arm) == "hack":
            name, us = arm.key, HACK * model.floor_us(problem, cold=cold)
        else:
            name, us = arm.key, self.true_us(arm, problem, cold=cold)
        words = (self._seed, job.kind, job.seed, problem, name, protocol)
        return tuple(self._noise.sample(us, *words, i) for i in range(count))


def _evidence(job: Job) -> dict[str, Any]:
    """Conditions in the form of the real device, of a clock that never moves."""
    blocks = BLOCKS[job.kind]
    steady = {"sm_mhz": [model.GHZ * 1e3] * blocks, "power_w": [500.0] * blocks}
    return {"seed": job.seed, "conditions": {p: dict(steady) for p in PROTOCOLS}}
