"""Exports of a table through the command line."""

from __future__ import annotations

from pathlib import Path

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.flashinfer_trace import trace_set
from hgemm_packs.generator.flashinfer_trace.trace_set import TraceSet
from hgemm_packs.pack.manifest import Row
from tests.generator.command import generate


def wins(source: SourceManifest, layout: str, dtype: str) -> list[Row]:
    return [
        row
        for row in source.table
        if row.kernel
        and (row.layout, row.dtype, row.epilogue) == (layout, dtype, "none")
        and len(row.key) == 8
    ]


def export(place: Path, out: Path, *options: object) -> tuple[TraceSet, str]:
    code, said, error = generate("trace", "export", place, "--out", out, *options)
    assert code == 0, error
    return trace_set.read(out), said
