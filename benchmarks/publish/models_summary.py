"""benchmarks/results/models.json from the lines of benchmarks/measure/models.py and
benchmarks/measure/serving.py.

Called by `models.py --summary`. It measures nothing; the same lines give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks import folders
from hgemm_packs.generator.campaigns import campaign, cases
from hgemm_packs.generator.campaigns.campaign import Line
from hgemm_packs.generator.store.lines import read_records

RESULTS = Path(__file__).resolve().parents[1] / "results"
OUT = RESULTS / "models.json"
#: A mode of benchmarks/measure/models.py -> torch.compile's.
COMPILED = {"compile": "default", "reduce-overhead": "reduce-overhead"}
#: Steps up to so many tokens have a mean of their own.
FEW_TOKENS = 64


def name_case(line: Line) -> str:
    """A case in words."""
    what = "tokens" if line["phase"] == "decode" else "tokens of a prompt"
    return f"{line['model']} {line['dtype']}, {line['mode']}, {line['tokens']} {what}"


def mean(ratios: Iterable[float]) -> float:
    return round(geometric_mean(ratios), 4)


def noise(lines: Sequence[Line]) -> dict[str, Any]:
    """Torch over itself, by mode: how far from 1 chance alone takes a case."""
    found: dict[str, Any] = {}
    for mode in sorted({line["mode"] for line in lines if "again" in line["us"]}):
        ratios = [
            cases.speedup(line["us"], arm="again")
            for line in lines
            if line["mode"] == mode and "again" in line["us"]
        ]
        found[mode] = {
            "cases": len(ratios),
            "least": round(min(ratios), 4),
            "most": round(max(ratios), 4),
        }
    return {"noise": found} if found else {}


def figures(lines: Sequence[Line]) -> dict[str, Any]:
    """torch over ours: the geometric mean, the worst case and which it is."""
    ratios = [cases.speedup(line["us"]) for line in lines]
    few = [r for r, line in zip(ratios, lines, strict=True) if line["tokens"] <= FEW_TOKENS]
    worst, which = min(zip(ratios, map(name_case, lines), strict=True))
    products = sum(line["served"]["products"] for line in lines)
    found = {
        "cases": len(lines),
        "gmean": mean(ratios),
        "worst": round(worst, 4),
        "worst_case": which,
        "served": round(sum(line["served"]["kernels"] for line in lines) / products, 4),
    }
    return found | ({"gmean_upto64": mean(few)} if few else {})


def groups(lines: Sequence[Line]) -> dict[str, Any]:
    """Figures of decode steps by mode, of the compiled ones together and apart, and of prompts in
    all modes; what was not measured is not there."""
    decode = [line for line in lines if line["phase"] == "decode"]
    parts = {
        "graph": [line for line in decode if line["mode"] == "graph"],
        "eager": [line for line in decode if line["mode"] == "eager"],
        "compile": [line for line in decode if line.get("compiled", False)],
        "prompts": [line for line in lines if line["phase"] == "prompt"],
    }
    found = {name: figures(part) for name, part in parts.items() if part}
    for mode in COMPILED:
        part = [line for line in decode if line["mode"] == mode and line.get("compiled", False)]
        if part:
            found["compile"][COMPILED[mode]] = figures(part)
    return found


def models(headers: Sequence[Line], lines: Sequence[Line]) -> dict[str, Any]:
    """What models.json says of models: all together, each model and type, each case. Lines with
    wrong values do not count, but are named."""
    right = [line for line in lines if not line["wrong"]]
    apiece: dict[str, dict[str, Any]] = {}
    for model, dtype in sorted({(line["model"], line["dtype"]) for line in right}):
        mine = [line for line in right if (line["model"], line["dtype"]) == (model, dtype)]
        apiece.setdefault(model, {})[dtype] = groups(mine)
    each = [
        {name: line[name] for name in line["fields"]}
        | {"over_torch": round(cases.speedup(line["us"]), 4), "served": line["served"]}
        for line in right
    ]
    return (
        groups(right)
        | noise(right)
        | {
            "models": apiece,
            "cases": sorted(each, key=cases.key),
            "wrong": sorted(f"{name_case(line)}: {why}" for line in lines for why in line["wrong"]),
            "measured_on": headers[-1] if headers else {},
        }
    )


def over(samples: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Ours against torch and against the better of torch and tuned cuBLASLt, by its median."""
    others = [name for name in samples if name != "ours"]
    best = min(others, key=lambda name: median(samples[name]))
    return cases.speedup(samples), cases.speedup(samples, best)


def call_figures(lines: Sequence[Line], mode: str) -> dict[str, Any]:
    """The same of single calls."""
    ratios = [over(line[mode]) for line in lines]
    worst = min(range(len(lines)), key=lambda i: ratios[i][0])
    m, n, k, layout, dtype = lines[worst]["problem"]
    return {
        "problems": len(lines),
        "gmean": mean(torch for torch, _ in ratios),
        "worst": round(ratios[worst][0], 4),
        "worst_case": f"{m}x{n}x{k} {layout} {dtype}",
        "vs_best_gmean": mean(best for _, best in ratios),
        "served": round(sum(line["ran"] == ["hits"] for line in lines) / len(lines), 4),
    }


def calls(headers: Sequence[Line], lines: Sequence[Line]) -> dict[str, Any]:
    """What models.json says of single calls: all problems of a mode, then each set."""
    right = [line for line in lines if not line["wrong"]]
    sets = sorted({line["set"] for line in right})
    found: dict[str, Any] = {
        mode: call_figures(right, mode)
        | {name: call_figures([x for x in right if x["set"] == name], mode) for name in sets}
        for mode in ("server", "offline")
        if right
    }
    wrong = sorted([*line["problem"], *line["wrong"]] for line in lines if line["wrong"])
    return found | {"calls_wrong": wrong, "calls_measured_on": headers[-1] if headers else {}}


def list_failed(paths: Sequence[Path]) -> list[str]:
    """Cases that have an error on file and no figures."""
    done = {_key_of_case(line) for line in campaign.lines(paths)[1]}
    errors = {_key_of_case(r): r["error"] for r in read_records(paths) if "error" in r}
    return sorted(f"{case}: {error}" for case, error in errors.items() if case not in done)


def _key_of_case(line: Line) -> str:
    return cases.key({name: line[name] for name in line["fields"]})


def files() -> tuple[list[Path], list[Path]]:
    """Lines of models and of single calls."""
    of_models, of_calls = (
        folders.list_files(each, results=RESULTS) for each in ("models", "serving")
    )
    return of_models, of_calls


def text() -> str:
    """models.json, of what is on file. Raises SystemExit where nothing is."""
    of_models, of_calls = files()
    if not of_models + of_calls:
        raise SystemExit("no lines of whole models or single calls to summarise")
    document = models(*campaign.lines(of_models)) | calls(*campaign.lines(of_calls))
    document["failed"] = list_failed([*of_models, *of_calls])
    return json.dumps(document, indent=1) + "\n"


def write() -> None:
    OUT.write_text(text(), encoding="utf-8")
    print(f"wrote {OUT.name}")
