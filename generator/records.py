"""The sweep's records: one JSON object a line, appended as measured, read again to resume, to
confirm and to assemble. What makes a record promising is decided here, without a GPU."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from hgemm_packs.problem import Problem

Record = dict[str, Any]
Key = tuple[int | str, ...]


def key(problem: Problem) -> list[int | str]:
    """What a record is filed under."""
    return [problem.m, problem.n, problem.k, problem.layout, problem.dtype]


def read_records(paths: Iterable[Path]) -> list[Record]:
    """All whole lines of the record files, gzipped or not; the torn last line of a killed run is
    dropped."""
    records = []
    for path in paths:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        for line in text.splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return records


def resume(out: Path) -> set[Key]:
    """Keys of the records in `out`, which may not exist; a torn last line is cut off, so that the
    next record starts a line of its own."""
    if not out.exists():
        return set()
    os.truncate(out, out.read_bytes().rfind(b"\n") + 1)
    return {tuple(r.get("problem") or ("noise", *r["noise"])) for r in read_records([out])}


def error_bound(problem: Problem) -> float:
    """1.25 times the relative error of rounding a normal product to the output type."""
    return 1.25 * (2.1e-4 if problem.dtype == "f16" else 1.7e-3)


def likely_win(record: Record) -> bool:
    """Whether the finals put the chosen kernel above both baselines, hot and cold."""
    for protocol in ("hot", "cold"):
        arms = record["finals"][protocol]
        best = min(median(arms[name]) for name in ("torch", "cublaslt") if name in arms)
        if best <= median(arms[record["chosen"]]):
            return False
    return True


def promising(records: Iterable[Record]) -> list[Record]:
    """The records worth a second measurement: a kernel within its error bound and likely to win."""
    return [
        r
        for r in records
        if "chosen" in r and r["error"] <= error_bound(Problem(*r["problem"])) and likely_win(r)
    ]
