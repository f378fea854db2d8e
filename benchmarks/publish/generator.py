"""The generator's figures in one place: benchmarks/results/generator.json.

python -m benchmarks.publish.generator reads the raw results of the red team, of the replayed
searches and of the runs on H200s, and copies nothing by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
OUT = RESULTS / "generator.json"
#: What is quoted: no constant of a search was fitted to its problems.
HEADLINE = "h200_held_out"
MEASUREMENTS = 32
#: Written by `random_problems`, where it has been.
DRAWN = "random_problems.json"
GATES = "gates.json"


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
    found: dict[str, Any] = {
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
    gates = read(GATES)
    if "mutants.total" in gates:
        found["mutants"] = {
            name: gates[f"mutants.{name}"]
            for name in ("total", "caught_share", "by_gate", "by_kind", "through_by_operator")
        }
    if (RESULTS / DRAWN).is_file():
        found["drawn"] = {name: read(DRAWN)[name] for name in ("problems", "right")}
    return found


def rows(found: Mapping[str, Any]) -> dict[str, str]:
    """The table of the page, from what `figures` found."""
    team, replay, h200, run = (found[name] for name in ("redteam", "replay", "h200", "run"))
    least_p = max(replay[f"p_vs_{rival}"] for rival in ("random", "tpe", "cma"))
    made = {
        "bad kernels of the red team rejected by the gate that must": f"{team['rejected']} of "
        f"{team['total']}",
        "odd but honest kernels that pass every gate": f"{team['honest_passed']} of "
        f"{team['honest_total']}",
        f"share of the exhaustive optimum after 32 measurements ({replay['problems']} recorded "
        f"problems, {replay['times']} times, {replay['seeds']} seeds)": (
            f"{100 * replay['share_of_optimum_at_32']:.1f}%"
        ),
        "the same by random search, TPE, CMA-ES": ", ".join(
            f"{100 * replay[f'{rival}_at_32']:.1f}%" for rival in ("random", "tpe", "cma")
        ),
        "largest p of the three comparisons (Wilcoxon, Holm)": f"{least_p:.1e}",
        "torch against itself, median ratio": f"{h200['aa_median']:.4f}",
        "confirmed times of the same search run twice differ by": (
            f"{100 * (h200['repeat_gmean'] - 1):.1f}%"
        ),
        "finished measurements lost to kill -9": f"{h200['killed_lost']} of "
        f"{h200['killed_finished']}",
        "four GPUs against one": f"{h200['scaling_4gpu']:.2f}x",
        f"a search of {run['problems']} grid problems (fp16, nt)": (
            f"{run['wins']} wins, {run['gmean_wins_hot']:.2f}x, {run['gpu_seconds']:.0f} GPU-s"
        ),
    }
    if mutants := found.get("mutants"):
        made[f"faults planted in honest kernels ({mutants['total']:,}) that gates caught"] = (
            f"{mutants['caught_share']:.1%}"
        )
        made["the same by kind"] = ", ".join(
            f"{kind} {sums['caught_share']:.1%}" for kind, sums in mutants["by_kind"].items()
        )
        made["of the planted, caught first by"] = ", ".join(
            f"{gate} {share:.1%}" for gate, share in mutants["by_gate"].items()
        )
        counts = (f"{name} {count}" for name, count in mutants["through_by_operator"].items())
        made["planted faults that got through, by operator"] = ", ".join(counts) or "none"
    if drawn := found.get("drawn"):
        what = "random problems, each by a random kernel that admits it, right against float64"
        made[what] = f"{drawn['right']} of {drawn['problems']}"
    return made


def main() -> int:
    OUT.write_text(text(), encoding="utf-8")
    print(f"wrote {OUT.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
