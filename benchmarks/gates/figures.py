"""What the gates are worth and cost, in one place: benchmarks/results/gates.json.

    python -m benchmarks.gates.figures [--print]

Reads raw results alone: what became of the red team's corpus (redteam_h200.json), lines of mutants
(`hgemm-packs generate redteam --mutate N --gpu`, in gates/mutants/) and lines of the table's
kernels (`benchmarks/gates/table_gates.py`, in gates/table/), and the manifests, which say whose
they are. What has not been measured has no key. Of mutants it has the share of the planted that
each gate caught, the shares by kind, and the names of those that got through, of the last run:
those before met other gates.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.redteam.mutation import report, run
from hgemm_packs.generator.store import lines

RESULTS = Path(__file__).resolve().parents[1] / "results"
MANIFESTS = RESULTS.parents[1] / "manifests/sm_90a"
OUT = RESULTS / "gates.json"
CORPUS, MUTANTS, TABLE = "redteam_h200.json", "gates/mutants", "gates/table"
DIGITS = 3


def text(results: Path = RESULTS) -> str:
    """The file's contents."""
    return json.dumps(figures(results, of_tables()), indent=1) + "\n"


def of_tables(manifests: Path = MANIFESTS) -> frozenset[str]:
    """The ids of all kernels that a committed table names."""
    return frozenset(
        each.id for folder in manifests.iterdir() for each in read_source(folder).kernels
    )


def figures(results: Path, tables: frozenset[str]) -> dict[str, Any]:
    """Every figure, by name; `tables` has the ids of the tables' kernels. Raises OSError,
    ValueError for results that are not as committed."""
    return {
        **_corpus(results / CORPUS),
        **_mutants(results / MUTANTS),
        **_table(results / TABLE, tables),
    }


def _corpus(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    team = json.loads(path.read_text(encoding="utf-8"))
    return {
        "corpus.total": team["total"],
        "corpus.rejected": team["rejected"],
        "honest.total": team["honest_total"],
        "honest.passed": team["honest_passed"],
    }


def mutants(folder: Path) -> list[run.Line]:
    """The last line of each mutant of the last run; each file is a run of its own."""
    files = lines.files([folder]) if folder.is_dir() else []
    return [*run.last_lines(lines.read_records(files[-1:])).values()]


def _mutants(folder: Path) -> dict[str, Any]:
    found = report.document(mutants(folder), 0)
    if not found["planted"]:
        return {}
    planted, by_gate = found["planted"], found["by_gate"]
    return {
        "mutants.total": planted,
        "mutants.caught_share": found["caught_share"],
        "mutants.undecided": found["undecided"],
        "mutants.by_gate": {name: round(by_gate[name] / planted, DIGITS + 1) for name in by_gate},
        "mutants.by_kind": {
            kind: {name: sums[name] for name in ("planted", "caught_share")}
            for kind, sums in found["by"]["kind"].items()
        },
        "mutants.through_by_operator": dict(
            Counter(each["operator"] for each in found["through"]).most_common()
        ),
        "mutants.through": [
            f"{each['outcome']}: {each['operator']} in {each['family']}, {each['where']}, "
            f"mutant {each['number']}"
            for each in found["through"]
        ],
    }


def _table(folder: Path, tables: frozenset[str]) -> dict[str, Any]:
    """Kernels of today's tables, how many of them met the gates of each part and how many a gate
    refused; kernels that a gate refused and no table has any more; and seconds a kernel in the
    mean: of CPU time, and of a GPU that one process has for itself."""
    if not folder.is_dir():
        return {}
    every = [line for line in lines.read_records([folder]) if "id" in line]
    last = {(line["part"], line["id"]): line for line in every}
    if not last:
        return {}
    refused = {line["id"] for line in last.values() if not line["passed"]}
    met = Counter(part for part, id_ in last if id_ in tables)
    made: dict[str, Any] = {
        "table.kernels": len(tables),
        "table.failed": len(refused & tables),
        "table.put_out": len(refused - tables),
        "table.met": dict(sorted(met.items())),
    }
    cpu = _last_cpu_seconds(folder)
    if cpu:
        made["cost.cpu_s"] = round(mean(cpu), DIGITS)
    alone: dict[str, dict[str, float]] = {"gpu": {}, "state": {}}
    for line in every:
        if line["part"] in alone and line["processes"] == 1:
            alone[line["part"]][line["id"]] = line["seconds"]
    if all(alone.values()):
        made["cost.gpu_s"] = round(sum(mean(each.values()) for each in alone.values()), DIGITS)
    return made


def _last_cpu_seconds(folder: Path) -> list[float]:
    """What the gates of the CPU took in the last run of them: of other runs' machines and of gates
    as they were it says nothing."""
    found: list[float] = []
    for path in lines.files([folder]):
        told = [line["cpu_s"] for line in lines.read_records([path]) if "cpu_s" in line]
        found = told or found
    return found


def main(words: Sequence[str]) -> int:
    if list(words) == ["--print"]:
        sys.stdout.write(text())
        return 0
    OUT.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
