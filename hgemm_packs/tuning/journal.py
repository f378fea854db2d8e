"""What was measured on a GPU model, line by line, as it was measured: the evidence of its table.

Written by `session` while it holds the lock of the folder, read by it and by `contribution`. A line
is a run, which says under what conditions the lines below it were measured, or a job in the words
of the generator's exports, with its raw samples. Lines are only ever added. What is damaged is put
away, and the sound lines go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import PackError
from ..measure.lines_file import LinesFile
from ..pack.local.conditions import FIELDS, Conditions, changes
from ..pack.local.place import move_away
from ..pack.manifest_fields import (
    ALIGN,
    ARCH,
    DATE,
    DIM,
    DTYPE,
    LINE,
    NAME,
    PROBLEM_FIELDS,
    SHA256,
)
from ..pack.receipts import read_own
from ..pack.strict_json import (
    Check,
    boolean,
    integer,
    listing,
    mapping,
    number,
    one_of,
    read_json,
    record,
)
from ..problem import ALIGNED, Problem
from ..profiles import POWER_TOLERANCE, is_near
from ..settings import LOGGER

FILE = "measured.jsonl"
MAX_BYTES, MAX_LINE_BYTES = 256 << 20, 1 << 20
STAGES = ("finals", "confirm", "noise")
#: The arms that are no kernels: torch, and torch once more.
TORCH, AGAIN = "torch", "again"
Samples = Mapping[str, Mapping[str, Sequence[float]]]


class Source(NamedTuple):
    """A pack whose kernels were measured."""

    name: str
    version: str
    manifest_sha256: str


class Run(NamedTuple):
    """A GPU model and the conditions of the jobs below. `gbps` is the bandwidth of a copy; what a
    profile is known by besides may be unknown."""

    profile: str
    arch: str
    sm_count: int
    l2_bytes: int
    gbps: float
    conditions: Conditions
    packs: tuple[Source, ...]
    theoretical_mem_bw_gbps: float | None = None
    power_limit_w: float | None = None

    def changes(self, now: Run) -> list[str]:
        """What is another one now that times depend on, in words."""
        found = changes(self.conditions, now.conditions)
        then, limit = self.power_limit_w, now.power_limit_w
        if then and limit and not is_near(then, limit, POWER_TOLERANCE):
            found.append(f"the power limit was {then:g} W, is {limit:g} W")
        return found


class Measured(NamedTuple):
    """One job. `samples` has protocol -> arm -> us of each block; arms that are no kernels are in
    TORCH and AGAIN, others are ids of kernels. A "noise" job is of torch against itself, and its
    `evidence` has the ratio with its bounds by protocol. `date` is the day in UTC."""

    run: Run
    problem: Problem
    stage: str
    date: str
    samples: Samples
    evidence: Mapping[str, Any]

    @property
    def kernels(self) -> tuple[str, ...]:
        """Ids of the kernels that were measured."""
        return tuple(arm for arm in self.samples["hot"] if arm not in (TORCH, AGAIN))


def problem_values(problem: Problem) -> list[Any]:
    """A problem as a line names it: M, N, K, layout, type and, where it has one, the epilogue; with
    what addresses and strides have a say in, that and the epilogue in any case. Raises ValueError
    for what no table row of one product names."""
    p = problem
    values: list[Any] = [p.m, p.n, p.k, p.layout, p.dtype]
    if len(p.key) > 8:
        values += [p.epilogue, list(p.base), p.packed]
    elif p.epilogue != "none":
        values.append(p.epilogue)
    if problem_of(*values) != p:
        raise ValueError(f"{p} is not as a table knows problems: of one type")
    return values


def problem_of(
    m: int,
    n: int,
    k: int,
    layout: str,
    dtype: str,
    epilogue: str = "none",
    base: Sequence[int] = ALIGNED,
    packed: bool = True,
) -> Problem:
    """The problem of these values."""
    a, b, c = base
    return Problem(m, n, k, layout, dtype, epilogue=epilogue, base=(a, b, c), packed=packed)


def check_problem(value: Any) -> Problem:
    """The problem that a line names. Raises PackError."""
    if type(value) is not list or len(value) not in (5, 6, 8):
        raise PackError("wrong_type", "a problem is an array of 5, 6 or 8 values")
    checks = [DIM, DIM, DIM, PROBLEM_FIELDS["layout"], DTYPE, PROBLEM_FIELDS["epilogue"]]
    parts = [check(each) for check, each in zip(checks, value, strict=False)]
    if len(value) == 8:
        base = listing(integer(2, 16), 3, 3)(value[6])
        ALIGN(dict(zip("abc", base, strict=True)))
        parts += [base, boolean(value[7])]
    return problem_of(*parts)


def _arm(value: Any) -> Any:
    return value if value in (TORCH, AGAIN) else SHA256(value)


_TIMES = listing(number(0.001, 1e9), 1, 4096)
_SAMPLES = record(dict, hot=mapping(_arm, _TIMES, 64), cold=mapping(_arm, _TIMES, 64))
_READINGS = listing(number(0.0, 1e6), 0, 4096)
_CLOCKS = record(
    dict,
    calls=integer(1, 1 << 20),
    sets=integer(1, 1 << 20),
    flushed=boolean,
    repeated=integer(0, 4096),
    led=boolean,
    sm_mhz=_READINGS,
    power_w=_READINGS,
)
_BOUNDS = listing(number(0.0, 1e6), 3, 3)
_EVIDENCE = record(
    dict,
    {"hot": _BOUNDS, "cold": _BOUNDS},
    seed=integer(0, 1 << 62),
    finished=number(0.0, 1e11),
    conditions=record(dict, hot=_CLOCKS, cold=_CLOCKS),
)
JOB = record(
    dict,
    problem=check_problem,
    stage=one_of(*STAGES),
    date=DATE,
    kernels=mapping(SHA256, one_of("OK"), 64),
    samples=_SAMPLES,
    evidence=_EVIDENCE,
)
_SOURCE = record(Source, name=NAME, version=NAME, manifest_sha256=SHA256)


def make_run(profile: str, arch: str, packs: tuple[Source, ...], **rest: Any) -> Run:
    """A run of the values of RUN_FIELDS."""
    facts = {name: rest.pop(name) for name in (*RUN_FACTS, *RUN_OPTIONAL) if name in rest}
    return Run(profile, arch, conditions=Conditions(**rest), packs=packs, **facts)


RUN_FACTS = ("sm_count", "l2_bytes", "gbps")
#: Of a document that describes a run: what it may say, and what it says.
RUN_OPTIONAL: dict[str, Check] = {
    "theoretical_mem_bw_gbps": number(1.0, 1e6),
    "power_limit_w": number(1.0, 1e6),
}
RUN_FIELDS: dict[str, Check] = {
    "profile": LINE,
    "arch": ARCH,
    "sm_count": integer(1, 4096),
    "l2_bytes": integer(1, 1 << 40),
    "gbps": number(1.0, 1e6),
    "packs": listing(_SOURCE, 1, 64),
    **FIELDS,
}
_RUN_LINE = record(lambda run: run, run=record(make_run, RUN_OPTIONAL, **RUN_FIELDS))


def check_job(value: Any, run: Run) -> Measured:
    """A job of a run: every arm has as many samples as the others, and each kernel a status.
    Raises PackError."""
    job = JOB(value)
    stage, samples = job["stage"], job["samples"]
    arms = {TORCH, *job["kernels"], *([AGAIN] if stage == "noise" else [])}
    counts = {len(times) for each in samples.values() for times in each.values()}
    if any(set(each) != arms for each in samples.values()) or len(counts) != 1:
        raise PackError("bad_samples", "arms or numbers of samples do not match", "samples")
    if (stage == "noise") != (len(job["kernels"]) == 0) or (
        (stage == "noise") != ("hot" in job["evidence"] and "cold" in job["evidence"])
    ):
        raise PackError("bad_samples", f"kernels or bounds do not fit the stage {stage}", "stage")
    return Measured(run, job["problem"], stage, job["date"], samples, job["evidence"])


def run_values(run: Run) -> dict[str, Any]:
    """A run as a line has it."""
    said = {**run._asdict(), **run.conditions._asdict()}
    del said["conditions"]
    said = {name: value for name, value in said.items() if value is not None}
    return {**said, "packs": [each._asdict() for each in run.packs]}


def job_values(job: Measured) -> dict[str, Any]:
    """A job as a line has it."""
    return {
        "problem": problem_values(job.problem),
        "stage": job.stage,
        "date": job.date,
        "kernels": dict.fromkeys(job.kernels, "OK"),
        "samples": {
            protocol: {arm: [round_us(us) for us in times] for arm, times in arms.items()}
            for protocol, arms in job.samples.items()
        },
        "evidence": dict(job.evidence),
    }


def round_us(us: float) -> float:
    """A time in the digits that are kept: beyond what an event resolves."""
    return float(f"{us:.6g}")


def parse(lines: Iterable[bytes]) -> tuple[list[Measured], int]:
    """The jobs of these lines, and how many lines are no lines of a journal."""
    jobs: list[Measured] = []
    damaged, run = 0, None
    for line in lines:
        try:
            if len(line) > MAX_LINE_BYTES:
                raise PackError("line_too_long", f"{len(line)} bytes")
            value = read_json(line)
            if type(value) is dict and "run" in value:
                run = None  # nothing below a damaged one is known to be of the run before
                run = _RUN_LINE(value)
            elif run is None:
                raise PackError("no_run", "a job stands below no run")
            else:
                jobs.append(check_job(value, run))
        except PackError:
            damaged += 1
    return jobs, damaged


def read(folder: Path) -> tuple[list[Measured], int]:
    """The same of a folder's file, but for a torn last line; nothing where there is none. Raises
    PackError for a file that others can write to or that is too large, OSError."""
    try:
        data = read_own(folder / FILE, MAX_BYTES + 1, "bad_journal")
    except FileNotFoundError:
        return [], 0
    if len(data) > MAX_BYTES:
        raise PackError("bad_journal", f"{FILE} has more than {MAX_BYTES} bytes")
    return parse(data.split(b"\n")[:-1])


class Journal:
    """The file of a folder whose lock is held, open for adding. A damaged one is put away first,
    and its sound jobs are written to a new one. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        path = folder / FILE
        try:
            self.jobs, damaged = read(folder)
        except PackError as error:
            self.jobs, damaged = [], 1
            LOGGER.warning("%s: %s", path, error)
        if damaged:
            bad = move_away(path)
            LOGGER.warning("%s: %d lines are damaged; the file is now %s", path, damaged, bad.name)
        self._file = LinesFile(path)
        self._run: Run | None = None
        if damaged:
            again, self.jobs = self.jobs, []
            for job in again:
                self.add(job)

    def add(self, *jobs: Measured) -> None:
        """Write jobs, which are on the disk when this returns. Raises OSError."""
        for job in jobs:
            if job.run != self._run:
                self._file.write({"run": run_values(job.run)})
                self._run = job.run
            self._file.write(job_values(job))
            self.jobs.append(job)

    def close(self) -> None:
        self._file.close()
