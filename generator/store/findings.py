"""What a store says of one device, as plain values: the one view that table and report are made of.

`read` is called by both; it only reads, also while a run writes. What is a win, and what it is
worth, is decided by its callers.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from hgemm_packs.generator.core.spec import PROTOCOLS, DeviceFacts, Status, same
from hgemm_packs.generator.store.reader import Finished, StoreReader, problem_id, samples_of
from hgemm_packs.pack.manifest import Numerics
from hgemm_packs.problem import Problem

#: Every gate that the kernel met was passed; the last two only say that it is no faster.
CORRECT = frozenset((Status.OK, Status.SLOWER, Status.NOISE))
#: Nothing was built.
UNBUILT = frozenset((Status.PARSE, Status.STATIC, Status.BUILD))

#: protocol -> arm -> us per block; arms are "torch", "cublaslt" and kernel ids
Samples = Mapping[str, Mapping[str, tuple[float, ...]]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A choice (by key) that was proposed for a problem, and what became of it when screened.

    `kernel` is empty when nothing was built; `us` is infinite unless `status` is OK. `spent` is
    what screening had cost in GPU-seconds when the answer came, `seconds` this attempt's part.
    """

    problem: Problem
    choice: str
    kernel: str
    proposer: str
    operator: str
    status: Status
    us: float
    spent: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Field:
    """One finals, confirm or noise job: every arm interleaved with every other. `statuses` by
    kernel id; `date` is the day in UTC, YYYY-MM-DD; `evidence` is what the device said of the job:
    its seed, clocks and power by block, of a noise job the bounds by protocol, with the GPU that
    it was and when it was done (Unix time)."""

    problem: Problem
    stage: str
    samples: Samples
    statuses: Mapping[str, Status]
    date: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Findings:
    """`proofs` are the kernels that passed the full numeric gate, `refused` those that failed
    anywhere, with the worst status. `trials` are the jobs of torch against itself; `kernels` has
    the manifest fields, by id, of those in `fields` and `proofs`. GPU-seconds are by kind of job.
    `left_out` counts the jobs of other devices or library versions.

    `device` has the ceilings that efficiency is quoted against: of the best GEMM and best copy.
    """

    device: DeviceFacts
    attempts: tuple[Attempt, ...] = ()
    fields: tuple[Field, ...] = ()
    proofs: Mapping[str, Numerics] = field(default_factory=dict)
    refused: Mapping[str, Status] = field(default_factory=dict)
    trials: tuple[Field, ...] = ()
    kernels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    gpu_seconds: Mapping[str, float] = field(default_factory=dict)
    runs: tuple[Mapping[str, Any], ...] = ()
    left_out: int = 0

    @property
    def noise(self) -> list[dict[str, tuple[float, ...]]]:
        """Per trial, protocol -> (ratio, lower bound, upper bound)."""
        return [{p: tuple(each.evidence[p]) for p in PROTOCOLS} for each in self.trials]


def read(store: StoreReader) -> Findings:
    """Everything measured under the conditions of the last job: device and versions of torch,
    cuBLAS and driver; the rows of one table must not mix them. Of an empty store, nothing on a
    device without a name."""
    with store.snapshot():
        return _read(store)


def _read(store: StoreReader) -> Findings:
    last = store.db.execute(_LAST_DEVICE).fetchone()
    now = DeviceFacts(**json.loads(last[0])) if last else DeviceFacts("no device yet", "", 0, 0)
    here = store.alike(now)
    costs = store.db.execute(_COSTS).fetchall()
    mine = [row for row in costs if row[1] in here]

    def jobs(kind: str) -> list[Finished]:
        found = [(job, job.reply.device) for job in store.finished_jobs(kind)]
        return [job for job, device in found if device is None or same(device, now)]

    fields = tuple(
        _field(job)
        for kind in ("finals", "confirm")
        for job in jobs(kind)
        if job.reply.results  # one that failed as a whole says nothing
    )
    proofs = _proofs(store)
    gpu_seconds: dict[str, float] = {}
    for kind, _, seconds, _ in mine:
        gpu_seconds[kind] = gpu_seconds.get(kind, 0.0) + seconds
    return Findings(
        device=_device(now, jobs("ceilings")),
        attempts=tuple(_attempts(store, here)),
        fields=fields,
        proofs=proofs,
        refused=store.refused_kernels(),
        trials=tuple(_field(job) for job in jobs("noise") if "hot" in job.reply.evidence),
        kernels=_kernels(store, sorted(proofs.keys() | kernel_ids(fields))),
        gpu_seconds=gpu_seconds,
        runs=tuple(store.runs()),
        left_out=sum(row[3] for row in costs) - sum(row[3] for row in mine),
    )


def kernel_ids(fields: Iterable[Field]) -> set[str]:
    """The ids of the kernels in `fields`."""
    return {kernel for each in fields for kernel in each.statuses}


def _device(now: DeviceFacts, jobs: Iterable[Finished]) -> DeviceFacts:
    """`now` with the best ceilings that any GPU of its kind has shown; 0 while none has."""
    found = [job.reply.evidence for job in jobs]
    gemms = (each.get("gemm_tflops", each.get("peak_tflops", 0.0)) for each in found)
    copies = (each.get("peak_gbps", 0.0) for each in found)
    return replace(now, peak_tflops=max(gemms, default=0.0), peak_gbps=max(copies, default=0.0))


def _field(job: Finished) -> Field:
    arms = {**job.reply.baselines, **{k: r.samples for k, r in job.reply.results.items()}}
    samples = {
        protocol: {arm: each[protocol] for arm, each in arms.items() if protocol in each}
        for protocol in PROTOCOLS
    }
    if job.problem is None:
        raise ValueError(f"job {job.id} is a {job.kind} without a problem")
    day = datetime.datetime.fromtimestamp(job.finished, datetime.timezone.utc).date()
    statuses = {kernel: result.status for kernel, result in job.reply.results.items()}
    gpu = job.reply.device.uuid_hash if job.reply.device else ""
    evidence = {**job.reply.evidence, "gpu": gpu, "finished": round(job.finished, 3)}
    return Field(job.problem, job.kind, samples, statuses, day.isoformat(), evidence)


def _proofs(store: StoreReader) -> dict[str, Numerics]:
    return {
        kernel: Numerics("float64", v.evidence["max_rel_err"], v.evidence["shapes_tested"])
        for kernel, v in store.verdicts("numeric").items()
        if v.passed
    }


def _kernels(store: StoreReader, ids: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Manifest fields of kernels by id; of a kernel from another store's cubins, maybe none."""
    query = "SELECT fields FROM build WHERE kernel = ? ORDER BY id"
    rows = {kernel: store.db.execute(query, (kernel,)).fetchone() for kernel in ids}
    return {kernel: json.loads(row[0]) for kernel, row in rows.items() if row}


def _attempts(store: StoreReader, here: set[str | None]) -> Iterable[Attempt]:
    """Proposals with an answer, in the order of the answers; what was not built comes first and
    cost no GPU time. A choice proposed twice for a problem counts for who proposed it first."""
    screens = _screens(store, here)
    problems = {problem_id(problem): problem for problem in store.problems()}
    found: dict[tuple[str, str], Attempt] = {}
    for problem, choice, proposer, operator, text, kernel in store.db.execute(_PROPOSALS):
        key, seen = (problem, choice), screens.get((problem, kernel))
        if kernel is not None and seen is None:
            continue  # not screened yet
        old = found.get(key)
        if old is not None and (old.kernel or kernel is None):
            continue
        if old is not None:
            proposer, operator = old.proposer, old.operator
        answer = (Status(text), math.inf, 0.0, 0.0) if seen is None else seen.answer()
        found[key] = Attempt(problems[problem], choice, kernel or "", proposer, operator, *answer)
    return sorted(found.values(), key=lambda attempt: attempt.spent)


@dataclass(slots=True)
class _PooledScreen:
    """All screens of a kernel on a problem: their times pooled, the worst status, what screening
    had cost when the first was done, and their part of it."""

    spent: float
    status: Status = Status.OK
    seconds: float = 0.0
    hot: list[float] = field(default_factory=list)

    def answer(self) -> tuple[Status, float, float, float]:
        us = median(self.hot) if self.hot and self.status is Status.OK else math.inf
        return self.status, us, self.spent, self.seconds


def _screens(store: StoreReader, here: set[str | None]) -> dict[tuple[str, str], _PooledScreen]:
    """By problem id and kernel id."""
    found: dict[tuple[str, str], _PooledScreen] = {}
    costs: dict[str, tuple[float, int]] = {}
    spent = 0.0
    rows = [r for r in store.db.execute(_SCREENS) if r[2] in here]
    for job, _, _, gpu_seconds, *_ in rows:
        costs[job] = (gpu_seconds, costs.get(job, (0.0, 0))[1] + 1)
    before = None
    for job, problem, _, gpu_seconds, kernel, text, samples in rows:
        spent += gpu_seconds if job != before else 0.0
        before = job
        screen = found.setdefault((problem, kernel), _PooledScreen(spent))
        screen.seconds += gpu_seconds / costs[job][1]
        screen.hot += samples_of(samples).get("hot", ())
        if screen.status is Status.OK:
            screen.status = Status(text)
    return found


_LAST_DEVICE = (
    "SELECT facts FROM job JOIN device ON device.id = device ORDER BY finished DESC, job.id LIMIT 1"
)
_COSTS = "SELECT kind, device, sum(gpu_seconds), count(*) FROM job GROUP BY kind, device"
_PROPOSALS = """
SELECT p.problem, p.candidate, p.proposer, p.operator, b.status, b.kernel
FROM proposal p JOIN build b ON b.candidate = p.candidate ORDER BY p.rowid, b.rowid
"""
_SCREENS = """
SELECT job.id, job.problem, job.device, job.gpu_seconds, m.kernel, m.status, m.samples
FROM job JOIN measurement m ON m.job = job.id WHERE job.kind = 'screen'
ORDER BY job.finished, job.id
"""
