"""The generator's figures in one place: benchmarks/results/generator.json.

python -m benchmarks.publish.generator reads the raw results of the red team, of the replayed
searches and of the runs on H200s, and copies nothing by hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
OUT = RESULTS / "generator.json"
#: What is quoted: no constant of a search was fitted to its problems.
HEADLINE = "h200_held_out"
MEASUREMENTS = 32


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return document


def text() -> str:
    """The file's contents."""
    return json.dumps(figures(), indent=1) + "\n"


def figures() -> dict[str, Any]:
    """Every figure, from the files beside it."""
    team, search, runs = (
        read("redteam_h200.json"),
        read("replay_search.json")[HEADLINE],
        read("generator_h200.json")["summary"],
    )
    pack, cost = (read("generator/run/report.json")[part] for part in ("pack", "cost"))
    against = search["tests"]["against"]
    halves = search["halves"]
    return {
        "redteam": {
            name: team[name] for name in ("total", "rejected", "honest_total", "honest_passed")
        },
        "replay": {
            "recording": HEADLINE,
            "problems": search["recorded"]["problems"],
            "times": search["recorded"]["times"],
            "seeds": search["settings"]["seeds"],
            f"share_of_optimum_at_{MEASUREMENTS}": search["searches"]["portfolio"]["at"][
                str(MEASUREMENTS)
            ],
            **{
                f"{rival}_at_{MEASUREMENTS}": search["searches"][rival]["at"][str(MEASUREMENTS)]
                for rival in against
            },
            **{f"p_vs_{rival}": against[rival]["p_holm"] for rival in against},
            "policy_first_of_other_half": halves["reinforced"]["1"]["share"],
            "prior_first_of_other_half": halves["prior"]["1"]["share"],
            "p_policy_vs_prior": halves["reinforced"]["1"]["p"],
        },
        "h200": {
            "aa_median": runs["aa_median"],
            "repeat_gmean": runs["repeat_gmean"],
            "repeat_problems": runs["repeat_problems"],
            "killed_finished": runs["killed_finished"],
            "killed_lost": runs["killed_lost"],
            "scaling_4gpu": runs["scaling"],
        },
        "run": {
            "problems": read("generator/run/report.json")["counts"]["problems"],
            "wins": pack["wins"],
            "kernels": pack["kernels"],
            "gmean_wins_hot": pack["hot"]["wins"],
            "gpu_seconds": cost["gpu_seconds"],
        },
    }


def main() -> int:
    OUT.write_text(text(), encoding="utf-8")
    print(f"wrote {OUT.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
