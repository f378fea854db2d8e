"""The best kernel that a search finds for layers that nobody chose, before fallback.

    python -m benchmarks.search.drawn_layers draw SEED OUT.toml [--of m65_512]
    python -m benchmarks.search.drawn_layers figures EXPORT

The first writes a list of problems for `hgemm-packs generate --shapes`: layers of six models with
M log-uniform in the range that `--of` names, nt, both types. The second reads the export of such a
run, or its folder: the best kernel against torch, hot, of each problem that came to the finals,
also where it lost. A run sends no problem there whose race was lost clearly: these are not all.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hgemm_packs.generator.core import gains, problems
from hgemm_packs.generator.core.spec import FALLBACK
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import CORRECT, Field
from hgemm_packs.problem import DTYPES, Problem

MODELS = (
    *("Llama 3.1 8B", "Llama 3.1 70B", "Qwen2.5 7B", "Qwen3 8B", "Qwen3 32B"),
    "Mistral Small 24B",
)
#: M of a set, both ends inside.
SETS = {"m65_512": (65, 512), "m513_8192": (513, 8192)}
COUNT = 60


def layers() -> list[tuple[int, int]]:
    """N and K of each weight of MODELS, once."""
    return sorted({(p.n, p.k) for p in problems.read("llm", MODELS)})


def draw(seed: int, name: str) -> list[Problem]:
    """COUNT problems of a set, each once."""
    dice, (low, high) = random.Random(f"{seed} {name}"), SETS[name]
    weights, found = layers(), dict[Problem, None]()
    while len(found) < COUNT:
        n, k = dice.choice(weights)
        m = round(math.exp(dice.uniform(math.log(low), math.log(high))))
        found[Problem(m, n, k, "nt", dice.choice(DTYPES))] = None
    return sorted(found, key=problems.cost)


def write(listed: Iterable[Problem], heading: str, out: Path) -> None:
    entries = (
        f"[[problem]]\nm = {p.m}\nn = {p.n}\nk = {p.k}\n"
        f'layout = "{p.layout}"\ndtype = "{p.dtype}"\n'
        for p in listed
    )
    out.write_text("\n".join([f"# {heading}\n", *entries]), encoding="utf-8")


def best_of(fields: Iterable[Field]) -> dict[Problem, tuple[str, float]]:
    """Each problem's best kernel and torch's time over its, by the last job that timed it."""
    timed: dict[tuple[Problem, str], float] = {}
    for field in fields:
        hot = field.samples.get("hot", {})
        for kernel, status in field.statuses.items():
            if status in CORRECT and hot.get(kernel) and hot.get(FALLBACK):
                ratio = median(hot[FALLBACK]) / median(hot[kernel])
                timed[field.problem, kernel] = ratio
    found: dict[Problem, tuple[str, float]] = {}
    for (problem, kernel), ratio in timed.items():
        if ratio > found.get(problem, ("", 0.0))[1]:
            found[problem] = kernel, ratio
    return found


def figures(fields: Iterable[Field]) -> dict[str, Any]:
    """Mean, worst, and each problem's ratio."""
    best = best_of(fields)
    ratios = {str(problem): ratio for problem, (_, ratio) in best.items()}
    worst = min(ratios, key=ratios.__getitem__)
    return {
        "problems": len(ratios),
        "gmean": round(gains.geometric(ratios), 4),
        "worst": round(ratios[worst], 4),
        "worst_problem": worst,
        "over_torch": {name: round(ratio, 4) for name, ratio in sorted(ratios.items())},
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(required=True, dest="verb")
    drawing = verbs.add_parser("draw")
    drawing.add_argument("seed", type=int)
    drawing.add_argument("out", type=Path)
    drawing.add_argument("--of", choices=SETS, default="m65_512")
    reading = verbs.add_parser("figures")
    reading.add_argument("run", type=Path)
    given = parser.parse_args(arguments)
    if given.verb == "draw":
        heading = f"Layers of {', '.join(MODELS)}, {given.of}, seed {given.seed}"
        write(draw(given.seed, given.of), heading, given.out)
    else:
        print(json.dumps(figures(export.load(given.run).fields), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
