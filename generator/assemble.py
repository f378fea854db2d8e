"""The committed source manifest from the records of the first sweep, to the byte.

`python -m hgemm_packs.generator.assemble table SELECT_DIR CONFIRM_DIR --facts FACTS.json -o SOURCE`
compiles the kernels that won and joins both measurements; a run of the search goes through `table`
instead. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from hgemm_packs.generator import table as tables
from hgemm_packs.generator.build import BuildError, Built, build
from hgemm_packs.generator.families import family
from hgemm_packs.generator.findings import Field
from hgemm_packs.generator.packer import SourceKernel, SourceManifest, read_source, write_source
from hgemm_packs.generator.pool import pool
from hgemm_packs.generator.records import Record, read_records
from hgemm_packs.manifest import DeviceProfile, Numerics, Policy, Row
from hgemm_packs.problem import Problem

H200 = DeviceProfile("NVIDIA H200", 132, 62914560, 4300.0)


def error_bound(problem: Problem) -> float:
    """1.25 times the relative error of rounding a normal product to the output type."""
    return 1.25 * (2.1e-4 if problem.dtype == "f16" else 1.7e-3)


def _compile(jobs: Sequence[tuple[str, Any]]) -> list[Built | BuildError]:
    with Progress(transient=True) as bar:
        task = bar.add_task("compiling", total=len(jobs))
        return build(jobs, progress=lambda done, total: bar.update(task, completed=done))


def row(record: Record, date: str) -> Row:
    """Table row of a select or confirm record, with the kernel's name for its id."""
    field = Field(Problem(*record["problem"]), "", record["finals"], {}, date)
    return tables.row(field, record["chosen"], H200.name)


def table(
    selected: Sequence[Record], confirmed: Sequence[Record], proven: Collection[str], date: str
) -> tuple[list[Row], float, set[str]]:
    """(rows, noise floor, names of kernels in use): confirmed wins of kernels that are `proven`,
    by name, to pass the numeric gate; cuBLAS for the rest."""
    floor = tables.noise_floor(record for record in confirmed if "noise" in record)
    policy = Policy(floor, tables.RULE)
    again = {tuple(r["problem"]): r for r in confirmed if "finals" in r}
    rows, used = [], set()
    # The grid and the layer list share problems: one row each.
    unique = {tuple(record["problem"]): record for record in selected if "chosen" in record}
    for problem, record in unique.items():
        second = again.get(problem)
        figures = row(second or record, date)
        if (
            second is not None
            and second["chosen"] in proven
            and second["error"] <= error_bound(Problem(*record["problem"]))
            and policy.clears(figures)
        ):
            used.add(second["chosen"])
        else:
            figures = figures._replace(kernel=None)
        rows.append(figures)
    return rows, floor, used


def write_table(args: argparse.Namespace) -> SourceManifest:
    """Join both stages into the committed source manifest; numerics come from a verify run.

    Raises BuildError when a kernel does not compile, KeyError when none is called so any more.
    """
    facts = json.loads(args.facts.read_text(encoding="utf-8"))
    selected = read_records(sorted(args.select.glob("select-*.jsonl*")))
    confirmed = read_records(sorted(args.confirm.glob("confirm-*.jsonl*")))
    numerics = {n["name"]: n for n in facts["numerics"]}
    rows, floor, used = table(selected, confirmed, numerics, facts["date"])
    jobs = [job for layout in ("nn", "nt") for d in ("f16", "bf16") for job in pool(layout, d)]
    jobs = [job for job in jobs if family(job[0]).kernel_name(job[1]) in used]
    kernels = []
    for one in _compile(jobs):
        if isinstance(one, BuildError):
            raise one
        f = one.entry_fields
        seen = numerics[f["name"]]
        result = Numerics("float64", round(seen["max_rel_err"], 9), seen["shapes_tested"])
        kernels.append(SourceKernel(f["id"], f["name"], f["family"], f["genome"], result))
    ids = {kernel.name: kernel.id for kernel in kernels}
    rows = [r._replace(kernel=ids[r.kernel]) if r.kernel else r for r in rows]
    source = tables.document("sm_90a", H200, facts, floor, kernels, rows, facts["date"])
    write_source(args.out, source)
    return read_source(args.out)


def summary(source: SourceManifest) -> dict[str, Any]:
    """Rows, wins and their geometric mean against torch."""
    wins = [r.hot.speedup for r in source.table if r.kernel]
    mean = math.exp(sum(map(math.log, wins)) / len(wins)) if wins else 1.0
    return {
        "rows": len(source.table),
        "wins": len(wins),
        "kernels": len(source.kernels),
        "gmean": round(mean, 4),
        "worst": min(wins, default=1.0),
        "noise_floor": source.policy.noise_floor,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("table",))
    parser.add_argument("select", type=Path)
    parser.add_argument("confirm", type=Path)
    parser.add_argument("--facts", type=Path, required=True)
    parser.add_argument("-o", "--out", type=Path, required=True)
    print(json.dumps(summary(write_table(parser.parse_args()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
