"""The pictures of runs whose figures are committed: report.html of a search, bench.png of a bench.

    python -m benchmarks.publish.reports

Figures are as they were measured; how they are shown is of today.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from benchmarks.publish.summary import RESULTS
from hgemm_packs.cli import bench, plots
from hgemm_packs.generator.report.page import page
from hgemm_packs.pack.manifest import Row, Timing

REPORT = RESULTS / "generator" / "run"


def draw_report(folder: Path = REPORT) -> Path:
    """report.html from the report.json beside it."""
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    out = folder / "report.html"
    out.write_text(page(document), encoding="utf-8")
    return out


def draw_bench(folder: Path = RESULTS) -> Path:
    """bench.png from the bench.json beside it. Its speed-ups may be over the better library, by an
    older rule; the picture's are over torch: ratios of medians, which have no bounds."""
    document = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    rows = [
        Row(**{**row, "hot": over_torch(row["hot"]), "cold": over_torch(row["cold"])})
        for row in document["rows"]
    ]
    out = folder / "bench.png"
    plots.speedups(rows, out, f"{bench.title(rows, document['device']['name'])}, by medians")
    return out


def over_torch(timing: Mapping[str, float]) -> Timing:
    ratio = timing["torch_us"] / timing["us"]
    return Timing(**{**timing, "speedup": ratio, "lcb": ratio})


def main() -> None:
    for out in (draw_report(), draw_bench()):
        print(f"wrote {out.name}, {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
