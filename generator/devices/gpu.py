"""A real CUDA GPU as a `spec.Device`: every kind of job through the project's own launcher.

Made by the evaluator's workers with `make`, one GPU each. Kernels arrive as cubins with their
launch records and are loaded once; what a kernel does wrong is a result, and only a lost context is
an exception. How things are measured is `measure`'s business, what times mean is the caller's.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import torch

from hgemm_packs import launcher, profiles, report
from hgemm_packs.generator.compile.candidate import CandidateError, entry
from hgemm_packs.generator.core.spec import (
    CompiledKernel,
    DeviceFacts,
    DeviceLost,
    Job,
    Reply,
    Result,
    Status,
)
from hgemm_packs.generator.gates import numeric
from hgemm_packs.generator.gates.state import gate as state
from hgemm_packs.generator.measure import ceilings, contest
from hgemm_packs.generator.measure.admission import Admission
from hgemm_packs.generator.measure.audit import Audit, apply_audit
from hgemm_packs.generator.measure.screening import Scenes
from hgemm_packs.measure import baselines
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.replay import stage
from hgemm_packs.measure.timing import Comparison
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import Problem

Samples = dict[str, dict[str, tuple[float, ...]]]

#: Scenes of problems met before may hold this share of the device's memory.
SCENES_SHARE = 0.25
#: Kernels fastest behind one another that are level with torch alone: more than are confirmed, for
#: some fail the gate.
ENOUGH_LEVEL = 6


class Loaded(NamedTuple):
    """A kernel on the device: its record, the kernel as an arm, and how many of its CTAs run at a
    time."""

    entry: KernelEntry
    arm: KernelArm
    max_ctas: int


class JobFailed(RuntimeError):
    """A job failed through none of its kernels; the cause says how."""


class GpuDevice:
    """CUDA device `index` of this process. Raises RuntimeError when there is none.

    Modules stay loaded for good, as the launcher wants it: a captured graph might replay them. A
    kernel's takes some tens of KB of device memory.
    """

    def __init__(self, index: int = 0) -> None:
        self.index = index
        info = launcher.device_info(index)
        properties = torch.cuda.get_device_properties(index)
        self._facts = DeviceFacts(
            name=info.name,
            arch=info.arch,
            sm_count=info.sm_count,
            l2_bytes=info.l2_bytes,
            uuid_hash=hashlib.sha256(str(properties.uuid).encode()).hexdigest()[:16],
            versions=report.runtime_versions(index),
            theoretical_mem_bw_gbps=info.theoretical_mem_bw_gbps or 0.0,
            power_limit_w=profiles.power_limit_w(info) or 0.0,
        )
        self._kernels: dict[str, Loaded] = {}
        self._dependent: dict[str, Loaded] = {}
        self._scenes = Scenes(index, int(SCENES_SHARE * properties.total_memory))

    @property
    def facts(self) -> DeviceFacts:
        """The ceilings in it are zero until a ceilings job has run here."""
        return self._facts

    def run(self, job: Job) -> Reply:
        """Do a job; `gpu_seconds` is its wall time. Raises DeviceLost, ValueError for a job of no
        known kind or without the problem that its kind needs, and RuntimeError where kernels fail
        that nobody can tell apart."""
        jobs: Mapping[str, Callable[[Job], Reply]] = {
            "screen": self._screen,
            "behind": self._time_dependent,
            "race": self._race,
            "finals": self._finals,
            "confirm": self._finals,
            "gate": self._gate,
            "noise": self._noise,
            "ceilings": self._ceilings,
        }
        if job.kind not in jobs:
            raise ValueError(f"no job kind {job.kind!r}; known: {', '.join(jobs)}")
        began = time.perf_counter()
        with torch.cuda.device(self.index):
            try:
                reply = jobs[job.kind](job)
                torch.cuda.synchronize(self.index)
            except (JobFailed, torch.OutOfMemoryError) as error:
                why = error.__cause__ or error
                reply = Reply({}, evidence={"failed": f"{type(why).__name__}: {why}"})
        return replace(reply, gpu_seconds=time.perf_counter() - began)

    def _load_kernel(self, kernel: CompiledKernel) -> Loaded:
        """The kernel, loaded on first use. Raises CandidateError, RuntimeError or ValueError."""
        return self._load(kernel, self._kernels, dependent=False)

    def _load_dependent(self, kernel: CompiledKernel) -> Loaded:
        """The kernel as it is launched behind one of ours in a graph. Raises the same."""
        return self._load(kernel, self._dependent, dependent=True)

    def _load(self, kernel: CompiledKernel, there: dict[str, Loaded], *, dependent: bool) -> Loaded:
        if kernel.id not in there:
            record = entry(kernel.fields, kernel.cubin)
            handle = launcher.load(self.index, record, kernel.cubin, dependent)
            there[kernel.id] = Loaded(record, KernelArm(handle, record.epilogue), handle.max_ctas)
        return there[kernel.id]

    def _each(
        self,
        job: Job,
        work: Callable[[Loaded], Result],
        loaded: Callable[[CompiledKernel], Loaded] | None = None,
    ) -> dict[str, Result]:
        """`work` on each kernel by its id; failures that leave the device alive are results."""
        loaded = loaded or self._load_kernel
        results = {}
        for kernel in job.kernels:
            try:
                results[kernel.id] = work(loaded(kernel))
            except CandidateError as error:
                results[kernel.id] = Result(Status.PARSE, detail=str(error))
            except numeric.NumericError as error:
                self._probe(kernel, error)  # a fault of memory is one, too
                results[kernel.id] = Result(Status.NUMERIC, detail=str(error))
            except torch.OutOfMemoryError:  # this job's operands, not this kernel
                raise
            except (RuntimeError, ValueError) as error:
                self._probe(kernel, error)
                results[kernel.id] = Result(Status.LAUNCH, detail=str(error))
        return results

    def _probe(self, kernel: CompiledKernel, cause: Exception) -> None:
        """Raise DeviceLost unless the device still answers: errors that stick come back at every
        later call."""
        try:
            torch.cuda.synchronize(self.index)
        except RuntimeError as error:
            name = kernel.fields.get("name")
            raise DeviceLost(f"CUDA error in {name} ({kernel.id}): {error}") from cause

    def _screen(self, job: Job) -> Reply:
        return self._screen_kernels(job, self._load_kernel, overlapping=False)

    def _time_dependent(self, job: Job) -> Reply:
        """A screen in whose graphs each call is launched dependent behind the one before. "alone"
        has times of ordinary launches, from the fastest kernel on until ENOUGH_LEVEL are no slower
        than torch: nobody asks for more."""
        reply = self._screen_kernels(job, self._load_dependent, overlapping=True)
        timed = {
            id_: median(us) for id_, r in reply.results.items() if (us := r.samples.get("hot"))
        }
        kernels = {kernel.id: kernel for kernel in job.kernels}
        results, level = dict(reply.results), 0
        for id_ in sorted(timed, key=timed.__getitem__):
            one = replace(job, kernels=(kernels[id_],))
            alone = self._screen_kernels(one, self._load_kernel, overlapping=False).results[id_]
            us = alone.samples.get("hot", ())
            both = replace(results[id_], samples={**results[id_].samples, "alone": us})
            results[id_] = both if us else alone
            level += bool(us) and median(us) <= median(reply.baselines["torch"]["hot"])
            if level == ENOUGH_LEVEL:
                break
        return replace(reply, results=results)

    def _screen_kernels(
        self, job: Job, loaded: Callable[[CompiledKernel], Loaded], *, overlapping: bool
    ) -> Reply:
        problem = _problem(job)
        with _without_kernels():
            scene = self._scenes.of(problem, job.seed)

        def work(one: Loaded) -> Result:
            finding, samples = scene.screen(one.arm, overlapping=overlapping)
            if finding.detail:
                return Result(Status.NUMERIC, detail=finding.detail)
            return Result(Status.OK, {"hot": samples}, evidence={"error": finding.error})

        return Reply(self._each(job, work, loaded), {"torch": {"hot": scene.torch_us}})

    def _admit_kernels(self, job: Job, problem: Problem) -> dict[str, Result]:
        """Results so far: each kernel once on operands of the job's seed, against float64."""

        with _without_kernels():
            admission = Admission(problem, self.index, job.seed)

        def work(one: Loaded) -> Result:
            finding = admission.check(one.arm)
            if finding.detail:
                return Result(Status.NUMERIC, detail=finding.detail)
            return Result(Status.OK, evidence={"error": finding.error})

        return self._each(job, work)

    def _arms(self, results: Mapping[str, Result]) -> dict[str, KernelArm]:
        return {id_: self._kernels[id_].arm for id_, r in results.items() if r.status is Status.OK}

    def _race(self, job: Job) -> Reply:
        problem = _problem(job)
        results = self._admit_kernels(job, problem)
        arms = self._arms(results)
        if arms:
            tally = contest.sprint(arms, problem, device=self.index, seed=job.seed)
            for id_ in arms:
                samples = {p: tuple(times[id_]) for p, times in tally.samples.items()}
                status = Status.OK if id_ in tally.alive else Status.SLOWER
                results[id_] = replace(results[id_], status=status, samples=samples)
        return Reply(results, evidence={"seed": job.seed})

    def _finals(self, job: Job) -> Reply:
        """Finals, and confirm, which also audits timed launches."""
        problem = _problem(job)
        results = self._admit_kernels(job, problem)
        arms = self._arms(results)
        audit = Audit(problem, list(arms), job.seed) if job.kind == "confirm" else None
        with _without_kernels():
            tuned = baselines.best_cublaslt(problem, device=self.index, seed=job.seed)
        done = contest.finals(
            arms,
            problem,
            tuned,
            blocks=contest.blocks(job.kind, problem),
            device=self.index,
            seed=job.seed,
            audit=audit,
        )
        samples = _samples(done)
        for id_ in arms:
            results[id_] = apply_audit(replace(results[id_], samples=samples.pop(id_)), id_, audit)
        evidence = self._evidence(job, done)
        evidence["algorithms"] = tuned.algorithms if tuned else 0
        return Reply(results, samples, evidence)

    def _gate(self, job: Job) -> Reply:
        place = torch.device("cuda", self.index)

        def work(one: Loaded) -> Result:
            seen = numeric.check(
                one.entry, one.arm, place, self._facts.sm_count, job.seed, one.max_ctas
            )
            state.check_kernel(one.entry, one.arm.kernel, self.index, job.seed)
            evidence = {"max_rel_err": seen.max_rel_err, "shapes_tested": seen.shapes_tested}
            return Result(Status.OK, evidence=evidence)

        return Reply(self._each(job, work), evidence={"seed": job.seed})

    def _noise(self, job: Job) -> Reply:
        problem = _problem(job)
        blocks = contest.blocks(job.kind, problem)
        with _without_kernels():
            done = contest.noise(problem, blocks=blocks, device=self.index, seed=job.seed)
        evidence = self._evidence(job, done)
        for protocol, each in done.items():
            ratio = each.ratio("torch", "again", seed=job.seed)
            evidence[protocol] = [ratio.value, ratio.lcb, ratio.ucb]
        return Reply({}, _samples(done), evidence)

    def _ceilings(self, job: Job) -> Reply:
        with _without_kernels():
            streams = ceilings.measure_streams(self.index)
            gemms = ceilings.measure_gemms(self.index, job.seed)
        mhz = stage(self.index).telemetry.top_sm_mhz()
        tensor = ceilings.tensor_tflops(self._facts.arch, self._facts.sm_count, mhz)
        evidence = ceilings.ceilings(gemms, streams, tensor)
        peaks = {name: evidence[name] for name in ("peak_tflops", "peak_gbps")}
        self._facts = replace(self._facts, **peaks)
        return Reply({}, evidence=evidence)

    def _evidence(self, job: Job, done: Mapping[str, Comparison]) -> dict[str, Any]:
        conditions = {protocol: contest.conditions(each) for protocol, each in done.items()}
        return {"seed": job.seed, "conditions": conditions}


@contextlib.contextmanager
def _without_kernels() -> Iterator[None]:
    """Inside no kernel of the job runs: whatever is raised fails the job. Where the device went
    with it, the evaluator has the process replaced like any that failed a job."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise JobFailed from error


def _problem(job: Job) -> Problem:
    if job.problem is None:
        raise ValueError(f"a {job.kind} job needs a problem")
    return job.problem


def _samples(done: Mapping[str, Comparison]) -> Samples:
    """arm -> protocol -> us."""
    arms = next(iter(done.values())).samples
    return {arm: {p: tuple(each.samples[arm]) for p, each in done.items()} for arm in arms}


def make(index: int = 0) -> GpuDevice:
    """The device of a worker, which sees one GPU, whichever of the host's it is; where a process
    sees several, the `index`-th. A module-level function: it is sent to spawned processes."""
    return GpuDevice(index if torch.cuda.device_count() > 1 else 0)
