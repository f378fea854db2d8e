"""A pack for a new card both ways: a search from nothing, and `generate --like`, on one GPU.

python -m benchmarks.search.like WORK PACK [OUT.json] runs `hgemm-packs generate` on the same
problems twice, with run folders and build caches of their own below WORK, and has PACK in
HGEMM_PACKS_PATH, as an owner has the pack of the other card. Wall times are those of the whole
command, from its start to the pack. Then the kernels that either table names are confirmed in a
second measurement, both beside torch in one job a problem, by a process that chose nothing.

A gain is a geometric mean over all problems, hot and cold, of torch over the table's kernel; where
it names none torch runs, and 1.0 counts. Each step is on file when it is done and is not done
again. A command that was killed begins anew, for its wall time would say nothing. OUT
gets the key "like"; what else it has stays.
"""

from __future__ import annotations

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
from typing import Any

from benchmarks import folders
from benchmarks.search.generator_h200 import command
from hgemm_packs.generator.campaigns import campaign, remeasure
from hgemm_packs.generator.campaigns.campaign import Line, Task
from hgemm_packs.generator.compile import compiler, pack_kernels
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.spec import PROTOCOLS, CompiledKernel, Status
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
    began = time.monotonic()
    code = run_command(command(run, *LIST, *BUDGET, *WAYS[way]), environment, work / f"{way}.log")
    wall_s = time.monotonic() - began
    if code:
        raise RuntimeError(f"{way} ended with {code}: see {work / way}.log")
    return {"wall_s": round(wall_s, 1), **describe_run(run)}


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


def measure_again(work: Path) -> None:
    """Confirm both tables. Raises RuntimeError when a problem failed or is left."""
    tasks = again_tasks([chosen(work / way) for way in WAYS])
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
    work, pack = Path(arguments[0]), Path(arguments[1])
    out = Path(arguments[2]) if len(arguments) > 2 else OUT
    work.mkdir(parents=True, exist_ok=True)
    steps_file = work / "steps.json"
    steps: dict[str, Any] = json.loads(steps_file.read_text()) if steps_file.exists() else {}
    if not steps:
        warm_up()
    for way in WAYS:
        if way not in steps:
            steps[way] = go(work, way, pack)
            write(steps_file, steps)
    measure_again(work)
    lines = campaign.lines([work / AGAIN])[1]
    tables = {way: {p: k.id for p, k in chosen(work / way).items()} for way in WAYS}
    found = {way: gains(steps[way]["problems"], tables[way], lines) for way in WAYS}
    beside = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    document = {**beside, "like": summary(steps, found)}
    write(out, document)
    print(json.dumps(document["like"], indent=1))
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
