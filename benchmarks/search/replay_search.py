"""Every search on the recorded problems: benchmarks/results/replay_search.json and .png.

`python -m benchmarks.search.replay_search` runs what is not on file yet, two processes at a time,
and then computes every figure from the raw lines. It needs no GPU: the times come from recordings.
A line is one run; it counts only with the recording and the sources that it was made from.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from hgemm_packs.generator import search
from hgemm_packs.generator.core import space
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.devices import recording, replay
from hgemm_packs.generator.devices.recording import Screen
from hgemm_packs.generator.search import DEFAULT, STRATEGIES
from hgemm_packs.generator.search.rivals import compare
from hgemm_packs.generator.store import shards
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.problem import Problem

RESULTS = Path(__file__).resolve().parents[1] / "results"
#: Recordings and seeds. Settings of the searches, the rivals' too, were chosen on `h200`; what is
#: claimed comes from the first, which shares no problem with it.
SEEDS = {"h200_held_out": 20, "h200": 5}
HEADLINE = "h200_held_out"
FIGURES = RESULTS / "replay_search.json"
RAW = RESULTS / "replay" / "search.jsonl.zip"
SCRATCH = RESULTS / "scratch" / "replay_search.jsonl"
SEARCHES = ("portfolio", "prior", "policy", "islands", "cost", "random", "tpe", "cma")
#: Rivals follow from their own modules and these; a search of ours may follow from any module.
RIVALS = {
    "random": ("rivals/random_search.py",),
    "tpe": ("rivals/tpe.py", "rivals/by_problem.py"),
    "cma": ("rivals/cma.py", "rivals/by_problem.py"),
}
SHARED = ("base.py", "rivals/compare.py", "rivals/lattice.py")
HALVES = "halves"
BUDGET, BATCH = 64, 8
AT = (8, 16, 32, 64)  # measurements that the figures name
TESTED_AT = 32
FIRST = (1, 4, 8)
WORKERS = 2

Line = dict[str, Any]
#: recording, search or HALVES, seed, digest of what the run follows from
Task = tuple[str, str, int, str]
FIELDS = ("recording", "name", "seed", "sources")


def path_of(recorded: str) -> Path:
    return RESULTS / "replay" / f"{recorded}.npz"


def sources(recorded: str, name: str) -> str:
    """Digest of the recording, the settings and the code that runs of `name` follow from."""
    folder = Path(search.__file__).parent
    if name in RIVALS:
        files = [folder / each for each in (*RIVALS[name], *SHARED)]
    else:
        rivals = {folder / each for files in RIVALS.values() for each in files}
        files = [each for each in folder.rglob("*.py") if each not in rivals]
    files += [path_of(recorded), Path(space.__file__), Path(replay.__file__)]
    files += (folder.parent / "families").glob("*.py")
    digest = hashlib.sha256(repr((BUDGET, BATCH, FIRST)).encode())
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def tasks(seeds: Mapping[str, int]) -> Iterator[Task]:
    """The slowest first, so that the workers end together."""
    for name in sorted((*SEARCHES, HALVES), key=lambda name: name != "tpe"):
        for recorded, count in seeds.items():
            digest = sources(recorded, name)
            yield from ((recorded, name, seed, digest) for seed in range(count))


@functools.cache
def recorded_spaces(recorded: str) -> tuple[dict[Problem, Screen], dict[Problem, Space]]:
    """A recording and its spaces, read once a worker: of the catalogue of its day, which is all
    that its searches know."""
    screens = recording.load(path_of(recorded), any_catalogue=True)
    return screens, replay.spaces_of(screens)


def do(task: Task) -> Line:
    """One run as a line. A curve is kept as its changes: [measurement, share of the optimum]."""
    recorded, name, seed, _ = task
    bench = replay.ReplayBench(*recorded_spaces(recorded), seed)
    line = dict(zip(FIELDS, task, strict=True))
    if name == HALVES:
        first = compare.halves(bench, seed, budget=BUDGET, batch=BATCH, counts=FIRST)
        return {**line, "first": first}
    strategy = STRATEGIES[name](seed)
    curves = compare.run(strategy, bench, list(bench.spaces), seed, budget=BUDGET, batch=BATCH)
    return {**line, "changes": [changes(curve) for curve in curves.values()]}


def changes(curve: compare.Curve) -> list[list[float]]:
    """Where a curve takes a new value, and which."""
    before = [None, *curve[:-1]]
    return [
        [i, round(now, 6)]
        for i, (now, old) in enumerate(zip(curve, before, strict=True))
        if now != old
    ]


def expand_curve(changed: Sequence[Sequence[float]]) -> compare.Curve:
    """The curve of BUDGET measurements with these changes."""
    curve = np.empty(BUDGET)
    for i, share in changed:
        curve[int(i) :] = share
    return [float(share) for share in curve]


def _text(line: Line) -> str:
    return json.dumps(line, separators=(",", ":")) + "\n"


def run(wanted: Sequence[Task]) -> list[Line]:
    """The lines of these tasks: those on file, and the others done now."""
    SCRATCH.parent.mkdir(parents=True, exist_ok=True)
    if not SCRATCH.exists():
        known = read_records([RAW]) if RAW.exists() else []
        SCRATCH.write_text("".join(_text(line) for line in known), encoding="utf-8")
    os.truncate(SCRATCH, SCRATCH.read_bytes().rfind(b"\n") + 1)  # the torn line of a killed run
    lines = {tuple(line[field] for field in FIELDS): line for line in read_records([SCRATCH])}
    missing = [task for task in wanted if task not in lines]
    os.environ["OMP_NUM_THREADS"] = "1"  # the workers share the cores between them
    pool = ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn"))
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress, pool, SCRATCH.open("a") as file:
        bar = progress.add_task("", total=len(missing))
        futures = {pool.submit(do, task): task for task in missing}
        for future in as_completed(futures):
            lines[futures[future]] = future.result()
            file.write(_text(future.result()))
            file.flush()
            progress.advance(bar)
    return [lines[task] for task in wanted]


def summarise(lines: Sequence[Line], screens: Mapping[Problem, Screen]) -> dict[str, Any]:
    """Every figure of one recording. `curve` is the mean over seeds of the geometric mean over
    problems; `low` and `high` are the 5th and 95th percentile over seeds."""
    curves: dict[str, list[list[compare.Curve]]] = {}  # search -> seed -> problem
    for line in lines:
        if line["name"] != HALVES:
            per_problem = [expand_curve(changed) for changed in line["changes"]]
            curves.setdefault(line["name"], []).append(per_problem)
    by_seed = {
        name: np.array([compare.mean_curve(each) for each in runs]) for name, runs in curves.items()
    }
    return {
        "recorded": _describe_recording(screens),
        "settings": {"budget": BUDGET, "batch": BATCH, "seeds": len(by_seed[DEFAULT])},
        "searches": {name: _search(rows) for name, rows in by_seed.items()},
        "tests": _tests(curves, by_seed),
        "halves": _halves([line["first"] for line in lines if line["name"] == HALVES]),
    }


def _describe_recording(screens: Mapping[Problem, Screen]) -> dict[str, Any]:
    """What was recorded, and how far its optima can be believed: `optimum_again` is the best time
    of the second measurement of each problem's top over that of the first one's best."""
    again = []
    for screen in screens.values():
        second = {choice: median(us) for choice, us in screen.again.items()}
        again.append(min(second.values()) / second[screen.optimum()[0]])
    samples = np.concatenate([screen.samples for screen in screens.values()])
    samples = samples[np.isfinite(samples).all(axis=1)]
    spread = np.ptp(samples, axis=1) / np.median(samples, axis=1)
    return {
        "problems": len(screens),
        "times": int(sum(np.isfinite(screen.us).sum() for screen in screens.values())),
        "spread_of_three": round(float(np.median(spread)), 5),
        "optimum_again": round(compare.geometric_mean(again), 5),
    }


def _search(rows: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    mean = rows.mean(axis=0)
    low, high = np.quantile(rows, (0.05, 0.95), axis=0)
    reached = {
        f"to_{bar}": next((i + 1 for i, share in enumerate(mean) if share >= bar / 100), None)
        for bar in (90, 95, 99)
    }
    return {
        "at": {str(n): round(float(mean[n - 1]), 5) for n in AT},
        **reached,
        "curve": np.round(mean, 5).tolist(),
        "low": np.round(low, 5).tolist(),
        "high": np.round(high, 5).tolist(),
    }


def _tests(
    curves: Mapping[str, list[list[compare.Curve]]], by_seed: Mapping[str, Any]
) -> dict[str, Any]:
    """DEFAULT against each other search after TESTED_AT measurements. `p` pairs the seeds: whether
    it is chance on these problems. `p_problems` pairs the problems, each the mean over seeds:
    whether it would be on others like them. Holm's correction is over the searches."""
    at = TESTED_AT - 1
    ours = by_seed[DEFAULT][:, at]
    result: dict[str, Any] = {}
    for rival in (name for name in by_seed if name != DEFAULT):
        theirs = by_seed[rival][:, at]
        mine, other = (np.array(curves[name])[:, :, at].mean(axis=0) for name in (DEFAULT, rival))
        result[rival] = {
            "share": [round(float(ours.mean()), 5), round(float(theirs.mean()), 5)],
            "seeds_ahead": f"{int((ours > theirs).sum())}/{len(ours)}",
            "p": _p_value(ours, theirs),
            "problems_ahead": f"{int((mine > other).sum())}/{len(mine)}",
            "p_problems": _p_value(mine, other),
        }
    for name, p in compare.holm({name: row["p"] for name, row in result.items()}).items():
        result[name]["p_holm"] = float(f"{p:.3g}")
    test = "Wilcoxon signed rank, one-sided, paired"
    return {"of": DEFAULT, "measurements": TESTED_AT, "test": test, "against": result}


def _p_value(ours: Any, theirs: Any) -> float:
    return float(f"{compare.p_value(ours, theirs):.3g}")


def _halves(runs: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """Per ranking and k: mean share of the optimum, and the p-value against the prior."""
    shares = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    return {
        name: {
            str(k): {
                "share": round(float(rows[:, i].mean()), 5),
                "ahead": f"{int((rows[:, i] > shares['prior'][:, i]).sum())}/{len(rows)}",
                "p": _p_value(rows[:, i], shares["prior"][:, i]),
            }
            for i, k in enumerate(FIRST)
        }
        for name, rows in shares.items()
    }


def plot(summary: Mapping[str, Any], path: Path) -> None:
    """How much slower than the optimum, by measurements: from zero, and on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5), sharex=True)
    count = np.arange(1, BUDGET + 1)
    for name, each in summary["searches"].items():
        shares = (np.array(each[key]) for key in ("curve", "low", "high"))
        regret, most, least = (100 * (1 / share - 1) for share in shares)
        for axis in axes:
            style = "--" if name in RIVALS else "-"
            (line,) = axis.plot(count, regret, style, label=name, linewidth=1.5)
            axis.fill_between(count, least, most, color=line.get_color(), alpha=0.15, linewidth=0)
    axes[0].set_ylim(bottom=0)
    axes[1].set_yscale("log")
    axes[0].set_xlim(1, BUDGET)
    for axis in axes:
        axis.set_xlabel("measurements of a problem")
        axis.set_ylabel("slower than the recorded optimum, %")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    problems, seeds = summary["recorded"]["problems"], summary["settings"]["seeds"]
    figure.suptitle(f"{problems} recorded problems, mean of {seeds} seeds (5% to 95%)")
    figure.tight_layout()
    figure.savefig(path, dpi=120, metadata={"Software": None})


def summaries(lines: Sequence[Line]) -> dict[str, Any]:
    """The figures by recording: what replay_search.json holds."""
    return {
        recorded: summarise(
            [line for line in lines if line["recording"] == recorded], recorded_spaces(recorded)[0]
        )
        for recorded in SEEDS
    }


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    lines = run(list(tasks(SEEDS)))
    RAW.write_bytes(shards.pack(lines))
    figures = summaries(lines)
    FIGURES.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    plot(figures[HEADLINE], FIGURES.with_suffix(".png"))
    for name, row in figures[HEADLINE]["tests"]["against"].items():
        print(f"{DEFAULT} against {name}: shares {row['share']}, p {row['p_holm']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
