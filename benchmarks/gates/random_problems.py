"""Problems that a seed draws, each by a random kernel that admits it, against float64.

    python -m benchmarks.gates.random_problems run PACK OUT.jsonl --seed SEED [--deadline S] ...
    python -m benchmarks.gates.random_problems summary OUT.jsonl...

`run` needs a GPU and a built pack, no compiler, and goes on where OUT.jsonl ends. Sizes are
log-uniform from 1 to 16384, in all layouts and both types; a third have an N or K that is no
multiple of 8. Operands of a third lie with gaps between their rows, of a sixth at addresses off 16
bytes. Of the kernels of the pack that admit a problem, with any epilogue, a family is drawn, then a
kernel, and whether it is launched dependently. C is NaN before, between guards; tolerance and
guards are the numeric gate's (`generator/devices/drawn.py`). `summary` writes
results/random_problems.json. Both end with 1 where a launch was wrong or is left.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hgemm_packs.cli.console import console
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import CampaignOptions, Line, Task
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.space import admits
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.devices import gated
from hgemm_packs.generator.prediction import draw
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import ALIGNED, ALIGNMENTS, DTYPES, LAYOUTS, Problem

OUT = Path(__file__).resolve().parents[1] / "results" / "random_problems.json"
COUNT = 2000
#: Of a problem: operations and elements of C whose float64 reference takes milliseconds.
MOST_FLOP, MOST_ELEMENTS = 2e12, 1 << 26
#: How operands lie, in turn; few kernels take addresses off 16 bytes.
PACKED, GAPS, OFF = "packed", "gaps", "off 16 bytes"
STORED = (PACKED, GAPS, PACKED, GAPS, PACKED, OFF)

#: Kernels of one layout and type, by family and epilogue.
Groups = Mapping[tuple[str, str], Sequence[KernelEntry]]


def draw_problems(seed: int) -> Iterator[Problem]:
    """Plain problems without end, the same at the same seed."""
    dice, count = random.Random(seed), 0
    while True:
        m, n, k = (draw.log_uniform(dice, 1, draw.LARGEST) for _ in range(3))
        layout, dtype = dice.choice(LAYOUTS), dice.choice(DTYPES)
        if count % 3:
            n, k = (max(draw.STEP, side // draw.STEP * draw.STEP) for side in (n, k))
            if layout[0] == "t":
                m = max(draw.STEP, m // draw.STEP * draw.STEP)
        elif not (n % draw.STEP or k % draw.STEP):
            continue
        if 2.0 * m * n * k > MOST_FLOP or m * n > MOST_ELEMENTS:
            continue
        stored, base = STORED[count // 3 % len(STORED)], ALIGNED
        if stored == OFF:
            base = (dice.choice(ALIGNMENTS), dice.choice(ALIGNMENTS), dice.choice(ALIGNMENTS))
        packed = dice.random() < 0.5 if stored == OFF else stored == PACKED
        count += 1
        yield Problem(m, n, k, layout, dtype, base=base, packed=packed)


def group_kernels(entries: Sequence[KernelEntry]) -> dict[tuple[str, str], Groups]:
    """Kernels of products by layout and type."""
    found: dict[tuple[str, str], dict[tuple[str, str], list[KernelEntry]]]
    found = defaultdict(lambda: defaultdict(list))
    for each in entries:
        if not (each.is_grouped or each.is_batched):
            found[each.layout, each.dtype][each.family, each.epilogue].append(each)
    return {kind: dict(groups) for kind, groups in found.items()}


def choose(
    problem: Problem, groups: Groups, dice: random.Random
) -> tuple[Problem, KernelEntry] | None:
    """The problem with the epilogue of a drawn kernel that admits it; None where none does."""
    for family, epilogue in dice.sample(sorted(groups), len(groups)):
        kernels = groups[family, epilogue]
        if epilogue == "gated_silu" and problem.n % 2:
            continue
        asked = replace(problem, epilogue=epilogue)
        for entry in dice.sample(kernels, len(kernels)):
            # The second looks at how many CTAs run at once.
            if entry.admits(asked) is None and admits(Choice.of(family, entry.genome), asked):
                return asked, entry
    return None


def draw_tasks(pack: Packed, seed: int, count: int = COUNT) -> list[Task]:
    """A launch of each of so many problems that a kernel admits."""
    kinds, dice = group_kernels([*pack.entries.values()]), random.Random(f"{seed} kernels")
    found: list[Task] = []
    for problem in draw_problems(seed):
        chosen = choose(problem, kinds.get((problem.layout, problem.dtype), {}), dice)
        if chosen is None:
            continue
        asked, entry = chosen
        way = dice.choice(gated.WAYS)
        about = {
            "number": len(found),
            "problem": str(asked),
            "family": entry.family,
            "epilogue": entry.epilogue,
            "aligned": not (asked.n % draw.STEP or asked.k % draw.STEP),
            "stored": OFF if asked.base != ALIGNED else PACKED if asked.packed else GAPS,
            "kernel": entry.name,
            "way": way,
        }
        found.append(Task(way, asked, lambda name=entry.name: (pack.kernel(name),), about))
        if len(found) == count:
            return found
    raise AssertionError("problems have no end")


def run(options: argparse.Namespace) -> int:
    """1 if a launch was wrong or is left."""
    import torch

    from hgemm_packs.generator.devices import drawn

    pack = Packed(options.pack)
    tasks = draw_tasks(pack, options.seed, options.count)
    header = {"benchmark": "random_problems", "draw": options.seed, "count": options.count}
    count = options.gpus or torch.cuda.device_count()
    plan = CampaignOptions(options.out, count, options.deadline, options.timeout, options.commit)
    tally = campaign.measure(plan, pack, tasks, drawn.make, header)
    found = figures(campaign.lines([options.out])[0], campaign.answers([options.out]))
    console().print(json.dumps({x: found[x] for x in SAID}), markup=False)
    return int(not tally.whole or found["wrong"] > 0)


#: What a run says of itself at its end.
SAID = ("problems", "right", "wrong", "left", "too_large", "max_rel_err")


def figures(headers: Sequence[Line], answers: Sequence[Line]) -> dict[str, Any]:
    """Counts of launches by what became of them and by what they were."""
    last = {line["number"]: line for line in answers}
    ends = {n: "failed" if "error" in x else x["outcome"] for n, x in last.items()}
    right = [line for n, line in last.items() if ends[n] == "passed"]
    words = Counter(ends.values())
    runs = [{x: h[x] for x in ("commit", "started", "device", "pack")} for h in headers]
    return {
        "runs": runs,
        "seed": headers[0]["draw"],
        "problems": headers[0]["count"],
        "right": words["passed"],
        "wrong": words["failed"],
        "too_large": words["refused"],
        "left": headers[0]["count"] - len(last),
        "kernels": len({line["kernel"] for line in right}),
        "max_rel_err": max((line["max_rel_err"] for line in right), default=None),
        "by": {
            name: dict(sorted(Counter(str(line[name]) for line in right).items()))
            for name in ("family", "epilogue", "aligned", "stored", "way")
        },
        "failed": [
            {x: last[n].get(x) for x in ("problem", "kernel", "way", "detail", "error", "seed")}
            for n, end in sorted(ends.items())
            if end == "failed"
        ],
    }


def summary(options: argparse.Namespace) -> int:
    """1 if a launch was wrong or is left."""
    found = figures(campaign.lines(options.lines)[0], campaign.answers(options.lines))
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    console().print(json.dumps({x: found[x] for x in SAID}), markup=False)
    return int(found["wrong"] + found["left"] > 0)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("run")
    one.add_argument("pack", type=Path)
    one.add_argument("out", type=Path, help="jsonl file; what it has is not run again")
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--count", type=int, default=COUNT)
    one.add_argument("--gpus", type=int, help="as many of this host's GPUs; else all")
    one.add_argument("--deadline", type=float, default=float("inf"), help="seconds, then stop")
    one.add_argument("--timeout", type=float, default=20.0, help="seconds for one launch")
    one.add_argument("--commit", help="of the sources; else asked of git")
    one = verbs.add_parser("summary")
    one.add_argument("lines", type=Path, nargs="+", help="what `run` wrote, gzipped or not")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    return {"run": run, "summary": summary}[options.verb](options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
