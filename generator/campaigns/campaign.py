"""Many jobs on all GPUs of this host, each answer a line on file before the run goes on.

Used by `generate measure`, `refine` and `remeasure`, and by benchmarks over whole spaces. A run
that was killed, or stopped at its deadline, goes on where it was when it is started again. What a
line means is the business of who asked.
"""

from __future__ import annotations

import datetime
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from hgemm_packs import report
from hgemm_packs.cli.console import console, progress
from hgemm_packs.generator.compile import compiler, pack_kernels
from hgemm_packs.generator.compile.pack_kernels import Asked, Packed
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.core.spec import CompiledKernel, Job, Reply
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.workers.evaluators import Evaluator
from hgemm_packs.measure.lines_file import LinesFile as LinesFile
from hgemm_packs.problem import Problem

Line = dict[str, Any]

#: A run none of whose first answers is right would spend the GPU's time on nothing.
FIRST = 8


class Described(Protocol):
    """What kernels come from: a pack, or a folder of kernels."""

    @property
    def facts(self) -> Mapping[str, Any]: ...


class Hopeless(RuntimeError):
    """The first FIRST jobs all failed; the message has the words of the last."""


@dataclass(frozen=True, slots=True)
class Task:
    """One job to be, on a problem where its kind has one. `fields`, JSON values, are what its line
    is known by."""

    kind: str
    problem: Problem | None
    kernels: Callable[[], tuple[CompiledKernel, ...]]
    fields: Mapping[str, Any]

    @property
    def key(self) -> str:
        return json.dumps(dict(self.fields), sort_keys=True)


@dataclass(slots=True)
class CampaignCounts:
    """How a run ended: lines written, failures among them, tasks left, the last failure's words."""

    written: int = 0
    failed: int = 0
    left: int = 0
    words: str = ""

    @property
    def whole(self) -> bool:
        """Whether nothing failed and nothing is left."""
        return not self.failed + self.left

    @property
    def hopeless(self) -> bool:
        """Whether all of the FIRST lines are failures."""
        return self.failed == self.written == FIRST

    def count(self, line: Line, of: object) -> None:
        """Count a written line of the task `of`."""
        self.left -= 1
        self.written += 1
        if "error" in line:
            self.failed += 1
            self.words = f"{of}: {line['error']}"


def lines(paths: Sequence[Path]) -> tuple[list[Line], list[Line]]:
    """Headers and the last line of each task that has figures. Raises OSError."""
    headers, last = [], {}
    for record in read_records(paths):
        if "header" in record:
            headers.append(record["header"])
        elif "error" not in record:
            last[_key(record, record.get("fields", ()))] = record
    return headers, list(last.values())


def answers(paths: Sequence[Path]) -> list[Line]:
    """Every line with figures, also of a task that was repeated, and those of kernels that killed
    their process: what no decision may overlook. Raises OSError."""
    return [
        line for line in read_records(paths) if "header" not in line and line.get("blamed", True)
    ]


def _key(line: Line, fields: Sequence[str]) -> str:
    return json.dumps({name: line[name] for name in fields}, sort_keys=True)


def keys_on_file(out: Path) -> set[str]:
    """Keys of the tasks that need not run again: with figures, or with a kernel that killed its
    process."""
    records = read_records([out]) if out.exists() else []
    return {
        _key(line, line["fields"])
        for line in records
        if "fields" in line and ("error" not in line or line["blamed"])
    }


def run(
    out: Path,
    tasks: Sequence[Task],
    evaluator: Evaluator,
    header: Line,
    *,
    deadline_s: float = float("inf"),
    tick: Callable[[int, int], None] = lambda done, total: None,
    line_of: Callable[[Task, Job, Reply], Line] | None = None,
) -> CampaignCounts:
    """Do the tasks that `out` does not have yet, in their order. At the deadline what still runs
    is dropped. `line_of` makes the lines of devices whose evidence is not all that they say. Raises
    Hopeless, and DevicesLost when no GPU is left."""
    ends = time.monotonic() + deadline_s
    known = keys_on_file(out)
    todo = [task for task in tasks if task.key not in known]
    tally, file = CampaignCounts(left=len(todo)), LinesFile(out)
    tick(len(tasks) - len(todo), len(tasks))
    try:
        if todo:
            started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            device = asdict(evaluator.facts())
            file.write({"header": {**header, "started": started, "device": device}})
        for task, job, reply in _answers(todo, evaluator, ends):
            line = (line_of or _line)(task, job, reply)
            file.write(line)
            tally.count(line, job.problem or task.key)
            if tally.hopeless:
                raise Hopeless(tally.words)
            tick(len(tasks) - tally.left, len(tasks))
    finally:
        file.close()
    return tally


def _answers(
    todo: Sequence[Task], evaluator: Evaluator, ends: float
) -> Iterator[tuple[Task, Job, Reply]]:
    """Replies as they come; each GPU has one job queued behind the one that runs."""
    waiting: dict[Future[Reply], tuple[Task, Job]] = {}
    queue = iter(todo)
    while True:
        while len(waiting) < 2 * evaluator.capacity and time.monotonic() < ends:
            task = next(queue, None)
            if task is None:
                break
            job = Job(task.kind, task.problem, task.kernels(), secrets.randbits(40))
            waiting[evaluator.submit(job)] = task, job
        if not waiting or time.monotonic() >= ends:
            return
        patience = min(3600.0, ends - time.monotonic())
        done = wait(waiting, patience, FIRST_COMPLETED).done
        for future in [each for each in waiting if each in done]:
            yield *waiting.pop(future), future.result()


def _line(task: Task, job: Job, reply: Reply) -> Line:
    line = {**task.fields, "fields": list(task.fields), "seed": job.seed}
    if reply.device is not None:
        line["gpu"] = reply.device.uuid_hash
    blamed = [result.detail for result in reply.results.values()]
    if blamed:
        return {**line, "error": "; ".join(blamed), "blamed": True}
    error = reply.evidence.get("error", reply.evidence.get("failed"))
    if error is not None:
        return {**line, "error": error, "blamed": False}
    return {**line, **reply.evidence}


@dataclass(frozen=True, slots=True)
class CampaignOptions:
    """Where the lines of a campaign go, and what it may take: `gpus` of this host, seconds in all
    and of a problem. `commit` is that of the sources, None: git is asked."""

    out: Path
    gpus: int = 1
    deadline: float = float("inf")
    timeout: float = 120.0
    commit: str | None = None

    @property
    def sources(self) -> str:
        """The commit as a header has it, with a + where files were changed since."""
        info = compiler.generator_info()
        return self.commit or (info.commit + ("+" if info.dirty else ""))


@dataclass(frozen=True, slots=True)
class ProblemFilter:
    """Which problems to measure: a list or a file, as `pack_kernels.read` takes it, None: those of
    the pack's table; then filters."""

    shapes: str | None = None
    layouts: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    regimes: Sequence[str] = ()
    every: int = 1


def select(pack: Packed, wanted: ProblemFilter) -> list[Asked]:
    """The problems of a selection, each with the kernel that it names for it, in an order that
    makes a run that was stopped a fair sample. Raises PackError, ValueError and OSError."""
    found = (
        pack_kernels.read(wanted.shapes) if wanted.shapes else [(p, None) for p in pack.measured]
    )
    filters = (wanted.layouts, wanted.dtypes, wanted.regimes)
    kept = set(problems.filter([problem for problem, _ in found], *filters))
    chosen = sorted(
        {each for each in found if each[0] in kept},
        key=lambda each: (problems.cost(each[0]), each[1] or ""),
    )[:: wanted.every]
    steps = max(1, round(len(chosen) ** 0.5))
    return [each for first in range(steps) for each in chosen[first::steps]]


def measure(
    plan: CampaignOptions,
    pack: Described,
    tasks: Sequence[Task],
    make: Callable[[int], Any],
    header: Line,
) -> CampaignCounts:
    """Do the tasks on this host's GPUs, a process each, and say how that ended. Raises what `run`
    does."""
    from hgemm_packs.generator.workers.evaluators import Local

    python = sys.version.split()[0]
    header = {**header, "commit": plan.sources, "pack": pack.facts, "python": python}
    logs = plan.out.with_name(f"{plan.out.stem}-logs")
    screen = console()
    screen.print(f"{len(tasks)} jobs, {plan.gpus} GPUs, deadline {plan.deadline:g} s")
    with (
        Local(make, plan.gpus, logs=logs, timeout_s=plan.timeout) as evaluator,
        progress(screen, "measuring") as tick,
    ):
        tally = run(plan.out, tasks, evaluator, header, deadline_s=plan.deadline, tick=tick)
    say(tally)
    return tally


def say(tally: CampaignCounts) -> None:
    """Print how a run ended."""
    screen = console()
    screen.print(f"{tally.written} lines written, {tally.failed} failures, {tally.left} left")
    if tally.words:
        screen.print(f"the last failure: {tally.words}", markup=False)


def measure_here(
    plan: CampaignOptions,
    pack: Described,
    tasks: Sequence[Task],
    header: Line,
    figures: Callable[[Task], Line],
) -> CampaignCounts:
    """Do the tasks in this very process, on its current GPU, for what has to be as a program has
    it, and say how that ended. `figures` gives those of a task; where it raises RuntimeError the
    line has the words, and the run goes on as long as the GPU answers."""
    import torch

    facts = {
        "commit": plan.sources,
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(),
        "versions": report.runtime_versions(torch.cuda.current_device()),
        "pack": pack.facts,
        "python": sys.version.split()[0],
    }
    known = keys_on_file(plan.out)
    todo = [task for task in tasks if task.key not in known]
    tally, ends = CampaignCounts(left=len(todo)), time.monotonic() + plan.deadline
    file = LinesFile(plan.out)
    try:
        if todo:
            file.write({"header": {**header, **facts}})
        with progress(console(), "measuring") as tick:
            for task in todo:
                if time.monotonic() >= ends or tally.hopeless:
                    break
                line = {**task.fields, "fields": list(task.fields)}
                try:
                    line |= figures(task)
                except RuntimeError as error:
                    torch.cuda.synchronize()
                    line |= {"error": f"{type(error).__name__}: {error}", "blamed": False}
                file.write(line)
                tally.count(line, task.key)
                tick(len(tasks) - tally.left, len(tasks))
    finally:
        file.close()
    say(tally)
    return tally
