"""Kernels of a pack under the protocols that a search does not use: programmatic dependent launch,
chained layers, sustained runs.

A `GpuDevice` whose workers are asked by the benchmarks through `campaign`. A reply's evidence is
the line that goes on file, raw samples included; what the figures mean is said there.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hgemm_packs import launcher
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.core.spec import PROTOCOLS, CompiledKernel, DeviceLost, Job, Reply
from hgemm_packs.generator.devices.gpu import GpuDevice
from hgemm_packs.generator.measure import contest, sustained
from hgemm_packs.generator.measure.agreement import Agreement, edges
from hgemm_packs.generator.measure.values import sample_reference
from hgemm_packs.measure import baselines, timing
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.operands import Operands, cold_sets, operands
from hgemm_packs.measure.replay import Arm, Single, Stage, stage
from hgemm_packs.measure.timing import feed, torch_arm
from hgemm_packs.problem import Problem

GOOD_FLOP_PER_US = 7e8
MIN_BLOCKS = 5
#: Cached blocks are given back above this, in bytes: sizes differ from problem to problem.
RESERVED = 1 << 36


@dataclass(frozen=True, slots=True)
class ProtocolSettings:
    """`budget_us` of GPU time for the timed replays of one problem under one protocol decides how
    many blocks it gets, from MIN_BLOCKS to `blocks`. `seconds` an arm is sustained; `candidates`
    kernels at most take part in that."""

    blocks: int = 11
    target_us: float = 300.0
    budget_us: float = 12_500.0
    seconds: float = 1.5
    candidates: int = 3

    def blocks_for(self, problem: Problem, arms: int) -> int:
        us = max(self.target_us, _flop(problem) / GOOD_FLOP_PER_US)
        return min(self.blocks, max(MIN_BLOCKS, int(self.budget_us / (arms * us))))


def _flop(problem: Problem) -> float:
    return 2.0 * problem.m * problem.n * problem.k


class Protocols(GpuDevice):
    """Job kinds "pdl", "chained" (one kernel each) and "energy" (the first kernel always takes
    part). A job that fails with the device alive answers with an "error"."""

    def __init__(self, index: int = 0, settings: ProtocolSettings | None = None) -> None:
        super().__init__(index)
        self._settings = settings or ProtocolSettings()
        self._launches: dict[tuple[str, bool], KernelArm] = {}
        self._edges: dict[str, dict[str, int]] = {}

    def run(self, job: Job) -> Reply:
        """Do a job. Raises DeviceLost, and ValueError for another kind or without a problem."""
        kinds: Mapping[str, Callable[[Job, Problem], dict[str, Any]]] = {
            "pdl": self._measure_dependent,
            "chained": self._time_chains,
            "energy": self._measure_sustained,
        }
        if job.kind not in kinds or job.problem is None:
            raise ValueError(f"no job {job.kind!r} on {job.problem}; known: {', '.join(kinds)}")
        began = time.perf_counter()
        with torch.cuda.device(self.index):
            try:
                evidence = kinds[job.kind](job, job.problem)
                torch.cuda.synchronize(self.index)
            except Exception as error:
                evidence = {"error": f"{type(error).__name__}: {error}"}
                self._still_there(evidence["error"], error)
            if torch.cuda.memory_reserved(self.index) > RESERVED:
                torch.cuda.empty_cache()
        return Reply({}, evidence=evidence, gpu_seconds=time.perf_counter() - began)

    def _still_there(self, words: str, cause: Exception) -> None:
        try:
            torch.cuda.synchronize(self.index)
        except RuntimeError:
            raise DeviceLost(words) from cause

    def arm(self, kernel: CompiledKernel, dependent: bool) -> KernelArm:
        """The kernel with or without programmatic dependent launch: one cubin, loaded once each."""
        if (kernel.id, dependent) not in self._launches:
            record = entry(kernel.fields, kernel.cubin)
            handle = launcher.load(self.index, record, kernel.cubin, dependent)
            self._launches[kernel.id, dependent] = KernelArm(handle, record.epilogue)
        return self._launches[kernel.id, dependent]

    def _both(self, kernel: CompiledKernel) -> dict[str, Arm]:
        return {"plain": self.arm(kernel, False), "pdl": self.arm(kernel, True)}

    def _measure_dependent(self, job: Job, problem: Problem) -> dict[str, Any]:
        both = self._both(job.kernels[0])
        line = self._compare_arms(
            {"torch": torch_arm(problem), **both}, problem, PROTOCOLS, job.seed
        )
        # In a chain every replay is checked against the same layers launched plainly.
        agree = Agreement(problem, "chained", 1, job.seed)
        timing.compare(
            both,
            problem,
            protocol="chained",
            blocks=1,
            target_us=1.0,
            device=self.index,
            seed=job.seed,
            between=agree,
        )
        line["wrong"] += agree.wrong
        id_ = job.kernels[0].id
        if id_ not in self._edges:
            one = operands(problem, self.index, seed=job.seed)[0]
            # Not behind the elementwise kernel: what reads ahead is launched plainly there.
            self._edges[id_] = edges([*[both["pdl"]] * 3, feed], one, stage(self.index))
        return {**line, "edges": self._edges[id_]}

    def _time_chains(self, job: Job, problem: Problem) -> dict[str, Any]:
        arms = {"torch": torch_arm(problem), **self._both(job.kernels[0])}
        return self._compare_arms(arms, problem, (*PROTOCOLS, "chained"), job.seed)

    def _compare_arms(
        self, arms: Mapping[str, Arm], problem: Problem, protocols: tuple[str, ...], seed: int
    ) -> dict[str, Any]:
        """Samples by protocol and arm in us, conditions, and what the values of `pdl` were."""
        line: dict[str, Any] = {"conditions": {}, "wrong": []}
        blocks = self._settings.blocks_for(problem, len(arms))
        for protocol in protocols:
            if protocol == "cold" and cold_sets(problem, stage(self.index).l2_bytes) == 1:
                # One set is far larger than the caches: the same figure.
                line["cold"], line["conditions"]["cold"] = line["hot"], "as hot"
                continue
            agree = Agreement(problem, protocol, blocks, seed)
            done = timing.compare(
                arms,
                problem,
                protocol=protocol,  # type: ignore[arg-type]
                blocks=blocks,
                target_us=self._settings.target_us,
                device=self.index,
                seed=seed,
                between=agree,
                overlapping=True,
            )
            line[protocol] = {
                arm: [round(us, 4) for us in done.samples[arm]] for arm in done.samples
            }
            line["conditions"][protocol] = contest.conditions(done)
            line["wrong"] += agree.wrong
        return line

    def _measure_sustained(self, job: Job, problem: Problem) -> dict[str, Any]:
        at, one = stage(self.index), operands(problem, self.index, seed=job.seed)[0]
        kernels, wrong = self._shortlist(job, problem, one, at)
        arms: dict[str, Arm] = {"torch": torch_arm(problem)}
        tuned = baselines.best_cublaslt(problem, device=self.index, seed=job.seed)
        if tuned is not None:
            arms["cublaslt"] = tuned.hot
        arms |= {str(kernel.fields["name"]): self.arm(kernel, False) for kernel in kernels}
        burst = timing.compare(
            arms,
            problem,
            blocks=contest.blocks("finals", problem),
            target_us=contest.TARGET_US,
            device=self.index,
            seed=job.seed,
        )
        order = list(arms)
        random.Random(job.seed).shuffle(order)
        runs = {
            name: sustained.sustain(arms[name], one, at, _flop(problem), self._settings.seconds)
            for name in order
        }
        return {
            "burst": {arm: [round(us, 4) for us in burst.samples[arm]] for arm in arms},
            "sustained": {arm: runs[arm] for arm in arms},
            "order": order,
            "conditions": {"hot": contest.conditions(burst)},
            "wrong": wrong,
        }

    def _shortlist(
        self, job: Job, problem: Problem, one: Operands, at: Stage
    ) -> tuple[list[CompiledKernel], list[str]]:
        """The first kernel and the best others by a single call each, as far as their values are
        right; and the names of those that are not."""
        reference, times, wrong = sample_reference(problem, one, job.seed), {}, []
        for kernel in job.kernels:
            arm = self.arm(kernel, False)
            single = Single(arm, one)
            with at.active():
                one.c.fill_(math.nan)
                arm(one.a, one.b, one.c)
                finding = reference.check(one.c)
                single.queue()
                at.stream.synchronize()
            if finding.detail:
                wrong.append(f"{kernel.fields['name']}: {finding.detail}")
            else:
                times[kernel.id] = single.us()
        right = [kernel for kernel in job.kernels if kernel.id in times]
        first = [kernel for kernel in right if kernel is job.kernels[0]]
        rest = sorted((k for k in right if k not in first), key=lambda k: times[k.id])
        return [*first, *rest][: self._settings.candidates], wrong


def make(index: int = 0, settings: ProtocolSettings | None = None) -> Protocols:
    """The device of a worker; see `gpu.make`."""
    return Protocols(index if torch.cuda.device_count() > 1 else 0, settings)
