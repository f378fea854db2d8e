"""benchmarks/results/shapes.json: what problems that nobody chose get, from committed results.

    python -m benchmarks.publish.shapes_figures

Layers and sizes that a seed drew, through `matmul`, are lines of the last run of
`benchmarks.measure.unseen`, the host's figures of the last HOSTS that have them, each on a host of
its own; `search` is the best kernel that a search found for drawn layers, before fallback, of each
problem that came to its finals; `models` are steps of whole models in CUDA graphs; `grouped` are
products of experts, `batched` batches of `bmm` and `baddbmm`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.folders import CONFIRMATIONS, RESULTS
from benchmarks.publish.protocol_texts import markdown
from benchmarks.search import drawn_layers
from hgemm_packs.generator.campaigns.campaign import Line, lines
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.problem import Problem

OUT = RESULTS / "shapes.json"
#: Sets of the lines that a set of the figures has.
SETS = {"layers": ("layers", "layers_new"), "random": ("random", "unaligned")}
LOSS = 0.98
#: Runs on hosts before the last ones were of code that decided in another way.
HOSTS = 3


def gain_of(us: Mapping[str, Sequence[float]], arm: str = "ours") -> float:
    """Torch's time over an arm's, the median of the blocks."""
    return median(t / a for t, a in zip(us["torch"], us[arm], strict=True))


def share_of_gain(of: Iterable[Line]) -> float | None:
    """The gain that was had of that which the best of all kernels would have given, where all were
    timed, in logarithms; None where there was none to be had."""
    had = possible = 0.0
    for line in of:
        if line["all"]:
            arms = [name for name in line["us"] if name != "torch"]
            best = max(math.log(gain_of(line["us"], name)) for name in arms)
            had += math.log(gain_of(line["us"]))
            possible += max(0.0, best)
    return round(had / possible, 4) if possible else None


def gmean(gains: Sequence[float]) -> float:
    return round(math.exp(sum(map(math.log, gains)) / len(gains)), 4)


def figures(of: Sequence[Line]) -> dict[str, Any]:
    """All that the lines have to say, by name."""
    found: dict[str, Any] = {}
    timed = [line for line in of if "us" in line]
    for name, sets in SETS.items():
        mine = [line for line in timed if line["set"] in sets]
        if not mine:
            continue
        gains = [gain_of(line["us"]) for line in mine]
        found[f"{name}.problems"] = len(mine)
        found[f"{name}.gmean"] = gmean(gains)
        found[f"{name}.worst"] = round(min(gains), 4)
        found[f"{name}.below_098"] = round(sum(g < LOSS for g in gains) / len(gains), 4)
        served = sum(line["by"] != "torch" for line in mine)
        found[f"{name}.served"] = round(served / len(mine), 4)
        share = share_of_gain(mine)
        if share is not None:
            found[f"{name}.share_of_gain"] = share
    unaligned = [gain_of(line["us"]) for line in timed if line["set"] == "unaligned"]
    if unaligned:
        found["random.unaligned"] = gmean(unaligned)
    if timed:
        found["wrong"] = sum(line["wrong"] for line in timed)
    return found


def of_hosts(of: Sequence[Line]) -> dict[str, Any]:
    """What a decision costs hosts, the median of them and the slowest."""
    found: dict[str, Any] = {"host.hosts": len(of)}
    for name in ("first_us", "stream_extra_us"):
        found[f"host.{name}"] = round(median(line[name] for line in of), 4)
        found[f"host.{name}.worst"] = max(line[name] for line in of)
    return found


def of_models(cases: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Of steps of 3 to 100 tokens in CUDA graphs, bf16."""
    gains = [
        case["over_torch"]
        for case in cases
        if (case["mode"], case["dtype"], case["phase"]) == ("graph", "bf16", "decode")
        and 3 <= case["tokens"] <= 100
    ]
    return {"models.graph_3_100": gmean(gains), "models.graph_worst": round(min(gains), 4)}


def of_groups(measured: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Of grouped products, torch's time over ours."""
    gains = [gain_of(line["us"]) for line in measured if "us" in line]
    return {"grouped.gmean": gmean(gains), "grouped.worst": round(min(gains), 4)}


def of_batches(measured: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Of batches, torch's time over that of the best kernel, hot and before fallback."""
    gains = [line["speedup"]["hot"]["value"] for line in measured if line.get("speedup")]
    return {
        "batched.problems": len(gains),
        "batched.gmean": gmean(gains),
        "batched.worst": round(min(gains), 4),
    }


def of_search(exports: Iterable[Path], name: str) -> dict[str, float]:
    """Of a set of drawn layers, torch's time over that of the best kernel in finals."""
    wanted = {*problems.read(f"drawn_{name}")}
    best: dict[Problem, float] = {}
    for place in exports:
        found = drawn_layers.best_of(export.load(place).fields)
        best |= {problem: gain for problem, (_, gain) in found.items() if problem in wanted}
    if not best:
        return {}
    return {f"search.{name}": gmean([*best.values()]), f"search.{name}.problems": len(best)}


def describe(summary: Mapping[str, Any]) -> str:
    """The figures as tables of a page."""
    found = summary["shapes"]
    lines = [
        "| problems drawn by a seed, none of them chosen | with a kernel | over torch | worst "
        "| below 0.98 | share of the gain |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    texts = {
        "layers": "layers of language models, M up to 8192",
        "random": "sizes of any kind, a third unaligned",
    }
    for name, text in texts.items():
        mine = {key: found[f"{name}.{key}"] for key in ("problems", "served", "gmean", "worst")}
        lines.append(
            f"| {mine['problems']} {text} | {mine['served']:.0%} | {mine['gmean']:.3f}x "
            f"| {mine['worst']:.3f}x | {found[f'{name}.below_098']:.1%} "
            f"| {found[f'{name}.share_of_gain']:.0%} |"
        )
    rows = {
        "unaligned ones of these over torch": f"{found['random.unaligned']:.3f}x",
        "best kernel of a search, drawn layers, M 65 to 512": f"{found['search.m65_512']:.3f}x of "
        f"torch before fallback ({found['search.m65_512.problems']} problems)",
        "the same, M 513 to 8192": f"{found['search.m513_8192']:.3f}x "
        f"({found['search.m513_8192.problems']} problems)",
        "whole models in CUDA graphs, bf16, 3 to 100 tokens": (
            f"{found['models.graph_3_100']:.3f}x, worst {found['models.graph_worst']:.3f}x"
        ),
        "products of experts over torch's grouped product": f"{found['grouped.gmean']:.3f}x, "
        f"worst {found['grouped.worst']:.3f}x",
        "batches over torch's, before fallback": f"{found['batched.gmean']:.3f}x, "
        f"worst {found['batched.worst']:.3f}x ({found['batched.problems']} problems)",
    }
    for name, text, digits in (
        ("first_us", "first decision about a problem", 0),
        ("stream_extra_us", "a stream of 10,000 sizes, a call over torch", 1),
    ):
        usual, worst = found[f"host.{name}"], found[f"host.{name}.worst"]
        rows[text] = (
            f"{usual:.{digits}f} us in the median of {found['host.hosts']} hosts, "
            f"{worst:.{digits}f} us at worst"
        )
    return "\n".join([*lines, "", markdown(("figure", "value"), rows.items())])


def main(arguments: Sequence[str]) -> int:
    if arguments:
        sys.exit(__doc__)
    # Runs before the last one were of other predictors; not every run has the host's figures.
    judged, alone = (sorted((RESULTS / "prediction" / of).iterdir()) for of in ("unseen", "hosts"))
    headers, measured = lines(judged[-1:])
    told = [line for path in [*judged, *alone] for line in lines([path])[1]]
    hosts = [line for line in told if line["set"] == "host"]
    found = figures(measured) | of_hosts(hosts[-HOSTS:])
    found["seeds"] = sorted({header["seed"] for header in headers})
    found |= of_models(json.loads((RESULTS / "models.json").read_text(encoding="utf-8"))["cases"])
    found |= of_groups(read_records([RESULTS / "grouped"]))
    found |= of_batches(read_records([RESULTS / "batched"]))
    # What waits for evidence of its kernels is among what was tried.
    places = (RESULTS / CONFIRMATIONS, RESULTS / "tried")
    exports = sorted(path.parent for place in places for path in place.glob(f"*/{export.FACTS}"))
    for name in drawn_layers.SETS:
        found |= of_search(exports, name)
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    OUT.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
