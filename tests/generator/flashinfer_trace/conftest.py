"""A part of the committed table, as a document and on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source, write_source

TABLE = Path(__file__).parents[3] / "manifests" / "sm_90a" / "h200"


@pytest.fixture(scope="session")
def source() -> SourceManifest:
    """The committed table, of it a few groups that have every layout and type."""
    found = read_source(TABLE)
    kept = [row for row in found.table if (row.n, row.k) in ((4096, 4096), (512, 2880), (64, 64))]
    named = {row.kernel for row in kept} | {row.dependent for row in kept}
    kernels = tuple(kernel for kernel in found.kernels if kernel.id in named)
    return replace(found, table=tuple(kept), kernels=kernels, predictors=(), grouped=())


@pytest.fixture(scope="session")
def place(source: SourceManifest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "table.json"
    write_source(path, source)
    return path
