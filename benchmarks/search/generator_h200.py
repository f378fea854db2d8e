"""The generator on real GPUs: A/A, the same search twice, `kill -9`, one GPU against all.

python -m benchmarks.search.generator_h200 WORK [OUT.json] runs `hgemm-packs generate` on every GPU
here (four, for the committed figures) with run folders below WORK, and writes raw figures and
summary. Each step is on file when it is done and is not done again: the script may be killed as
well.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hgemm_packs.generator.store import findings
from hgemm_packs.generator.store.run_folder import Store

OUT = Path(__file__).resolve().parents[1] / "results" / "generator_h200.json"
SEARCH = ["--shapes", "grid", "--layouts", "nt", "--dtypes", "f16", "--every", "10"]
KILLED = [*SEARCH[:-1], "20"]
SWEEP = ["--shapes", "grid", "--layouts", "nn", "--dtypes", "f16", "--regimes", "mid"]
BUDGET_S, SWEEP_BUDGET_S = 160, 40
KILL_AFTER_JOBS = 80


def command(run: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "hgemm_packs.cli", "generate", "--run", str(run), *words]


def generate(run: Path, *words: str) -> float:
    """Run to the end, with wins or without (1); returns the wall time in s. Raises RuntimeError."""
    began = time.monotonic()
    with (run.parent / f"{run.name}.log").open("a", encoding="utf-8") as log:
        done = subprocess.run(command(run, *words), check=False, stdout=log, stderr=log)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{run.name} ended with {done.returncode}: see {run.name}.log")
    return time.monotonic() - began


def jobs(run: Path) -> dict[str, tuple[str, str, str]]:
    """Finished jobs of a store: id -> kind, problem, kernels."""
    with Store(run, readonly=True) as store:
        rows = store.db.execute("SELECT id, kind, problem, kernels FROM job").fetchall()
    return {id_: tuple(rest) for id_, *rest in rows}


def kill_and_resume(run: Path, *words: str) -> dict[str, Any]:
    """Start a search, `kill -9` it once KILL_AFTER_JOBS are done, and let the same command finish.

    Counts what was finished before, what of it is lost after, and what was done twice.
    """
    with (run.parent / f"{run.name}.log").open("a", encoding="utf-8") as log:
        process = subprocess.Popen(
            command(run, *words), stdout=log, stderr=log, start_new_session=True
        )
    before: dict[str, tuple[str, str, str]] = {}
    while process.poll() is None and len(before) < KILL_AFTER_JOBS:
        time.sleep(0.2)
        with contextlib.suppress(Exception):  # the store may not be there yet
            before = jobs(run)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = jobs(run)
    wall_s = generate(run, *words)
    after = jobs(run)
    work = [job for job in after.values() if job[0] == "screen"]
    return {
        "finished_before_kill": len(before),
        "lost": sum(after.get(id_) != job for id_, job in before.items()),
        "finished_after": len(after),
        "screened_twice": len(work) - len(set(work)),
        "wall_s_after": round(wall_s, 1),
    }


def read_chosen(run: Path) -> dict[str, dict[str, Any]]:
    """Problem -> kernel that was confirmed, its time and torch's in us (geometric mean of hot and
    cold medians)."""
    with Store(run, readonly=True) as store:
        fields = findings.read(store).fields
    found = {}
    for each in fields:
        if each.stage != "confirm":
            continue
        medians = {
            arm: math.prod(median(each.samples[p][arm]) for p in ("hot", "cold")) ** 0.5
            for arm in each.samples["hot"]
        }
        kernel = min(each.statuses, key=lambda id_: medians.get(id_, math.inf))
        found[str(each.problem)] = {
            "kernel": kernel[:16],
            "us": round(medians[kernel], 4),
            "torch_us": round(medians["torch"], 4),
        }
    return found


def noise(runs: Sequence[Path]) -> list[list[float]]:
    """A/A ratios [hot, cold] of every noise job."""
    ratios = []
    for run in runs:
        with Store(run, readonly=True) as store:
            ratios += [[n["hot"][0], n["cold"][0]] for n in findings.read(store).noise]
    return ratios


def pace(run: Path) -> dict[str, float]:
    """Kernels screened and the wall time in s that it took, from the first answer to the last."""
    with Store(run, readonly=True) as store:
        ends = [row[0] for row in store.db.execute("SELECT finished FROM job WHERE kind='screen'")]
        count = store.db.execute(
            "SELECT count(*) FROM measurement JOIN job ON job = id WHERE kind = 'screen'"
        ).fetchone()[0]
    return {"screened": count, "wall_s": round(max(ends) - min(ends), 3), "jobs": len(ends)}


def sweep(run: Path, gpus: int) -> dict[str, float]:
    """Screen kernel after kernel for as long as the budget lasts."""
    words = [*SWEEP, "--every", "4", "--strategy", "exhaustive"]
    whole_s = generate(run, *words, "--budget", f"{SWEEP_BUDGET_S}s", "--gpus", str(gpus))
    return {"gpus": gpus, "command_s": round(whole_s, 1), **pace(run)}


def searches(work: Path, _: int) -> dict[str, Any]:
    runs = [work / "first", work / "second"]
    walls = [round(generate(run, *SEARCH, "--budget", f"{BUDGET_S}s"), 1) for run in runs]
    return {"wall_s": walls, "chosen": [read_chosen(run) for run in runs], "noise": noise(runs)}


def kill(work: Path, _: int) -> dict[str, Any]:
    return kill_and_resume(work / "killed", *KILLED, "--budget", f"{BUDGET_S}s")


def scaling(work: Path, gpus: int) -> list[dict[str, float]]:
    sweep(work / "warm-up", gpus)  # compiles what both sweeps measure
    return [sweep(work / "one", 1), sweep(work / "all", gpus)]


STEPS = (searches, kill, scaling)


def summary(raw: dict[str, Any]) -> dict[str, Any]:
    """The figures that are quoted, from the raw ones."""
    first, second = raw["searches"]["chosen"]
    both = sorted(first.keys() & second.keys())
    logs = [math.log(first[p]["us"] / second[p]["us"]) for p in both]
    ratios = [r for pair in raw["searches"]["noise"] for r in pair]
    one, many = raw["scaling"]
    rates = [each["screened"] / each["wall_s"] for each in (one, many)]
    return {
        "aa_median": round(median(ratios), 5),
        "aa_worst": max(ratios, key=lambda r: abs(r - 1)),
        "repeat_problems": len(both),
        # of the larger over the smaller time, so that differences do not cancel
        "repeat_gmean": round(math.exp(sum(map(abs, logs)) / len(logs)), 5),
        "repeat_bias": round(math.exp(sum(logs) / len(logs)), 5),
        "repeat_same_kernel": sum(first[p]["kernel"] == second[p]["kernel"] for p in both),
        "killed_finished": raw["kill"]["finished_before_kill"],
        "killed_lost": raw["kill"]["lost"],
        "scaling": round(rates[1] / rates[0], 3),
        "scaling_gpus": many["gpus"],
    }


def main(arguments: list[str]) -> int:
    import torch

    work, out = Path(arguments[0]), Path(arguments[1]) if len(arguments) > 1 else OUT
    work.mkdir(parents=True, exist_ok=True)
    raw: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    gpus = torch.cuda.device_count()
    for step in STEPS:
        if step.__name__ not in raw:
            raw[step.__name__] = step(work, gpus)
            raw["device"] = f"{gpus} x {torch.cuda.get_device_name(0)}, torch {torch.__version__}"
            write(out, raw)
    raw["summary"] = summary(raw)
    write(out, raw)
    print(json.dumps(raw["summary"], indent=1))
    return 0


def write(out: Path, raw: dict[str, Any]) -> None:
    out.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
