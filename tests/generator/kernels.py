"""Genomes and launch records that the tests of the generator share."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator import build
from hgemm_packs.generator.families import Genome, family
from hgemm_packs.generator.pool import pool
from hgemm_packs.manifest import KernelEntry
from hgemm_packs.manifest_checks import check_launch_record
from hgemm_packs.manifest_fields import KERNEL

Job = tuple[str, Genome]

KINDS = [(layout, dtype) for layout in ("nn", "nt") for dtype in ("f16", "bf16")]
NUMERICS = {"reference": "float64", "max_rel_err": 2.2e-4, "shapes_tested": 90}

WGMMA: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "tile_m": 64,
    "tile_n": 64,
    "tile_k": 64,
    "stages": 4,
    "consumers": 1,
    "schedule": "cooperative",
    "cluster_m": 1,
    "cluster_n": 1,
    "split_k": 1,
    "persistent": False,
    "ctas_per_sm": 1,
    "raster": "m",
    "group": 8,
    "epilogue": "staged",
    "bulk_blocks": 1,
    "streaming": False,
}
DIRECT: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "mi": 1,
    "ni": 2,
    "warps_m": 1,
    "warps_n": 1,
    "warps_k": 4,
    "unroll": 2,
    "exact": False,
    "fixed_k": 0,
    "cluster_k": 1,
}
BASES = {"sm90_wgmma": WGMMA, "sm90_direct": DIRECT}


def sample(count: int) -> list[Job]:
    """Jobs spread over the candidates of every layout and dtype, each family in turn."""
    by_family: dict[str, list[Job]] = {name: [] for name in BASES}
    for kind in KINDS:
        for job in pool(*kind):
            by_family[job[0]].append(job)
    share = count // len(by_family)
    return [jobs[len(jobs) * i // share] for jobs in by_family.values() for i in range(share)]


def every_candidate() -> Iterator[Job]:
    for kind in KINDS:
        yield from pool(*kind)


def record(fields: dict[str, Any], **changes: Any) -> KernelEntry:
    """The manifest's entry of a kernel with these fields, read as strictly as a manifest is."""
    rest = {"id": "0" * 64, "regs": 128, "offset": 0, "size": 4096, "numerics": NUMERICS}
    document = json.loads(json.dumps({**rest, **fields, **changes}))
    entry: KernelEntry = KERNEL(document)
    check_launch_record(entry)
    return entry


def entry_of(job: Job) -> KernelEntry:
    """The entry that a job would have once built."""
    name, genome = job
    return record(family(name).fields(genome))


def sources_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the kernel sources that builds read from now on."""
    shutil.copytree(build.sources_dir(), folder)
    monkeypatch.setattr(build, "sources_dir", lambda: folder)
    build.expanded_source.cache_clear()
    return folder
