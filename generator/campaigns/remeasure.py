"""The confirmations and trials of an export once more: nothing is searched, screened or raced.

Called by the CLI, when the harness that measured a table was found wanting and a better one is
there. What it measures goes into a file of lines, from which it goes on, and becomes findings of
these jobs alone, which `export.union` adds to those that they follow from.
"""

from __future__ import annotations

import datetime
import secrets
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import CampaignCounts, Line, Task
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.core.problems import cost
from hgemm_packs.generator.core.spec import (
    PROTOCOLS,
    TOLERANCES,
    Choice,
    CompiledKernel,
    DeviceFacts,
    Job,
    Reply,
    Status,
    same,
)
from hgemm_packs.generator.families import makes
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import CORRECT, Field, Findings
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.tables import judge
from hgemm_packs.generator.workers.builder import Builder
from hgemm_packs.generator.workers.evaluators import Evaluator
from hgemm_packs.problem import Problem

COUNT = 3  # kernels of a problem, as many as a run's finals have
LEAST = 0.985
#: Trials of torch against itself that a noise floor wants, and how many problems one stands for in
#: a run (`finals`).
TRIALS, PROBLEMS_PER_TRIAL = 400, 20
BATCH = 64  # kernels that are built between two words of progress
_ORDER = list(Status)

#: Gains of the kernels of each problem by id, best first.
Ranked = Mapping[Problem, Mapping[str, float]]


def speedups(found: Findings) -> dict[tuple[Problem, str], float]:
    """torch over each kernel on each problem, the lower of hot and cold, by its best job: a single
    one may stray."""
    best: dict[tuple[Problem, str], float] = {}
    for each in found.fields:
        for kernel in each.statuses:
            if all(kernel in each.samples.get(protocol, ()) for protocol in PROTOCOLS):
                seen = min(judge.paired_ratio(each.samples[p], kernel) for p in PROTOCOLS)
                best[each.problem, kernel] = max(seen, best.get((each.problem, kernel), 0.0))
    return best


def rank(found: Findings, least: float = LEAST) -> dict[Problem, dict[str, float]]:
    """The kernels of each problem that may be confirmed, best first by their finals, of problems
    that have any: right, proven, of a genome that is still one, and no slower than `least` of
    torch."""
    # As finals, which have no bounds: those of confirmations take a minute.
    plain = tuple(replace(each, stage="finals" * (each.stage == "finals")) for each in found.fields)
    seen = speedups(found)
    listed = {
        problem: {
            c.kernel: c.gain
            for c in each
            if c.kernel in found.proofs
            and seen[problem, c.kernel] >= least
            and choice(found, c.kernel) is not None
        }
        for problem, each in judge.contenders(replace(found, fields=plain), {}).items()
    }
    return {problem: listed[problem] for problem in sorted(listed, key=cost) if listed[problem]}


def find_led(found: Findings) -> set[Problem]:
    """The problems that have a confirmation in led blocks already."""
    return {each.problem for each in found.fields if each.stage == "confirm" and judge.is_led(each)}


def table_wins(source: SourceManifest) -> set[Problem]:
    """The problems that a table has a kernel for."""
    return {Problem(*row.key) for row in source.table if row.kernel is not None}


def choice(found: Findings, id_: str) -> Choice | None:
    """What a kernel is built from; None where no family has such a genome today."""
    fields = found.kernels.get(id_)
    if fields is None or not makes(fields["family"], fields["genome"]):
        return None
    return Choice.of(fields["family"], fields["genome"])


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels by id, which of them each problem is confirmed with, and the names of those that are
    built otherwise now."""

    kernels: Mapping[str, CompiledKernel]
    wanted: Mapping[Problem, Sequence[str]]
    gone: Sequence[str]


def build(
    found: Findings,
    listed: Ranked,
    builder: Builder,
    kept: Container[str] | None = None,
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> Kernels:
    """The first COUNT of each problem's kernels that `builder` makes as they were; what it does not
    leaves its place to the next. Where only `kept` kernels are wanted, a problem that has none of
    them gets its best. Problems without any are left out."""
    kernels: dict[str, CompiledKernel] = {}
    gone: set[str] = set()
    while True:
        there = {p: [id_ for id_ in each if id_ not in gone] for p, each in listed.items()}
        left = {
            p: [id_ for id_ in each if kept is None or id_ in kept][:COUNT] or each[:1]
            for p, each in there.items()
        }
        fresh = sorted({id_ for each in left.values() for id_ in each} - kernels.keys())
        if not fresh:
            wanted = {problem: each for problem, each in left.items() if each}
            return Kernels(kernels, wanted, sorted(str(found.kernels[id_]["name"]) for id_ in gone))
        for start in range(0, len(fresh), BATCH):
            part = {id_: choice(found, id_) for id_ in fresh[start : start + BATCH]}
            built = builder.build([one for one in part.values() if one is not None])
            for id_, one in part.items():
                kernel = built[one] if one is not None else None
                if isinstance(kernel, CompiledKernel) and kernel.id == id_:
                    kernels[id_] = kernel
                else:
                    gone.add(id_)
            tick(len(kernels) + len(gone), len(kernels) + len(gone) + len(fresh[start + BATCH :]))


def find_missing(found: Findings, listed: Ranked, out: Path) -> dict[Problem, Mapping[str, float]]:
    """The problems whose confirmation is not on file. Raises ValueError where `out` has lines that
    are not of this export's device."""
    _headers(found, out)
    known = campaign.keys_on_file(out)
    return {p: each for p, each in listed.items() if _task("confirm", p, ()).key not in known}


def count_missing_trials(found: Findings) -> int:
    """How many of the led trials that a noise floor wants are not on file."""
    return max(0, TRIALS - sum(map(judge.is_led, found.trials)))


def tasks(
    listed: Ranked, done: Kernels, every: int | None = None, trials: int = TRIALS
) -> list[Task]:
    """A confirmation of each problem of `listed` for which there are kernels, a trial of each
    `every`-th (None: as a run has them, but `trials` at least, as far as there are problems), in an
    order that makes a run that was stopped a fair sample."""
    spread = len(listed) // trials if trials else PROBLEMS_PER_TRIAL
    each = every or max(1, min(PROBLEMS_PER_TRIAL, spread))
    problems = sorted(listed, key=cost)
    tried = set(problems[::each])
    steps = max(1, round(len(problems) ** 0.5))
    found = []
    for problem in (p for first in range(steps) for p in problems[first::steps]):
        if problem in done.wanted:
            kernels = tuple(done.kernels[id_] for id_ in done.wanted[problem])
            found.append(_task("confirm", problem, kernels))
        if problem in tried:
            found.append(_task("noise", problem, ()))
    return found


def _task(stage: str, problem: Problem, kernels: tuple[CompiledKernel, ...]) -> Task:
    fields = {"stage": stage, "problem": pack_kernels.problem_values(problem)}
    return Task(stage, problem, lambda: kernels, fields)


def check_device(found: Findings, here: DeviceFacts) -> None:
    """Raise ValueError unless figures of `here` may stand in one table with those of `found`."""
    if same(here, found.device):
        return
    names = ("name", "arch", "sm_count", "l2_bytes", "versions", *TOLERANCES)
    pairs = ((n, getattr(found.device, n), getattr(here, n)) for n in names)
    words = "; ".join(
        f"{n} {theirs} there, {ours} here" for n, theirs, ours in pairs if theirs != ours
    )
    raise ValueError(f"what is there was measured under other conditions: {words}")


def measure(
    found: Findings,
    todo: Sequence[Task],
    evaluator: Evaluator,
    out: Path,
    header: Line,
    *,
    deadline_s: float = float("inf"),
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> CampaignCounts:
    """Do the tasks that `out` does not have yet. Raises ValueError on another device than that of
    the export, and what `campaign.run` raises."""
    check_device(found, evaluator.facts())
    header = {"id": secrets.token_hex(32), **header}
    return campaign.run(
        out, todo, evaluator, header, deadline_s=deadline_s, tick=tick, line_of=line
    )


def line(task: Task, job: Job, reply: Reply) -> Line:
    """All that a Field needs. A job that says nothing of its kernels is an error, to be repeated;
    one none of whose kernels was right is one too, but stands."""
    about = {**task.fields, "fields": list(task.fields), "seed": job.seed}
    details = {id_: r.detail for id_, r in reply.results.items() if r.status not in CORRECT}
    if "failed" in reply.evidence:
        return {**about, "error": reply.evidence["failed"], "blamed": False}
    arms = {**reply.baselines, **{id_: r.samples for id_, r in reply.results.items()}}
    now = time.time()
    gpu = reply.device.uuid_hash if reply.device else ""
    about |= {
        "date": datetime.datetime.fromtimestamp(now, datetime.timezone.utc).date().isoformat(),
        "statuses": {id_: r.status.value for id_, r in reply.results.items()},
        "details": details,
        "samples": {
            p: {arm: list(map(export.round_us, us[p])) for arm, us in arms.items() if p in us}
            for p in PROTOCOLS
        },
        "evidence": {**reply.evidence, "gpu": gpu, "finished": round(now, 3)},
        "gpu_seconds": round(reply.gpu_seconds, 4),
    }
    if details and len(details) == len(reply.results):
        about |= {"error": "; ".join(details.values()), "blamed": True}
    return about


def read(found: Findings, out: Path) -> Findings:
    """The findings of the lines in `out`, of kernels and on the device of `found`. Raises
    ValueError for lines that are of others."""
    headers = _headers(found, out)
    lines = campaign.answers([out])
    jobs = [_field(each) for each in lines]
    ids = {id_ for each in jobs for id_ in each.statuses}
    if not ids <= found.proofs.keys():
        raise ValueError(f"{out} has kernels that the export has not")
    stages = sorted({each.stage for each in jobs})
    seconds = {s: sum(x["gpu_seconds"] for x in lines if x["stage"] == s) for s in stages}
    return export.union(
        [
            Findings(
                device=found.device,
                fields=tuple(each for each in jobs if each.stage != "noise"),
                trials=tuple(each for each in jobs if each.stage == "noise"),
                proofs={id_: found.proofs[id_] for id_ in ids},
                refused=_find_refused(jobs),
                kernels={id_: found.kernels[id_] for id_ in ids},
                gpu_seconds={stage: round(s, 3) for stage, s in seconds.items()},
                runs=tuple(_run(each) for each in headers),
            )
        ]
    )


def _headers(found: Findings, out: Path) -> list[Line]:
    records = read_records([out]) if out.exists() else []
    headers = [each["header"] for each in records if "header" in each]
    for each in headers:
        check_device(found, DeviceFacts(**each["device"]))
    return headers


def _field(line: Line) -> Field:
    return Field(
        problem=Problem(*line["problem"]),
        stage=line["stage"],
        samples={
            p: {arm: tuple(us) for arm, us in arms.items()} for p, arms in line["samples"].items()
        },
        statuses={id_: Status(status) for id_, status in line["statuses"].items()},
        date=line["date"],
        evidence=line["evidence"],
    )


def _find_refused(jobs: Sequence[Field]) -> dict[str, Status]:
    """As a store has it: whatever was wrong once, and what could not be launched on two problems,
    or came to no end there."""
    found: dict[str, Status] = {}
    stopped: dict[str, set[Problem]] = {}
    for each in jobs:
        for id_, status in each.statuses.items():
            if status in CORRECT:
                continue
            if status in (Status.LAUNCH, Status.TIMEOUT):
                stopped.setdefault(id_, set()).add(each.problem)
                if len(stopped[id_]) < 2:
                    continue
            found[id_] = max(found.get(id_, status), status, key=_ORDER.index)
    return found


def _run(header: Line) -> dict[str, Any]:
    """A call of this as a run of the generator is recorded; `commit` is that of the sources."""
    started = datetime.datetime.fromisoformat(header["started"]).timestamp()
    return {k: v for k, v in header.items() if k != "device"} | {"started": started}
