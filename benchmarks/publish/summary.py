"""benchmarks/results/summary.json from the raw results: every published number, computed once.

Run after the raw files changed (`make bench` does). It measures nothing; the same raw files give
the same bytes. A raw file that is missing is an error: a half-filled summary would look measured.
Dependent launch, chained layers and sustained runs alone may be missing: null, with the reason.

    python -m benchmarks.publish.summary --unmeasured

prints what `generate measure public` has yet to measure for the figures, as its --shapes takes
it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks import folders
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source
from hgemm_packs.generator.store.lines import Record
from hgemm_packs.generator.tables import published, speedups

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
MANIFEST = REPOSITORY / "manifests" / "sm_90a" / "h200"
SUMMARY = RESULTS / "summary.json"
#: Not dependent/mixed: figures of the samples that chose the launches would flatter.
CALLED = "dependent/public"
SUSTAINED = "sustained"
#: What is published of host_cost.json and load_cost.json.
HOST = ("hit_ratio", "miss_extra_us", "layer_miss_extra_us")
LOAD = ("import_ms", "pack100_ms", "first_product_ms", "idle_pack_mb")
#: What a part of chained.json and energy.json is called where its benchmark has not run.
UNMEASURED = {"groups": None, "reason": "not measured yet"}


def table_facts(source: SourceManifest) -> dict[str, Any]:
    """What the table promises where it names a kernel: `gmean` over all its rows against torch with
    hot caches, `worst` the smallest speed-up of any of them, hot or cold. `grid_wins` counts those
    of the 1000-shape grid alone."""
    wins = [row for row in source.table if row.kernel is not None]
    if not wins:
        raise SystemExit(f"{MANIFEST} has no confirmed win to summarise")
    grid = speedups.shapes("grid")
    return {
        "wins": len(wins),
        "grid_wins": sum(row[:3] in grid for row in published.select_products(wins)),
        "problems_measured": len(source.table),
        "gmean": round(geometric_mean([row.hot.speedup for row in wins]), 4),
        "gmean_cold": round(geometric_mean([row.cold.speedup for row in wins]), 4),
        "gmean_vs_best": round(geometric_mean([row.hot.vs_best for row in wins]), 4),
        "best": round(max(row.hot.speedup for row in wins), 4),
        "worst": round(min(min(row.hot.speedup, row.cold.speedup) for row in wins), 4),
        "worst_lower_bound": round(min(min(row.hot.lcb, row.cold.lcb) for row in wins), 4),
        "kernels": len({row.kernel for row in wins}),
        "noise_floor": source.policy.noise_floor,
        "rule": source.policy.rule,
        "sets": _sets(source),
    }


def _sets(source: SourceManifest) -> dict[str, dict[str, list[int]]]:
    """Layout -> type -> problems with a kernel, problems measured; what nobody measured is not
    there."""
    found: dict[str, dict[str, list[int]]] = {}
    for row in source.table:
        of_layout = found.setdefault(row.layout, {})
        counts = of_layout.setdefault("fp16" if row.dtype == "f16" else row.dtype, [0, 0])
        counts[0] += row.kernel is not None
        counts[1] += 1
    return found


def read_conditions(source: SourceManifest) -> dict[str, Any]:
    """Device, versions and protocol that the table's figures are valid for."""
    return {
        "device": ", ".join(profile.name for profile in source.device_profiles),
        "driver": source.baseline.driver,
        "torch": source.baseline.torch,
        "cublas": source.baseline.cublas,
        "protocol": source.baseline.protocol,
        "dates": sorted({row.date for row in source.table}),
    }


def dependent_facts(source: SourceManifest) -> dict[str, Any]:
    """How many of the rows with a kernel have one for programmatic dependent launch, and how many
    of these another than their own."""
    behind = [row for row in source.table if row.dependent is not None]
    return {
        "rows": sum(row.kernel is not None for row in source.table),
        "dependent": len(behind),
        "another": sum(row.dependent != row.kernel for row in behind),
    }


def summarise(
    host: dict[str, Any],
    load: dict[str, Any],
    source: SourceManifest,
    chains: list[Record],
    protocols: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """The summary of the raw results; `chains` are the calls of public `matmul`, `protocols` what
    chained.json and energy.json have. `grid` and `llm` are `matmul` over all problems, torch where
    the table has no kernel."""
    return {
        "host": {name: host[name] for name in HOST},
        "load": {name: load[name] for name in LOAD},
        "table": table_facts(source),
        **speedups.figures(source, chains),
        "launch": dependent_facts(source),
        **{name: _groups(found) for name, found in protocols.items()},
        "measured_on": read_conditions(source),
    }


def _groups(found: dict[str, Any]) -> dict[str, Any]:
    """The means alone, and how they were measured."""
    on = found.get("measured_on", {})
    return {
        **{name: found[name] for name in ("groups", "reason") if name in found},
        **{name: on[name] for name in ("protocol", "commit", "started") if name in on},
        "wrong": len(found.get("wrong", [])),
    }


def protocol_files() -> dict[str, dict[str, Any]]:
    """chained.json and energy.json, as far as they are there."""
    found = {}
    for name in ("chained", "energy"):
        there = (RESULTS / f"{name}.json").is_file()
        found[name] = _read(f"{name}.json") if there else UNMEASURED
    return found


def _read(name: str) -> dict[str, Any]:
    path = RESULTS / name
    if not path.is_file():
        sys.exit(f"{path} is missing: its benchmark has not run")
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def chain_records() -> list[Record]:
    """What `generate measure public` measured, which chose nothing; nothing before it ran."""
    return campaign.answers(folders.list_files(CALLED, results=RESULTS))


def energy_lines() -> list[Record]:
    """What `generate measure sustained` measured; nothing before it has run."""
    return campaign.lines(folders.list_files(SUSTAINED, results=RESULTS))[1]


def text() -> str:
    """The bytes that summary.json must have."""
    host, load = _read("host_cost.json"), _read("load_cost.json")
    source = read_source(MANIFEST)
    summary = summarise(host, load, source, chain_records(), protocol_files())
    return json.dumps(summary, indent=1, sort_keys=True) + "\n"


def list_unmeasured() -> str:
    """The problems and kernels of the table that were not called in public yet, as lines."""
    pairs = speedups.find_unmeasured(read_source(MANIFEST), chain_records())
    lines = (
        {"problem": pack_kernels.problem_values(problem), "kernel": kernel}
        for problem, kernel in pairs
    )
    return "".join(f"{json.dumps(each)}\n" for each in lines)


def main() -> None:
    if "--unmeasured" in sys.argv[1:]:
        print(list_unmeasured(), end="")
        return
    SUMMARY.write_text(text(), encoding="utf-8")
    print(f"wrote {SUMMARY.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
