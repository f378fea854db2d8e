"""Every gate over the whole space of every family: each pair of gene values in a tested kernel.

    python -m benchmarks.gates.space_gates build FOLDER [-j N] [--families NAME...]
    python -m benchmarks.gates.space_gates run FOLDER OUT.jsonl [--gpus N] [--deadline S] ...
    python -m benchmarks.gates.space_gates summary FOLDER OUT.jsonl... [--sanitized SAID.jsonl]

`build` takes each family's covering genomes (`generator/campaigns/coverage.py`) through the static
gate, the compiler and the binary gate, without a GPU; pairs that only refused genomes have are
tried again in others (`generator/campaigns/covering_kernels.py`). FOLDER gets genomes.jsonl, a line
for each family and each genome with what became of it, and kernels.bin, the cubins. `run` puts each
kernel through the numeric gate, launched plainly and dependently, on all GPUs here and without a
compiler; what OUT has is not run again, and a kernel that kills or hangs its process is a line with
the "error". `summary` writes results/space_gates.json, where a pair is covered by a kernel that
passed in both ways; SAID is what `hgemm-packs generate sanitize FOLDER SAID.jsonl`
wrote of the same kernels. Where FOLDER has other families than that file, it joins them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.table import Table

from hgemm_packs.cli.console import console, progress
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import Line, Task
from hgemm_packs.generator.campaigns.coverage import Known, Pair, all_pairs, pairs_of
from hgemm_packs.generator.campaigns.covering_kernels import (
    CoveringKernels,
    cover,
    judge_genome,
    write,
)
from hgemm_packs.generator.families import BATCHED, FAMILIES, GROUPED, family
from hgemm_packs.generator.gates import sanitizer
from hgemm_packs.generator.store.lines import read_records

RESULTS = Path(__file__).resolve().parents[1] / "results"
OUT = RESULTS / "space_gates.json"
EVERY = FAMILIES | GROUPED | BATCHED


def tasks(folder: CoveringKernels, ways: Sequence[str]) -> list[Task]:
    """Every kernel plainly, then every kernel dependently."""
    return [
        Task(
            way,
            None,
            lambda line=line: (folder.kernel(line),),
            {"kernel": line["fields"]["name"], "id": line["fields"]["id"], "way": way},
        )
        for way in ways
        for line in folder.built
    ]


Outcomes = dict[tuple[str, str], Line]  # (kernel id, way) -> the last line


def outcomes(paths: Sequence[Path]) -> Outcomes:
    """The last line of each kernel and way; one that killed its process has failed."""
    found: Outcomes = {}
    for line in campaign.answers(paths):
        if "error" in line:
            line = {**line, "outcome": "failed", "detail": line["error"]}
        found[line["id"], line["way"]] = line
    return found


def settle_genome(line: Line, found: Outcomes, ways: Sequence[str]) -> tuple[str, str]:
    """Of a genome: "refused" by a gate or the compiler, "passed", "failed", "too large" for the
    device, or "left"; and why. It passed when it did in all ways."""
    if "refused" in line:
        return "refused", line["refused"]
    answers = [found.get((line["fields"]["id"], way)) for way in ways]
    for outcome, name in (("failed", "failed"), ("refused", "too large")):
        for each in filter(None, answers):
            if each["outcome"] == outcome:
                return name, f"{each['way']}: {each['detail']}"
    return ("passed", "") if all(answers) else ("left", "")


def figures(folder: CoveringKernels, found: Outcomes, ways: Sequence[str]) -> dict[str, Line]:
    """By family: its space, its pairs and which of them no passing kernel has, its genomes by what
    became of them, the largest relative error in each way."""
    made = {}
    for name, about in folder.families.items():
        its, absent = family(name), {tuple(pair) for pair in about["not_found"]}
        valid = [pair for pair in all_pairs(its) if pair not in absent]
        ends = [(line, *settle_genome(line, found, ways)) for line in folder.genomes[name]]
        passed = pairs_of(its, (line["genome"] for line, end, _ in ends if end == "passed"))
        counts = Counter(end for _, end, _ in ends)
        refused = Counter(why for _, end, why in ends if end == "refused")
        errors = {way: _worst(folder.genomes[name], found, way) for way in ways}
        made[name] = {
            "genes": {gene: len(values) for gene, values in its.genes.items()},
            "space": math.prod(map(len, its.genes.values())),
            "pairs": len(valid),
            "pairs_covered": sum(pair in passed for pair in valid),
            "not_covered": [
                {"pair": pair, "genomes": _ends_of(pair, ends)}
                for pair in valid
                if pair not in passed
            ],
            "pairs_without_genome": {
                "proven": about["proven"],
                "of_genomes": about["known"],
                "pairs": sorted(absent, key=all_pairs(its).index),
            },
            "genomes": {"tried": len(ends), **dict(sorted(counts.items()))},
            "refused": dict(refused.most_common()),
            "failed": [
                {"kernel": line["fields"]["name"], "genome": line["genome"], "detail": why}
                for line, end, why in ends
                if end == "failed"
            ],
            "too_large": [[line["fields"]["name"], w] for line, e, w in ends if e == "too large"],
            "max_rel_err": errors,
        }
    return made


def _ends_of(pair: Pair, ends: Iterable[tuple[Line, str, str]]) -> dict[str, int]:
    """What became of the genomes that have a pair, counted."""
    one, a, other, b = pair
    return dict(
        Counter(
            f"{end}: {why}" if why else end
            for line, end, why in ends
            if line["genome"][one] == a and line["genome"][other] == b
        )
    )


def _worst(lines: Iterable[Line], found: Outcomes, way: str) -> float | None:
    ids = [line["fields"]["id"] for line in lines if "fields" in line]
    answers = [found[id_, way] for id_ in ids if (id_, way) in found]
    return max((x["max_rel_err"] for x in answers if x["outcome"] == "passed"), default=None)


def count_sanitized(path: Path, folder: CoveringKernels) -> dict[str, Line]:
    """By tool: how many kernels are clean, and the findings of the others; -1: it did not end."""
    names = {line["fields"]["id"]: line["fields"]["name"] for line in folder.built}
    last = sanitizer.findings(read_records([path]))
    known = {key: count for key, count in last.items() if key[0] in names}
    made: dict[str, Line] = {tool: {"clean": 0, "findings": {}} for _, tool in known}
    for (id_, tool), count in known.items():
        if count:
            made[tool]["findings"][names[id_]] = count
        else:
            made[tool]["clean"] += 1
    return made


def unite(old: Line, new: Line) -> Line:
    """The document of both where they share no family, else the new one, which must have every
    family of the old: counts of the sanitizer are of all. Raises ValueError."""
    there, here = old["families"].keys(), new["families"].keys()
    if there <= here:
        return new
    if there & here:
        words = (
            f"{', '.join(sorted(there & here))} again, but not {', '.join(sorted(there - here))}"
        )
        raise ValueError(f"{OUT.name} has {words}")
    # Facts are those of the older sources: what holds for all must hold for these.
    kernels = {**old["kernels"]}
    kernels["kernels"] += new["kernels"]["kernels"]
    made = {**old, "kernels": kernels, "runs": [*old["runs"], *new["runs"]]}
    made["families"] = {**old["families"], **new["families"]}
    parts = [each["sanitized"] for each in (old, new) if "sanitized" in each]
    if parts:
        made["sanitized"] = {
            tool: {
                "clean": sum(part[tool]["clean"] for part in parts if tool in part),
                "findings": {k: n for part in parts for k, n in part[tool]["findings"].items()},
            }
            for tool in {tool: None for part in parts for tool in part}
        }
    return made


def table(families: dict[str, Line]) -> Table:
    ends = ("tried", "refused", "too large", "passed", "failed", "left")
    made = Table("family", "pairs", "covered", "without genome", *ends, "worst error")
    for name, each in families.items():
        worst = max((x for x in each["max_rel_err"].values() if x is not None), default=0.0)
        made.add_row(
            name,
            *map(str, (each["pairs"], each["pairs_covered"])),
            str(len(each["pairs_without_genome"]["pairs"])),
            *(str(each["genomes"].get(end, 0)) for end in ends),
            f"{worst:.2e}",
        )
    return made


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("build")
    one.add_argument("folder", type=Path)
    one.add_argument("-j", "--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    one.add_argument("--families", nargs="+", choices=[*EVERY], default=[*EVERY], help="else all")
    one = verbs.add_parser("run")
    one.add_argument("folder", type=Path)
    one.add_argument("out", type=Path, help="jsonl file; what it has is not run again")
    one.add_argument("--gpus", type=int, help="as many of this host's GPUs; else all")
    one.add_argument("--deadline", type=float, default=float("inf"), help="seconds, then stop")
    one.add_argument("--timeout", type=float, default=20.0, help="seconds for one kernel")
    one.add_argument("--commit", help="of the sources; else asked of git")
    one = verbs.add_parser("summary")
    one.add_argument("folder", type=Path)
    one.add_argument("lines", type=Path, nargs="+", help="what `run` wrote, gzipped or not")
    one.add_argument("--sanitized", type=Path, help="what `generate sanitize` wrote, likewise")
    return parser.parse_args(arguments)


def build(options: argparse.Namespace) -> int:
    found, screen = [], console()
    with ProcessPoolExecutor(options.jobs) as pool, progress(screen, "building") as tick:
        for number, name in enumerate(options.families):
            known = Known(EVERY[name])
            tried = cover(EVERY[name], known, lambda jobs: pool.map(judge_genome, jobs))
            found.append((EVERY[name], known, tried))
            tick(number + 1, len(options.families))
    write(options.folder, found)
    folder = CoveringKernels(options.folder)
    for name, lines in folder.genomes.items():
        words = Counter(line.get("refused", "built") for line in lines)
        screen.print(f"{name}: {dict(words.most_common())}", markup=False)
    return 0


def run_gates(options: argparse.Namespace) -> int:
    """1 if a kernel failed or is left."""
    import torch

    from hgemm_packs.generator.devices import gated

    folder = CoveringKernels(options.folder)
    header = {"benchmark": "space_gates", "ways": gated.WAYS}
    count = options.gpus or torch.cuda.device_count()
    plan = campaign.CampaignOptions(
        options.out, count, options.deadline, options.timeout, options.commit
    )
    tally = campaign.measure(plan, folder, tasks(folder, gated.WAYS), gated.make, header)
    words = Counter(line["outcome"] for line in outcomes([options.out]).values())
    console().print(f"{dict(words)}", markup=False)
    return int(not tally.whole or words["failed"] > 0)


def summary(options: argparse.Namespace) -> int:
    """1 if a kernel failed or is left."""
    headers, _ = campaign.lines(options.lines)
    folder, said = CoveringKernels(options.folder), dict[str, Line]()
    families = figures(folder, outcomes(options.lines), headers[0]["ways"])
    runs = [{x: h[x] for x in ("commit", "started", "device")} for h in headers]
    document = {"kernels": folder.facts, "runs": runs, "families": families}
    if options.sanitized:
        document["sanitized"] = said = count_sanitized(options.sanitized, folder)
    if OUT.is_file():
        document = unite(json.loads(OUT.read_text(encoding="utf-8")), document)
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    console().print(table(families))
    return int(
        any(x["genomes"].keys() & {"failed", "left"} for x in families.values())
        or any(each["findings"] for each in said.values())
    )


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    verbs = {"build": build, "run": run_gates, "summary": summary}
    return verbs[options.verb](options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
