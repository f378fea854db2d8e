"""`hgemm_packs.tune` on a GPU: what 60 seconds find, what a GPU model without a table ends with,
and what a kill costs.

    python -m benchmarks.measure.tune PACK OUT.json [--seconds 60]

needs one GPU that PACK has a table for, and about 210 s. Every tuning is a process of its own with
a cache of its own, and calls the public function.

`share_of_gain_60s`: layers of a model at numbers of tokens of which the table has none are tuned.
Then every kernel that takes a problem is screened, the best are timed against torch, and the best
of all is measured once more beside the kernel that the tuning chose and torch, in the same blocks.
The share is that of the sums of logarithms; no kernel gains nothing.

`renamed_vs_official`: the pack with its profile renamed, so that the GPU is one that no pack was
measured on. A sample of problems that the table has wins of is tuned; what runs then is measured
beside what the table names. The figure is the geometric mean of the official time over the tuned.

`killed_lost`: a tuning is killed some times, and another goes on. Of the problems that a killed
process said were done, those count that the next did not know.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = "Llama 3.1 8B"
#: Numbers of tokens that no list has.
TOKENS = (5, 90, 700)
RENAMED, RENAMED_S = 24, 45.0
KILLS, KILLED_AFTER = 2, 3  # rounds, and problems that are done when a process is killed
CONTESTED = 12
SEED = 27


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("pack", type=Path)
    options.add_argument("out", type=Path)
    options.add_argument("--seconds", type=float, default=60.0)
    given = options.parse_args()
    os.environ["HGEMM_PACKS_PATH"] = str(given.pack)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["HGEMM_PACKS_CACHE"] = str(folder / "none")
        document = measure(given.pack, folder, given.seconds)
    beside = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    text = json.dumps({**beside, **document}, indent=1, sort_keys=True) + "\n"
    given.out.write_text(text, encoding="utf-8")
    for name in ("share_of_gain_60s", "renamed_vs_official", "killed_lost"):
        print(f"{name}: {document[name]}")


def measure(pack: Path, folder: Path, seconds: float) -> dict[str, Any]:
    """All three, and what they were measured on."""
    import torch

    from hgemm_packs import launcher, report

    began = time.perf_counter()
    layers = write_shapes(folder / "layers.json", list_unmeasured(pack))
    tuned = tune(layers, folder / "first", pack, seconds)
    shared = compare_with_all(pack, tuned)
    wins = write_shapes(folder / "wins.json", draw_wins(pack))
    renamed = rename(pack, folder / "renamed")
    first = tune(wins, folder / "second", renamed, RENAMED_S)
    official = compare_with_table(pack, first)
    lost = count_lost(layers, folder / "third", pack)
    return {
        "share_of_gain_60s": share(shared),
        "renamed_vs_official": round(geometric_mean(each["ratio"] for each in official), 4),
        "killed_lost": lost,
        "seconds": seconds,
        "took_s": round(time.perf_counter() - began, 1),
        "device": asdict(launcher.device_info(torch.cuda.current_device())),
        "versions": report.runtime_versions(torch.cuda.current_device()),
        "first": {"gains": len(tuned["gains"]), "left": tuned["left"], "problems": shared},
        "renamed": {"gains": len(first["gains"]), "left": first["left"], "problems": official},
    }


def list_unmeasured(pack: Path) -> dict[Any, int]:
    """The layers of MODEL at TOKENS, without what the table has."""
    from hgemm_packs.cli.console import manifests_dir
    from hgemm_packs.pack.folder import Pack
    from hgemm_packs.tuning import shapes
    from hgemm_packs.tuning.wanted import of_layers

    listed = shapes.read(manifests_dir() / "shapes" / "llm_layers.toml").restrict([MODEL])
    known = {row.key for row in Pack.open(pack).manifest.table}
    wanted = of_layers(listed, TOKENS, "bf16")
    return {problem: int(calls) for problem, calls in wanted.items() if problem.key not in known}


def draw_wins(pack: Path) -> dict[Any, int]:
    """A sample of the plain problems that the table of this GPU model has a win of."""
    from hgemm_packs import launcher
    from hgemm_packs.pack.folder import Pack
    from hgemm_packs.problem import Problem

    manifest = Pack.open(pack).manifest
    name = launcher.device_info(0).name
    wins = [
        Problem(*row.key)
        for row in manifest.table
        if row.profile == name and row.kernel is not None and manifest.policy.clears(row)
        if row.epilogue == "none" and row.batches == 1 and len(row.key) == 8
    ]
    if not wins:
        sys.exit(f"{pack} has no table for {name}")
    chosen = random.Random(SEED).sample(sorted(wins, key=str), min(RENAMED, len(wins)))
    return dict.fromkeys(chosen, 1)


def write_shapes(path: Path, problems: Mapping[Any, int]) -> Path:
    from hgemm_packs.tuning.recording import Recording

    Recording(problems).save(path)
    return path


def rename(pack: Path, target: Path) -> Path:
    """The same pack for a GPU model that nobody has: known by its name, which is a new one."""
    from hgemm_packs import profiles
    from hgemm_packs.pack.folder import BLOB_NAME, MANIFEST_NAME

    target.mkdir()
    os.link(pack / BLOB_NAME, target / BLOB_NAME)
    lines = (pack / MANIFEST_NAME).read_text(encoding="utf-8")
    names = {each["name"] for each in json.loads(lines)["device_profiles"]}
    for name in names:
        lines = lines.replace(json.dumps(name), json.dumps(f"{name} (renamed)"))
    facts = "|".join(profiles.BEYOND_NAMES)
    lines = re.sub(rf',?"({facts})":[0-9.e+]+', "", lines)
    (target / MANIFEST_NAME).write_text(lines, encoding="utf-8")
    return target


#: What a process of its own does: the public function, and what it found as JSON.
CHILD = """
import json, sys
import hgemm_packs
done = hgemm_packs.tune(sys.argv[1], seconds=float(sys.argv[2]))
found = {
    "known": done.known,
    "left": len(done.left),
    "gains": [[str(each.problem), each.kernel] for each in done.gains],
}
print(json.dumps(found))
"""


def spawn(
    shapes: Path, cache: Path, pack: Path, seconds: float, out: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    env = os.environ | {"HGEMM_PACKS_CACHE": str(cache), "HGEMM_PACKS_PATH": str(pack)}
    command = [sys.executable, "-c", CHILD, str(shapes), str(seconds)]
    return subprocess.Popen(
        command, env=env, cwd=REPOSITORY, text=True, stdout=out, stderr=subprocess.PIPE
    )


def tune(shapes: Path, cache: Path, pack: Path, seconds: float) -> dict[str, Any]:
    """What a tuning in a process of its own found. Raises RuntimeError with its words."""
    child = spawn(shapes, cache, pack, seconds, subprocess.PIPE)
    out, err = child.communicate()
    if child.returncode:
        raise RuntimeError(err)
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found | {"shapes": shapes}


def count_lost(shapes: Path, cache: Path, pack: Path) -> int:
    """Problems that were done when a process was killed and that the next did not know."""
    lost = done = 0
    for _ in range(KILLS):
        child = spawn(shapes, cache, pack, 3600.0)
        assert child.stderr is not None
        here = 0
        for line in child.stderr:
            here += is_done(line)
            if here == KILLED_AFTER:
                break
        time.sleep(0.2)  # in the midst of the next
        child.send_signal(signal.SIGKILL)
        done += here + sum(map(is_done, child.stderr))  # what it said before it died
        child.wait()
        lost += max(0, done - tune(shapes, cache, pack, 0.001)["known"])
    return lost


def is_done(line: str) -> bool:
    """Whether a line says that a problem is done."""
    return line.split("/")[0].isdigit()


def read_chosen(tuned: Mapping[str, Any]) -> dict[str, str | None]:
    return dict(tuned["gains"])


def compare_with_all(pack: Path, tuned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each problem the gain of what the tuning chose and of the best of all kernels. A problem
    that it had no time for runs on torch."""
    from hgemm_packs.pack.folder import Pack
    from hgemm_packs.tuning.bench import GpuBench
    from hgemm_packs.tuning.candidates import Candidates
    from hgemm_packs.tuning.recording import Recording

    candidates, bench = Candidates([Pack.open(pack)]), GpuBench(0)
    names = {each.entry.name: each for each in candidates.by_id.values()}
    chosen, found = read_chosen(tuned), []
    for problem in Recording.load(tuned["shapes"]):
        ranked = candidates.rank(problem)
        times = bench.screen(problem, ranked, math.inf).times
        best = sorted((e for e in ranked if e.entry.id in times), key=lambda e: times[e.entry.id])
        contest = bench.finals(problem, best[:CONTESTED], 1)
        name = chosen.get(str(problem))
        arms = {names[name].entry.id: names[name]} if name else {}
        if contest is not None:
            first = max(
                best[:CONTESTED], key=lambda e: speedup(contest.samples, e.entry.id), default=None
            )
            if first is not None:
                arms[first.entry.id] = first
        again = bench.finals(problem, list(arms.values()), 2) if arms else None
        gains = {id_: speedup(again.samples, id_) for id_ in arms} if again is not None else {}
        own = gains.get(names[name].entry.id, 1.0) if name else 1.0
        line = {"problem": str(problem), "tuned": round(own, 4)}
        found.append(line | {"all": round(max([1.0, *gains.values()]), 4), "kernels": len(times)})
    return found


def speedup(samples: Mapping[str, Mapping[str, Sequence[float]]], kernel: str) -> float:
    """The geometric mean of hot and cold; 0 of a kernel that was not timed."""
    ratios = []
    for protocol in ("hot", "cold"):
        if kernel not in samples[protocol]:
            return 0.0
        pairs = zip(samples[protocol]["torch"], samples[protocol][kernel], strict=True)
        ratios.append(median(torch / ours for torch, ours in pairs))
    return math.sqrt(math.prod(ratios))


def share(found: Iterable[Mapping[str, Any]]) -> float:
    """The tuning's part of the gain of all kernels."""
    lines = list(found)
    total = sum(math.log(each["all"]) for each in lines)
    return round(sum(math.log(max(each["tuned"], 1e-9)) for each in lines) / total, 4)


def compare_with_table(pack: Path, tuned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each problem the official time over the tuned one; torch's where either names none."""
    from hgemm_packs import launcher
    from hgemm_packs.pack.folder import Pack
    from hgemm_packs.tuning.bench import GpuBench
    from hgemm_packs.tuning.candidates import Candidates
    from hgemm_packs.tuning.recording import Recording

    opened = Pack.open(pack)
    candidates, bench = Candidates([opened]), GpuBench(0)
    names = {each.entry.name: each for each in candidates.by_id.values()}
    profile, chosen, found = launcher.device_info(0).name, read_chosen(tuned), []
    for problem in Recording.load(tuned["shapes"]):
        row = opened.manifest.row(profile, problem.key)
        official = candidates.by_id[str(row.kernel)] if row else None
        name = chosen.get(str(problem))
        own = names[name] if name else None
        arms = {each.entry.id: each for each in (official, own) if each is not None}
        done = bench.finals(problem, list(arms.values()), 3)
        if done is None:
            continue
        gains = {id_: speedup(done.samples, id_) for id_ in arms}
        first = gains.get(official.entry.id, 1.0) if official else 1.0
        second = gains.get(own.entry.id, 1.0) if own else 1.0
        line = {"problem": str(problem), "official": round(first, 4), "tuned": round(second, 4)}
        found.append(line | {"ratio": round(second / first, 4)})
    return found


if __name__ == "__main__":
    main()
