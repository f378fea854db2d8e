"""A pack for a new card both ways: a search from nothing, and `generate --like`, on one GPU.

python -m benchmarks.search.like WORK PACK [OUT.json] [--against LINES]

It runs `hgemm-packs generate` on the same problems twice, with run folders and build caches of
their own below WORK, and has PACK in HGEMM_PACKS_PATH, as an owner has the pack of the other card.
Wall times are those of the whole command, from its start to the pack. Then the kernels that either
table names are confirmed in a second measurement, both beside torch in one job a problem, by a
process that chose nothing.

With --against LINES it makes the second pack alone. The search is then the one whose figures OUT
has, and LINES are its second measurement. Kernels of a search are not kept, so either table is held
against torch of its own measurement: on the same kind of card, under the same versions, which is
checked, and with the same problems, seeds aside. Where torch itself took another time than then,
`torch_now` says how much, hot and cold, over the problems that both measured.

A gain is a geometric mean over all problems, hot and cold, of torch over the table's kernel; where
it names none torch runs, and 1.0 counts. Each step is on file when it is done and is not done
again. A command that was killed begins anew, for its wall time would say nothing. OUT
gets the key "like"; what else it has stays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import folders
from benchmarks.search.generator_h200 import command
from hgemm_packs.generator.campaigns import campaign, remeasure
from hgemm_packs.generator.campaigns.campaign import Line, Task
from hgemm_packs.generator.compile import compiler, pack_kernels
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.spec import PROTOCOLS, CompiledKernel, DeviceFacts, Status, same
from hgemm_packs.generator.store import busy
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.tables import judge
from hgemm_packs.generator.workers.evaluators import Evaluator, Local
from hgemm_packs.problem import Problem

OUT = folders.RESULTS / "tune.json"
#: 84 problems, and what a new owner would give for them.
LIST = ["--shapes", "llm", "--models", "Llama 3.1 8B", "--layouts", "nt", "--dtypes", "f16"]
BUDGET = ["--budget", "4.5m", "--gpus", "1"]
CARD = "H200"
#: Wall seconds of such a run before searches and finals went on side by side.
BEFORE_S = 270.0
WAYS: Mapping[str, Sequence[str]] = {
    "search": (),
    "like": ("--like", CARD, "--known", str(folders.RESULTS / "sanitizer" / "tables")),
}
AGAIN = "again.jsonl"


def run_command(words: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    """Run a command to its end; what it says goes to a file."""
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(words, check=False, stdout=file, stderr=file, env=environment)
    return done.returncode


def warm_up() -> None:
    """Read torch and CUDA from the disk once: the first way would pay for both."""
    subprocess.run(
        [sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"], check=True
    )


def go(work: Path, way: str, pack: Path) -> dict[str, Any]:
    """Run `generate` one way; its wall time and what it has to show. Raises RuntimeError."""
    run = work / way
    for rest in (run, work / "cache" / way):
        shutil.rmtree(rest, ignore_errors=True)
    environment = {**os.environ, "HGEMM_PACKS_PATH": str(pack.resolve())}
    environment["HGEMM_PACKS_CACHE"] = str((work / "cache" / way).resolve())
    began = time.time()
    code = run_command(command(run, *LIST, *BUDGET, *WAYS[way]), environment, work / f"{way}.log")
    ended = time.time()
    if code:
        raise RuntimeError(f"{way} ended with {code}: see {work / way}.log")
    found = {"wall_s": round(ended - began, 1), **describe_run(run)}
    jobs = describe_jobs(run, began)
    return {**found, "waits_s": find_waits(run, began, ended), "jobs": jobs}


def describe_jobs(run: Path, began: float) -> dict[str, dict[str, float]]:
    """Of each kind of job how many there were, of how many kernels, and the seconds of the command,
    from `began` of time.time, at which the first of them began and the last ended."""
    query = "SELECT kind, kernels, finished, gpu_seconds FROM job"
    found: dict[str, dict[str, float]] = {}
    with Store(run, readonly=True) as store:
        for kind, kernels, finished, seconds in store.db.execute(query):
            first, last = finished - seconds - began, finished - began
            so_far = found.setdefault(
                kind, {"jobs": 0, "kernels": 0, "from_s": first, "to_s": last}
            )
            so_far["jobs"] += 1
            so_far["kernels"] += len(json.loads(kernels))
            so_far["from_s"] = min(so_far["from_s"], first)
            so_far["to_s"] = max(so_far["to_s"], last)
    rounded = {k: {name: round(value, 1) for name, value in v.items()} for k, v in found.items()}
    return dict(sorted(rounded.items(), key=lambda each: each[1]["from_s"]))


def find_waits(run: Path, began: float, ended: float) -> dict[str, float]:
    """Seconds of a command, from `began` to `ended` of time.time, in which its GPU had no job:
    before the first, between jobs, and behind the last, where the sanitizer and the pack are."""
    with Store(run, readonly=True) as store:
        jobs = store.db.execute("SELECT finished, gpu_seconds FROM job").fetchall()
    first = min(finished - seconds for finished, seconds in jobs)
    last = max(finished for finished, _ in jobs)
    idle = last - first - math.fsum(seconds for _, seconds in jobs)
    waits = {"before": first - began, "between": idle, "behind": ended - last}
    return {name: round(seconds, 1) for name, seconds in waits.items()}


def describe_run(run: Path) -> dict[str, Any]:
    """What a run took and found, by its store and its pack."""
    with Store(run, readonly=True) as store:
        spent = store.spent_gpu_seconds()
        (built,) = store.db.execute("SELECT count(DISTINCT kernel) FROM build").fetchone()
        problems = len(store.problems())
        device = store.devices()[0].name
    packed = Packed(run / "pack")
    (seconds,) = busy.read(run).values()
    return {
        "device": device,
        "problems": problems,
        "gpu_seconds": {kind: round(s, 2) for kind, s in sorted(spent.items())},
        "kernels_built": built,
        "kernels": len(packed.entries),
        "wins": len(packed.wins),
        "busy_s": {name: round(s, 1) for name, s in seconds._asdict().items()},
    }


def chosen(run: Path) -> dict[Problem, CompiledKernel]:
    """The kernel of each problem that the pack of a run wins."""
    packed = Packed(run / "pack")
    return {problem: packed.kernel(name) for problem, name in packed.wins.items()}


def again_tasks(tables: Iterable[Mapping[Problem, CompiledKernel]]) -> list[Task]:
    """A confirmation of each problem that any table wins, of the kernels that they name."""
    kernels: dict[Problem, dict[str, CompiledKernel]] = {}
    for table in tables:
        for problem, kernel in table.items():
            kernels.setdefault(problem, {})[kernel.id] = kernel
    return [
        Task(
            "confirm",
            problem,
            lambda each=each: tuple(each.values()),  # type: ignore[misc]
            {"problem": pack_kernels.problem_values(problem), "kernels": sorted(each)},
        )
        for problem, each in kernels.items()
    ]


def open_evaluator(work: Path) -> Evaluator:
    """A process of its own on the GPU."""
    from hgemm_packs.generator.devices import gpu

    return Local(gpu.make, 1, logs=work / "logs")


def measure_again(work: Path, ways: Iterable[str]) -> None:
    """Confirm the tables. Raises RuntimeError when a problem failed or is left."""
    tasks = again_tasks([chosen(work / way) for way in ways])
    info = compiler.generator_info()
    header = {"benchmark": "like", "commit": info.commit + ("+" if info.dirty else "")}
    with contextlib.closing(open_evaluator(work)) as evaluator:
        tally = campaign.run(work / AGAIN, tasks, evaluator, header, line_of=remeasure.line)
    if not tally.whole:
        raise RuntimeError(f"{tally.failed} problems failed, {tally.left} left: {tally.words}")


def gains(
    problems: int, table: Mapping[Problem, str], lines: Sequence[Line]
) -> dict[str, float | int]:
    """What a table gives by the second measurement: the gain with hot and with cold caches and of
    both, over all problems; the wins that were wins again, both ways; the worst of all."""
    ratios: dict[Problem, tuple[float, ...]] = {}
    for line in lines:
        problem = Problem(*line["problem"])
        id_ = table.get(problem)
        if id_ in line["statuses"] and Status(line["statuses"][id_]) is Status.OK:
            ratios[problem] = tuple(judge.paired_ratio(line["samples"][p], id_) for p in PROTOCOLS)
    missing = table.keys() - ratios.keys()
    if missing:
        raise ValueError(
            f"{len(missing)} problems were not measured again, such as {min(map(str, missing))}"
        )

    def mean(place: int) -> float:
        return math.exp(math.fsum(math.log(each[place]) for each in ratios.values()) / problems)

    hot, cold = mean(0), mean(1)
    return {
        "gain_hot": round(hot, 4),
        "gain_cold": round(cold, 4),
        "gain": round(math.sqrt(hot * cold), 4),
        "wins_again": sum(min(each) > 1.0 for each in ratios.values()),
        "worst": round(min(map(min, ratios.values()), default=1.0), 4),
    }


def compare_torch(now: Sequence[Path], then: Sequence[Path]) -> dict[str, float]:
    """Torch's time in one second measurement over that in another, geometric means over the
    problems of both, by protocol. Raises ValueError where they are of other cards or versions."""
    (headers, lines), (old_headers, old_lines) = campaign.lines(now), campaign.lines(then)
    here = [DeviceFacts(**header["device"]) for header in headers]
    for header in old_headers:
        there = DeviceFacts(**header["device"])
        if not all(same(there, each) for each in here):
            raise ValueError(f"measured on {there.name}, {there.versions}; here is {here[0]}")
    times = {tuple(line["problem"]): line["samples"] for line in old_lines}
    both = [(line["samples"], times.get(tuple(line["problem"]))) for line in lines]
    found = {}
    for protocol in PROTOCOLS:
        logs = [
            math.log(median(new[protocol]["torch"]) / median(old[protocol]["torch"]))
            for new, old in both
            if old is not None
        ]
        if not logs:
            raise ValueError(f"no problem of {then[0]} was measured again")
        found[protocol] = round(math.exp(math.fsum(logs) / len(logs)), 4)
    return found


def summary(steps: Mapping[str, Any], found: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Both ways, and what the second has of the first in wall time and gain."""
    search, like = ({**steps[way], **found[way]} for way in WAYS)
    gain = math.log(search["gain"])
    return {
        "wall_share": round(like["wall_s"] / search["wall_s"], 4),
        "wall_share_of_before": round(like["wall_s"] / BEFORE_S, 4),
        "gain_share": round(math.log(like["gain"]) / gain, 4) if gain > 0.0 else None,
        "before_s": BEFORE_S,
        "card": CARD,
        "list": LIST,
        **dict(zip(WAYS, (search, like), strict=True)),
    }


def write(path: Path, document: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=OUT)
    parser.add_argument("--against", type=Path, help="lines of the search's second measurement")
    given = parser.parse_args(arguments)
    work, against = given.work, given.against
    work.mkdir(parents=True, exist_ok=True)
    beside = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    ways = [way for way in WAYS if against is None or way != "search"]
    steps_file = work / "steps.json"
    steps: dict[str, Any] = json.loads(steps_file.read_text()) if steps_file.exists() else {}
    if not steps:
        warm_up()
    for way in ways:
        if way not in steps:
            steps[way] = go(work, way, given.pack)
            write(steps_file, steps)
    measure_again(work, ways)
    lines = campaign.lines([work / AGAIN])[1]
    tables = {way: {p: k.id for p, k in chosen(work / way).items()} for way in ways}
    found: dict[str, Mapping[str, float]]
    found = {way: gains(steps[way]["problems"], tables[way], lines) for way in ways}
    more: dict[str, Any] = {}
    if against is not None:
        steps["search"], found["search"] = beside["like"]["search"], {}
        more["torch_now"] = compare_torch([work / AGAIN], [against])
    document = {**beside, "like": {**summary(steps, found), **more}}
    write(given.out, document)
    print(json.dumps(document["like"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
