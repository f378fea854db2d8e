"""A folder of FlashInfer-Trace: definitions, workloads, solutions and traces of a table.

Called by `generate trace export`. The folder is written whole or not at all, and every file is read
back, as strictly as a foreign one, before the folder is there.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hgemm_packs.errors import PackError
from hgemm_packs.generator.flashinfer_trace.schema import (
    Definition,
    Solution,
    Trace,
    read_definition,
    read_solution,
    read_traces,
)
from hgemm_packs.generator.flashinfer_trace.solutions import AUTHOR, OP_TYPE, Exported


class TraceSet(NamedTuple):
    """What a folder says: definitions and solutions by name, workloads and traces as lines."""

    definitions: dict[str, Definition]
    solutions: dict[str, Solution]
    workloads: tuple[Trace, ...]
    traces: tuple[Trace, ...]


def read(folder: Path) -> TraceSet:
    """Read a whole folder and what its files say of each other. Raises PackError, which names file
    and field, and OSError."""
    definitions: dict[str, Definition] = {}
    for path in sorted((folder / "definitions").rglob("*.json")):
        one = read_definition(path)
        if definitions.setdefault(one.name, one) is not one:
            raise PackError("duplicate_name", f"{one.name} is defined twice", str(path))
    solutions: dict[str, Solution] = {}
    for path in sorted((folder / "solutions").rglob("*.json")):
        made = read_solution(path)
        if solutions.setdefault(made.name, made) is not made:
            raise PackError("duplicate_name", f"{made.name} is there twice", str(path))
        if made.definition not in definitions:
            raise PackError("unknown_definition", made.definition, str(path))
    lines: dict[str, list[Trace]] = {"workloads": [], "traces": []}
    for kind, found in lines.items():
        for path in sorted((folder / kind).rglob("*.jsonl")):
            for line in read_traces(path):
                _check(line, kind, definitions, solutions, path)
                found.append(line)
    return TraceSet(definitions, solutions, tuple(lines["workloads"]), tuple(lines["traces"]))


def _check(
    line: Trace,
    kind: str,
    definitions: dict[str, Definition],
    solutions: dict[str, Solution],
    path: Path,
) -> None:
    if line.definition not in definitions:
        raise PackError("unknown_definition", line.definition, str(path))
    if (kind == "traces") != (line.evaluation is not None):
        raise PackError("bad_value", "a workload among traces, or the reverse", str(path))
    if line.solution is not None and line.solution not in solutions:
        raise PackError("unknown_solution", line.solution, str(path))
    definition = definitions[line.definition]
    variable = {name for name, axis in definition.axes.items() if axis.value is None}
    if line.workload.axes.keys() != variable:
        text = f"{definition.name} wants the values of {sorted(variable)}"
        raise PackError("unknown_axis", text, str(path))
    if line.workload.inputs.keys() != definition.inputs.keys():
        raise PackError("unknown_input", f"not the inputs of {definition.name}", str(path))


def count_errors(found: TraceSet) -> int:
    """Traces whose errors of single elements somebody measured."""
    answers = [trace.evaluation.correctness for trace in found.traces if trace.evaluation]
    return sum(each is not None and each["max_absolute_error"] >= 0 for each in answers)


def write(folder: Path, exported: Sequence[Exported]) -> TraceSet:
    """Write the folder, which must not be there or be empty, and return what it says when read.
    Raises FileExistsError, PackError and OSError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is there and not an empty folder")
    names = Counter(each.definition["name"] for each in exported)
    for name, count in names.items():
        if count > 1:
            raise PackError("duplicate_name", f"{name} is defined twice")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "fresh"
        for each in exported:
            name = each.definition["name"]
            solution = each.solution["name"]
            _write(fresh / "definitions" / OP_TYPE / f"{name}.json", [each.definition], 2)
            _write(fresh / "workloads" / OP_TYPE / f"{name}.jsonl", each.workloads)
            place = fresh / "solutions" / AUTHOR / OP_TYPE / name
            _write(place / f"{solution}.json", [each.solution], 2)
            _write(fresh / "traces" / OP_TYPE / f"{name}.jsonl", each.traces)
        found = read(fresh)
        if folder.exists():
            folder.rmdir()
        os.rename(fresh, folder)
    return found


def _write(path: Path, documents: Iterable[Any], indent: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(each, indent=indent, allow_nan=False) + "\n" for each in documents)
    path.write_text("".join(lines), encoding="utf-8")
