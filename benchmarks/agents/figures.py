"""The figures of agents in one place: benchmarks/results/agents.json.

python -m benchmarks.agents.figures [FOLDER OUT.json] reads the raw results below
`benchmarks/results/agents/` and copies nothing by hand; without arguments it also writes the table
of a real model into docs/agents.md. What has not been measured is left out, and
never filled in. Lines are in files `.jsonl`, or packed as everywhere in the results:

    scripted/    `benchmarks.agents.scripted`: a line a case, "case", "outcome" and "bypassed" (a
                 gate let it through)
    replay/      `benchmarks.agents.replay`: a line a way and seed, shares of the best known speed
    model/       `benchmarks.agents.small_model`: a line a problem, by the model and by the rules
    grpo/RUN/    a folder of `generate train`: recipe.json and curve.jsonl.zip; with "control" the
                 rewards were shuffled
    byhand/      `benchmarks.agents.byhand`: a line a kernel and stage, "problem", "file", "status"
                 and "won" (every gate, and ahead of torch and the table's kernel)
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.agents import replay, small_model
from benchmarks.publish import readme
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.store.lines import read_records

RESULTS = Path(__file__).resolve().parents[1] / "results"
RAW, OUT = RESULTS / "agents", RESULTS / "agents.json"
PAGE = RESULTS.parents[1] / "docs" / "agents.md"

Line = Mapping[str, Any]


def figures(raw: Path = RAW) -> dict[str, Any]:
    """Every figure of which there are raw results. Raises ValueError, which names the folder, for
    lines that lack a field, and OSError."""
    found: dict[str, Any] = {}
    for name, make in PARTS.items():
        place = raw / name
        if place.is_dir():
            try:
                found |= make(place)
            except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
                raise ValueError(f"{place}: {type(error).__name__}: {error}") from None
    return found


def _lines(place: Path, *fields: str) -> list[Line]:
    """Whole lines, each with these fields; a header is none."""
    found = [line for line in read_records([place]) if "header" not in line]
    if not found:
        raise ValueError("no lines")
    for line in found:
        missing = [name for name in fields if line.get(name) is None]
        if missing:
            raise ValueError(f"a line lacks {missing[0]!r}")
    return found


def _last(lines: Sequence[Line], key: str) -> list[Line]:
    """The later line counts where something was measured twice."""
    return list({line[key]: line for line in lines}.values())


def scripted(place: Path) -> dict[str, Any]:
    """How many cases the scripted server played, what became of them, and how many got past a gate
    that they must not."""
    cases = _last(_lines(place, "case", "bypassed", "outcome"), "case")
    return {
        "scripted": {
            "cases": len(cases),
            "gate_bypasses": sum(line["bypassed"] is not False for line in cases),
            "outcomes": dict(sorted(Counter(line["outcome"] for line in cases).items())),
        }
    }


def replayed(place: Path) -> dict[str, Any]:
    """Models beside the search, and branches against chains."""
    return replay.summarise(replay.newest(_lines(place, *replay.FIELDS, "shares")))


def model(place: Path) -> dict[str, Any]:
    """A real model's answers, and what came of them beside the rules."""
    return {"model": small_model.summarise(read_records([place]))}


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def grpo(place: Path) -> dict[str, Any]:
    """Mean reward on held-out problems, over trainings: before the first step and after the last
    one, and the latter of trainings with shuffled rewards. `from_nothing` is the same of the model
    with random weights."""
    found: dict[bool, list[tuple[bool, list[Line]]]] = {True: [], False: []}
    for recipe in sorted(place.glob("*/recipe.json")):
        said = json.loads(recipe.read_text(encoding="utf-8"))
        curve = _lines(recipe.with_name("curve.jsonl.zip"), "step", "rewards")
        found[bool(said["model"])].append((said["control"], curve))
    language, blank = (_means(found[each]) for each in (True, False))
    if not language and not blank:
        raise ValueError("no training")
    return {"grpo": {**language, **({"from_nothing": blank} if blank else {})}}


def _means(trainings: Sequence[tuple[bool, Sequence[Line]]]) -> dict[str, Any]:
    """Of one model's trainings, each whether it is a control and its curve; nothing without any."""
    rewarded, controls = (
        [c for control, c in trainings if control is way] for way in (False, True)
    )
    found = {
        "heldout_start": [fmean(curve[0]["rewards"]) for curve in rewarded],
        "heldout_end": [fmean(curve[-1]["rewards"]) for curve in rewarded],
        "control_end": [fmean(curve[-1]["rewards"]) for curve in controls],
    }
    means = {name: _round(fmean(values)) for name, values in found.items() if values}
    counts = {"trainings": len(rewarded), "controls": len(controls)}
    return {**means, **counts} if means else {}


def byhand(place: Path) -> dict[str, Any]:
    """Problems that free source was written for, of how many one won, how many kernels, and what
    became of them: the status of each at the last stage that it came to."""
    lines = _last(_lines(place, "problem", "file", "status", "won"), "file")
    outcomes = Counter(
        "won" if line["won"] is True else "behind" if line["status"] == "OK" else line["status"]
        for line in lines
    )
    return {
        "byhand": {
            "problems": len({line["problem"] for line in lines}),
            "wins": len({line["problem"] for line in lines if line["won"] is True}),
            "kernels": len(lines),
            "outcomes": dict(sorted(outcomes.items())),
        }
    }


PARTS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "scripted": scripted,
    "replay": replayed,
    "model": model,
    "grpo": grpo,
    "byhand": byhand,
}


def main(arguments: Sequence[str]) -> int:
    raw, out = (Path(given) for given in (*arguments, RAW, OUT)[:2])
    found = figures(raw)
    if not found:
        print(f"{raw} has no results of agents", file=sys.stderr)
        return 1
    write_atomically(out, (json.dumps(found, indent=1) + "\n").encode())
    print(f"{out}: {', '.join(found)}")
    if not arguments:
        write_atomically(PAGE, page(found).encode())
    return 0


def page(found: Mapping[str, Any]) -> str:
    """docs/agents.md with its figures."""
    blocks = {"model": small_model.describe}
    return readme.render(PAGE.read_text(encoding="utf-8"), dict(found), blocks)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
