"""A run of mutants: all numbers of a seed through the gates, with a file of lines to go on from.

Called by `generate redteam --mutate`. The lines stand beside the figures; a line is written once
its mutant is decided, so a killed run has all but what it was doing. Lines of another seed, of
other sources or of other operators are refused.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.families import BATCHED, FAMILIES, GROUPED
from hgemm_packs.generator.gates.isolation import IsolationError, Worker
from hgemm_packs.generator.redteam.mutation import judge, on_gpu
from hgemm_packs.generator.redteam.mutation.judge import Line
from hgemm_packs.generator.redteam.mutation.operators import OPERATORS
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.measure.lines_file import LinesFile

LIMIT_S = 180.0  # of a mutant: three compilations and the gates
Progress = Callable[[int, int], None]
Judge = Callable[[int, int], Line]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which mutants, and where their lines go. `processes` judge at a time, as many as there are
    CPUs by default; `device` is the GPU whose gates run behind them, None for none."""

    seed: int
    count: int
    lines: Path
    processes: int | None = None
    device: int | None = None
    commit: str = compiler.NO_COMMIT


def of_what() -> str:
    """A hash over all that makes mutants: sources of the families, operators and their order."""
    sources = (compiler.expand_source(f.source) for f in (FAMILIES | GROUPED | BATCHED).values())
    text = "\0".join([*sources, *(operator.name for operator in OPERATORS)])
    return hashlib.sha256(text.encode()).hexdigest()


def last_lines(records: Iterable[Line]) -> dict[int, Line]:
    """The last line of each mutant, by its number; the gates of a GPU come behind those of the CPU,
    and their line has all that the first one has."""
    return {record["number"]: record for record in records if "number" in record}


def run(plan: Plan, progress: Progress = lambda done, total: None) -> dict[int, Line]:
    """Judge what the file lacks; the last line of each mutant, by number. `progress(done, total)`
    counts mutants of this stage.

    Raises ValueError for lines of another run, SanitizerUnavailable where `device` is one and the
    sanitizer cannot work there.
    """
    records = read_records([plan.lines]) if plan.lines.exists() else []
    _check_header(plan, records)
    known = last_lines(records)
    file, lock = LinesFile(plan.lines), threading.Lock()

    def write(line: Line) -> None:
        with lock:
            file.write(line)
            known[line["number"]] = line
            progress(*_done(plan, known))

    try:
        file.write({"header": _header(plan)})
        todo = [number for number in range(plan.count) if number not in known]
        progress(*_done(plan, known))
        judge_all(plan, todo, write)
        if plan.device is not None:
            left = [
                known[number]
                for number in range(plan.count)
                if known[number]["outcome"] == judge.UNDECIDED
            ]
            on_gpu.finish(plan.seed, left, plan.device, write)
    finally:
        file.close()
    return {number: line for number, line in known.items() if number < plan.count}


def _done(plan: Plan, known: Mapping[int, Line]) -> tuple[int, int]:
    """Mutants of this stage that are done, and all: those that the gates of the CPU have seen, with
    a GPU those that are decided."""
    here = [line for number, line in known.items() if number < plan.count]
    if plan.device is not None and len(here) == plan.count:
        here = [line for line in here if line["outcome"] != judge.UNDECIDED]
    return len(here), plan.count


def _header(plan: Plan) -> dict[str, Any]:
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    stage = "cpu" if plan.device is None else "gpu"
    named = {"commit": plan.commit, "started": started, "stage": stage}
    return {"mutants": plan.seed, "of": of_what(), **named}


def _check_header(plan: Plan, records: Iterable[Line]) -> None:
    """Raise ValueError unless all headers are of this seed and of these sources."""
    for record in records:
        header = record.get("header")
        if header is None:
            continue
        if header.get("mutants") != plan.seed:
            raise ValueError(f"{plan.lines} has the mutants of seed {header.get('mutants')}")
        if header["of"] != of_what():
            raise ValueError(f"{plan.lines} has mutants of other sources or operators")


def judge_all(plan: Plan, numbers: Iterable[int], write: Callable[[Line], None]) -> None:
    """Judge these numbers, each in one of several isolated processes; `write` takes the lines as
    they come."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in numbers:
        todo.put(number)
    count = min(plan.processes or os.cpu_count() or 1, todo.qsize())
    if not count:
        return
    with ThreadPoolExecutor(count) as pool:
        serving = [pool.submit(_serve, plan.seed, todo, write) for _ in range(count)]
        try:
            for future in serving:
                future.result()
        except BaseException:
            while not todo.empty():
                todo.get()
            raise


def _serve(seed: int, todo: queue.SimpleQueue[int], write: Callable[[Line], None]) -> None:
    worker = Worker()
    try:
        while True:
            try:
                number = todo.get_nowait()
            except queue.Empty:
                return
            if not worker.alive:
                worker = Worker()
            write(judge_apart(worker, seed, number))
    finally:
        worker.close()


def judge_apart(worker: Worker, seed: int, number: int) -> Line:
    """The line of a mutant by another process. One that takes the compiler down, or too long, does
    not compile; an error of our own is a line too."""
    try:
        line: Line = worker.call(judge.judge, seed, number, timeout_s=LIMIT_S)
        return line
    except IsolationError as error:
        slow = error.status is Status.TIMEOUT
        words = f"no end after {LIMIT_S:.0f} s" if slow else f"the compiler died: {error}"
        return {"number": number, "outcome": judge.UNBUILT, "gate": "", "detail": words}
    except RuntimeError as error:
        return {"number": number, "outcome": judge.ERROR, "gate": "", "detail": str(error)}
