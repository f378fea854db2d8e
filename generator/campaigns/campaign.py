"""Many jobs on all GPUs of this host, each answer a line on file before the run goes on.

Used by the benchmarks that measure whole tables. A run that was killed, or stopped at its deadline,
goes on where it was when it is started again. What a line means is the business of who asked.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hgemm_packs import report
from hgemm_packs.cli.console import console, progress
from hgemm_packs.generator.compile import compiler, pack_kernels
from hgemm_packs.generator.compile.pack_kernels import Asked, Packed
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.core.spec import Job, Kernel, Reply
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.workers.evaluators import Evaluator
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
    kernels: Callable[[], tuple[Kernel, ...]]
    fields: Mapping[str, Any]

    @property
    def key(self) -> str:
        return json.dumps(dict(self.fields), sort_keys=True)


@dataclass(slots=True)
class Tally:
    """How a run ended: lines written, failures among them, tasks left, the last failure's words."""

    written: int = 0
    failed: int = 0
    left: int = 0
    words: str = ""


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


def finished(out: Path) -> set[str]:
    """Keys of the tasks that need not run again: with figures, or with a kernel that killed its
    process."""
    records = read_records([out]) if out.exists() else []
    return {
        _key(line, line["fields"])
        for line in records
        if "fields" in line and ("error" not in line or line["blamed"])
    }


@dataclass(slots=True)
class LinesFile:
    """Appends whole lines; the torn last one of a killed run goes."""

    path: Path
    _fd: int = field(init=False)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        whole = self.path.read_bytes().rfind(b"\n") + 1
        os.ftruncate(self._fd, whole)
        os.lseek(self._fd, whole, os.SEEK_SET)

    def write(self, line: Line) -> None:
        data = json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(self._fd, data) :]
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def run(
    out: Path,
    tasks: Sequence[Task],
    evaluator: Evaluator,
    header: Line,
    *,
    deadline_s: float = float("inf"),
    tick: Callable[[int, int], None] = lambda done, total: None,
    line_of: Callable[[Task, Job, Reply], Line] | None = None,
) -> Tally:
    """Do the tasks that `out` does not have yet, in their order. At the deadline what still runs
    is dropped. `line_of` makes the lines of devices whose evidence is not all that they say. Raises
    Hopeless, and DevicesLost when no GPU is left."""
    ends = time.monotonic() + deadline_s
    known = finished(out)
    todo = [task for task in tasks if task.key not in known]
    tally, file = Tally(left=len(todo)), LinesFile(out)
    tick(len(tasks) - len(todo), len(tasks))
    try:
        if todo:
            started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            device = asdict(evaluator.facts())
            file.write({"header": {**header, "started": started, "device": device}})
        for task, job, reply in _answers(todo, evaluator, ends):
            line = (line_of or _line)(task, job, reply)
            file.write(line)
            tally.left -= 1
            tally.written += 1
            if "error" in line:
                tally.failed += 1
                tally.words = f"{job.problem or task.key}: {line['error']}"
            if tally.failed == tally.written == FIRST:
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


def parser(description: str) -> argparse.ArgumentParser:
    """The arguments that all of these benchmarks have."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("pack", type=Path, help="directory of a built pack")
    made.add_argument("out", type=Path, help="jsonl file; what it has is not measured again")
    made.add_argument(
        "--shapes", help='"grid", "llm", "transposed", a .toml or JSON lines; else the whole table'
    )
    made.add_argument("--layouts", default="", help="such as nn,nt; else all")
    made.add_argument("--dtypes", default="", help="such as f16,bf16; else all")
    made.add_argument("--regimes", default="", help="such as tiny,deep-K; else all")
    made.add_argument("--every", type=int, default=1, help="each so manieth problem only")
    made.add_argument("--deadline", type=float, default=float("inf"), help="seconds, then stop")
    made.add_argument("--timeout", type=float, default=120.0, help="seconds for one problem")
    made.add_argument("--gpus", type=int, help="as many of this host's GPUs; else all")
    made.add_argument("--commit", help="of the sources; else asked of git")
    return made


def asked(options: argparse.Namespace, pack: Packed) -> list[Asked]:
    """The problems that the arguments name, each with the kernel that they name for it, in an order
    that makes a run that was stopped a fair sample."""
    found = (
        pack_kernels.read(options.shapes) if options.shapes else [(p, None) for p in pack.measured]
    )
    words = {
        name: [word for word in getattr(options, name).split(",") if word]
        for name in ("layouts", "dtypes", "regimes")
    }
    listed = [problem for problem, _ in found]
    kept = set(problems.filter(listed, words["layouts"], words["dtypes"], words["regimes"]))
    chosen = sorted(
        {each for each in found if each[0] in kept},
        key=lambda each: (problems.cost(each[0]), each[1] or ""),
    )[:: options.every]
    steps = max(1, round(len(chosen) ** 0.5))
    return [each for first in range(steps) for each in chosen[first::steps]]


def main(
    options: argparse.Namespace,
    pack: Described,
    tasks: Sequence[Task],
    make: Callable[[int], Any],
    header: Line,
) -> int:
    """Run the tasks on this host's GPUs; 1 if any failed or is left."""
    import torch

    from hgemm_packs.generator.workers.evaluators import Local

    info = compiler.generator_info()
    commit = options.commit or (info.commit + ("+" if info.dirty else ""))
    header = {**header, "commit": commit, "pack": pack.facts, "python": sys.version.split()[0]}
    gpus = options.gpus or torch.cuda.device_count()
    logs = options.out.with_name(f"{options.out.stem}-logs")
    screen = console()
    screen.print(f"{len(tasks)} jobs, {gpus} GPUs, deadline {options.deadline:g} s")
    with (
        Local(make, gpus, logs=logs, timeout_s=options.timeout) as evaluator,
        progress(screen, "measuring") as tick,
    ):
        tally = run(options.out, tasks, evaluator, header, deadline_s=options.deadline, tick=tick)
    screen.print(f"{tally.written} lines written, {tally.failed} failures, {tally.left} left")
    if tally.words:
        screen.print(f"the last failure: {tally.words}", markup=False)
    return int(tally.failed + tally.left > 0)


def alone(
    options: argparse.Namespace,
    pack: Described,
    tasks: Sequence[Task],
    header: Line,
    measured: Callable[[Task], Line],
) -> int:
    """Do the tasks in this very process, on its current GPU: for what has to be as a program has
    it. `measured` gives a task's figures; where it raises RuntimeError the line has the words, and
    the run goes on as long as the GPU answers. 1 if any failed or is left."""
    import torch

    info = compiler.generator_info()
    facts = {
        "commit": options.commit or (info.commit + ("+" if info.dirty else "")),
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(),
        "versions": report.runtime_versions(torch.cuda.current_device()),
        "pack": pack.facts,
        "python": sys.version.split()[0],
    }
    known = finished(options.out)
    todo = [task for task in tasks if task.key not in known]
    tally, ends = Tally(left=len(todo)), time.monotonic() + options.deadline
    screen, file = console(), LinesFile(options.out)
    try:
        if todo:
            file.write({"header": {**header, **facts}})
        with progress(screen, "measuring") as tick:
            for task in todo:
                if time.monotonic() >= ends or tally.failed == tally.written == FIRST:
                    break
                line = {**task.fields, "fields": list(task.fields)}
                try:
                    line |= measured(task)
                except RuntimeError as error:
                    torch.cuda.synchronize()
                    line |= {"error": f"{type(error).__name__}: {error}", "blamed": False}
                    tally.failed += 1
                    tally.words = f"{task.key}: {line['error']}"
                file.write(line)
                tally.left -= 1
                tally.written += 1
                tick(len(tasks) - tally.left, len(tasks))
    finally:
        file.close()
    screen.print(f"{tally.written} lines written, {tally.failed} failures, {tally.left} left")
    if tally.words:
        screen.print(f"the last failure: {tally.words}", markup=False)
    return int(tally.failed + tally.left > 0)
