"""The rows of one card's table on another: finals, confirmations, dependent launch, sustained.

    python -m benchmarks.cards.rows run PLAN PACK DIR [SECONDS]
    python -m benchmarks.cards.rows export PACK DIR

`run` takes the lines of `plan` in their order, CHUNK at a time, and stops after so many
seconds. Given again it goes on where it stopped; what is on file is not measured again. Of a chunk
it times all kernels against torch and confirms in a fresh process what looks like a win. Then it
chooses kernels for dependent launch, measures the chosen ones again in another fresh process, and
sustains the large problems. Nothing is compiled or searched.

`export` needs no GPU. It makes DIR a run's folder: an export, beside the files in `refined`.
`python -m benchmarks.folders take DIR --card NAME` makes the results of the card of both.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hgemm_packs.cli.console import console
from hgemm_packs.generator.campaigns import campaign, refine, remeasure
from hgemm_packs.generator.campaigns.campaign import CampaignCounts, Line, Task
from hgemm_packs.generator.campaigns.tasks import dependent_tasks, sustained_tasks
from hgemm_packs.generator.compile import compiler, pack_kernels
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.gains import wins
from hgemm_packs.generator.core.spec import PROTOCOLS, DeviceFacts, Status
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.tables import dependent, judge
from hgemm_packs.generator.workers.evaluators import Evaluator, Local
from hgemm_packs.problem import Problem

#: Lines of the plan that are finished together: two starts of a process, 7 s each, and three of one
#: that has imported what it needs beside the one before.
CHUNK = 500
#: A trial of torch against itself for so many problems: a whole plan has what a noise floor wants.
PROBLEMS_PER_TRIAL = 19
PLAIN = "lines.jsonl"  # finals, confirmations and trials
CEILINGS = "ceilings.jsonl"
FINISHED = "finished"  # digests of chunks
SUSTAINED_S = 0.4
FAR = float("inf")


def open_finals(folder: Path) -> Evaluator:
    """A process that runs finals and confirmations."""
    from hgemm_packs.generator.devices import gpu

    return Local(gpu.make, 1, logs=folder / "logs")


def open_protocols(folder: Path) -> Evaluator:
    """A process that launches kernels behind one another and runs them for long."""
    from hgemm_packs.generator.devices import protocols

    settings = protocols.ProtocolSettings(seconds=SUSTAINED_S)
    return Local(partial(protocols.make, settings=settings), 1, logs=folder / "logs")


@dataclass(slots=True)
class Processes:
    """Processes of one kind, one after the other. The first one starts when it is needed, the next
    one imports meanwhile."""

    folder: Path
    open_evaluator: Callable[[Path], Evaluator]
    evaluator: Evaluator | None = None

    def start(self) -> Evaluator:
        """One that had no job before."""
        if self.evaluator is None:
            self.evaluator = self.open_evaluator(self.folder)
        else:
            self.evaluator.fresh()
        self.evaluator.prepare()
        return self.evaluator

    def close(self) -> None:
        if self.evaluator is not None:
            self.evaluator.close()


@dataclass(slots=True)
class Run:
    """A call of `run`. `ends` is of time.monotonic; `whole`: nothing was left, nothing failed;
    `known`: what is on file is of this card."""

    folder: Path
    pack: Packed
    ends: float
    whole: bool = True
    known: bool = False

    def do(
        self,
        name: str,
        tasks: Sequence[Task],
        processes: Processes,
        line_of: Callable[..., Line] | None = None,
    ) -> None:
        """Do the tasks that a file lacks, in a new one of these processes."""
        out = self.folder / name
        known = campaign.keys_on_file(out)
        todo = [task for task in tasks if task.key not in known]
        if not todo or time.monotonic() >= self.ends:
            self.whole = self.whole and not todo
            return
        info = compiler.generator_info()
        header = {"id": f"card {time.time_ns()}", "benchmark": "card", "strategy": "card"}
        header |= {"commit": info.commit + ("+" if info.dirty else "")}
        header |= {"pack": dict(self.pack.facts)}
        evaluator = processes.start()
        self._check_card(evaluator.facts())
        tally: CampaignCounts = campaign.run(
            out,
            todo,
            evaluator,
            header,
            deadline_s=self.ends - time.monotonic(),
            line_of=line_of,
        )
        self.whole = self.whole and tally.whole
        words = f": {tally.words}" if tally.words else ""
        console().print(
            f"{name}: {tally.written} lines, {tally.failed} failed, {tally.left} left{words}"
        )

    def _check_card(self, here: DeviceFacts) -> None:
        """Raise ValueError unless all that earlier calls have on file is of this card, under the
        same versions. Files are read for seconds, in which the GPU waits: once a call."""
        for header in () if self.known else headers(self.folder):
            found = Findings(device=DeviceFacts(**header["device"]))
            remeasure.check_device(found, here)
        self.known = True


class Done:
    """The chunks of plans of which nothing is left, by a file: of them a call reads no lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        self._digests = set(text.split())

    def __contains__(self, chunk: Sequence[Line]) -> bool:
        return _digest(chunk) in self._digests

    def add(self, chunk: Sequence[Line]) -> None:
        self._digests.add(_digest(chunk))
        text = "".join(f"{each}\n" for each in sorted(self._digests))
        write_atomically(self._path, text.encode())


def _digest(chunk: Sequence[Line]) -> str:
    return hashlib.sha256(json.dumps(chunk, sort_keys=True).encode()).hexdigest()


def headers(folder: Path) -> list[Line]:
    """Those of all files of a folder."""
    places = [folder / CEILINGS, folder / PLAIN, *sorted((folder / refine.FOLDER).glob("*.jsonl"))]
    records = read_records(path for path in places if path.is_file())
    return [each["header"] for each in records if "header" in each]


def finals_tasks(run: Run, chunk: Sequence[Line]) -> list[Task]:
    """Finals of each problem, and trials of torch against itself among them."""
    found = []
    for i, line in enumerate(chunk):
        problem = Problem(*line["problem"])
        found.append(_task(run, "finals", problem, line["kernels"]))
        if i % PROBLEMS_PER_TRIAL == 0:
            found.append(_task(run, "noise", problem, ()))
    return found


def confirm_tasks(run: Run, chunk: Sequence[Line]) -> list[Task]:
    """Confirmations of what looks like a win in the finals."""
    won = read_gains(run.folder / PLAIN, "finals")
    found = []
    for line in chunk:
        problem = Problem(*line["problem"])
        ids = {name: run.pack.entries[name].id for name in line["kernels"]}
        left = [n for n, id_ in ids.items() if wins(won.get((problem, id_), (0.0, 0.0)))]
        if left:
            found.append(_task(run, "confirm", problem, left))
    return found


def _task(run: Run, stage: str, problem: Problem, names: Sequence[str]) -> Task:
    fields = {"stage": stage, "problem": pack_kernels.problem_values(problem)}
    return Task(stage, problem, lambda: tuple(map(run.pack.built, names)), fields)


def read_gains(path: Path, stage: str) -> dict[tuple[Problem, str], tuple[float, float]]:
    """torch over kernels by id, hot and cold, by the last lines of a stage."""
    found: dict[tuple[Problem, str], tuple[float, float]] = {}
    for line in campaign.lines([path])[1] if path.is_file() else ():
        if line["stage"] != stage:
            continue
        for id_, status in line["statuses"].items():
            if Status(status) is Status.OK:
                hot, cold = (judge.paired_ratio(line["samples"][p], id_) for p in PROTOCOLS)
                found[Problem(*line["problem"]), id_] = hot, cold
    return found


def confirmed(run: Run, chunk: Sequence[Line]) -> list[Line]:
    """The lines of a chunk whose problem has a kernel that was a win again."""
    won = read_gains(run.folder / PLAIN, "confirm")
    problems = {problem for (problem, _), gain in won.items() if wins(gain)}
    return [line for line in chunk if Problem(*line["problem"]) in problems]


def choose_again(run: Run, chunk: Sequence[Line]) -> list[tuple[Problem, str]]:
    """Of each problem the kernel that was fastest launched dependently, if it beats torch so."""
    path = run.folder / refine.FOLDER / refine.DEPENDENT
    over = dependent.read_speedups(campaign.answers([path])) if path.is_file() else {}
    found = []
    for line in chunk:
        key = tuple(line["problem"])
        best = max(line["dependent"], key=lambda name: over.get((key, name), 0.0), default=None)
        if best is not None and over.get((key, best), 0.0) > 1.0:
            found.append((Problem(*key), best))
    return found


def measure_chunk(run: Run, chunk: Sequence[Line]) -> None:
    """All that a chunk of the plan wants."""
    with contextlib.closing(Processes(run.folder, open_finals)) as of_finals:
        run.do(PLAIN, finals_tasks(run, chunk), of_finals, remeasure.line)
        run.do(PLAIN, confirm_tasks(run, chunk), of_finals, remeasure.line)
    with contextlib.closing(Processes(run.folder, open_protocols)) as of_protocols:
        refine_chunk(run, chunk, of_protocols)


def refine_chunk(run: Run, chunk: Sequence[Line], processes: Processes) -> None:
    """Dependent launch and long runs of what was confirmed."""
    won = confirmed(run, chunk)
    pairs = [(Problem(*line["problem"]), name) for line in won for name in line["dependent"]]
    folder = refine.FOLDER
    run.do(f"{folder}/{refine.DEPENDENT}", dependent_tasks(pairs, run.pack.built), processes)
    again = dependent_tasks(choose_again(run, won), run.pack.built)
    run.do(f"{folder}/{refine.PUBLISHED}", again, processes)
    named = {Problem(*line["problem"]): line["sustained"] for line in won}
    sustained = sustained_tasks(named, run.pack.built)
    run.do(f"{folder}/{refine.SUSTAINED}", sustained, processes)


def measure(plan: Path, pack: Packed, folder: Path, seconds: float) -> Run:
    """Go on with a plan for so many seconds."""
    lines = [json.loads(line) for line in plan.read_text(encoding="utf-8").splitlines()]
    run = Run(folder, pack, time.monotonic() + seconds)
    with contextlib.closing(Processes(folder, open_finals)) as processes:
        run.do(CEILINGS, [Task("ceilings", None, tuple, {"stage": "ceilings"})], processes)
    done = Done(folder / FINISHED)
    whole = run.whole
    for first in range(0, len(lines), CHUNK):
        chunk = lines[first : first + CHUNK]
        if chunk in done:
            continue
        if time.monotonic() >= run.ends:
            whole = False
            break
        run.whole = True
        measure_chunk(run, chunk)
        if run.whole:
            done.add(chunk)
        whole = whole and run.whole
    run.whole = whole
    return run


def read_findings(pack: Packed, folder: Path) -> Findings:
    """What the lines of a folder say, with the proofs that the pack has of its kernels. Raises
    ValueError where there are none, or of several cards."""
    known = headers(folder)
    if not known:
        raise ValueError(f"{folder} has no lines")
    device = DeviceFacts(**known[0]["device"])
    for line in campaign.lines([folder / CEILINGS])[1]:
        peaks = {name: line[name] for name in ("peak_tflops", "peak_gbps")}
        device = replace(device, **peaks)
    fields = {entry.id: pack.built_fields(entry.id) for entry in pack.entries.values()}
    proofs = {entry.id: entry.numerics for entry in pack.entries.values()}
    blank = Findings(device=device, proofs=proofs, kernels=fields)
    # Lines of dependent launch speak of kernels that no final has.
    return replace(remeasure.read(blank, folder / PLAIN), proofs=proofs, kernels=fields)


def main(arguments: Sequence[str]) -> int:
    match list(arguments):
        case ["run", plan, pack, folder, *rest] if len(rest) < 2:
            seconds = float(rest[0]) if rest else FAR
            run = measure(Path(plan), Packed(Path(pack)), Path(folder), seconds)
            return int(not run.whole)
        case ["export", pack, folder]:
            found = read_findings(Packed(Path(pack)), Path(folder))
            export.write(found, Path(folder))
            counts = f"{len(found.fields)} jobs, {len(found.trials)} trials"
            console().print(f"{folder}: {counts} on {found.device.name}", soft_wrap=True)
            return 0
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
