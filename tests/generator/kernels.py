"""Genomes and launch records that the tests of the generator share."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.space import catalogue, fitted
from hgemm_packs.generator.families import FAMILIES, Genome, family
from hgemm_packs.generator.families.free import places
from hgemm_packs.generator.gates import binary
from hgemm_packs.generator.gates.source import static
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.pack.manifest_checks import check_launch_record
from hgemm_packs.pack.manifest_fields import KERNEL
from hgemm_packs.problem import DTYPES, LAYOUTS, Problem

Job = tuple[str, Genome]

KINDS = [(layout, dtype) for layout in LAYOUTS for dtype in DTYPES]
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
    "reads_ahead": False,
    "triggers_early": False,
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
SPLITK: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "tile_m": 64,
    "tile_n": 64,
    "tile_k": 64,
    "stages": 4,
    "split": 2,
    "slices": 4,
    "run": 0,
    "ctas_per_sm": 1,
    "epilogue": "staged",
    "reads_ahead": False,
    "triggers_early": False,
}
ONESHOT: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "tile_m": 64,
    "tile_n": 64,
    "k_slice": 256,
    "slab_group": 1,
    "split": 2,
    "epilogue": "staged",
    "reads_ahead": False,
    "triggers_early": False,
    "cp_async": False,
}
SWAPAB: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "tile_m": 16,
    "tile_n": 64,
    "tile_k": 128,
    "stages": 4,
    "consumers": 1,
    "split_k": 1,
    "persistent": False,
    "ctas_per_sm": 1,
    "reads_ahead": False,
    "triggers_early": False,
}
WRITEBOUND: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "tile_n": 128,
    "k": 128,
    "stages": 4,
    "stages_b": 1,
    "consumers": 2,
    "ordered": False,
    "ctas_per_sm": 1,
    "epilogue": "grouped",
    "streaming": True,
    "reads_ahead": False,
    "triggers_early": False,
}
GEMV: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "tokens": 8,
    "mi": 1,
    "warps_n": 2,
    "warps_k": 4,
    "unroll": 2,
    "stages": 4,
    "ahead": True,
    "cluster_k": 1,
    "streaming": True,
    "fetch": 128,
}
TOKENS: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "tile_m": 40,
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
    "epilogue": "rows",
    "buffers": 1,
    "streaming": False,
    "reads_ahead": False,
    "triggers_early": False,
}
UNALIGNED: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "a_bytes": 4,
    "b_bytes": 2,
    "c_bytes": 4,
    "tile_m": 64,
    "tile_n": 64,
    "stages": 4,
    "consumers": 1,
    "producers": 1,
    "batch": 8,
    "split_k": 1,
    "ctas_per_sm": 1,
    "group": 8,
    "wide": False,
}
ELEMENTS: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "mi": 1,
    "ni": 2,
    "warps_m": 1,
    "warps_n": 1,
    "warps_k": 4,
    "unroll": 2,
    "cluster_k": 1,
}
#: Of the family of batches, which no search of products knows.
BATCHED: Genome = {
    "layout": "nt",
    "dtype": "bf16",
    "tile_m": 64,
    "tile_n": 128,
    "tile_k": 64,
    "stages": 4,
    "consumers": 2,
    "schedule": "cooperative",
    "cluster_m": 1,
    "cluster_n": 1,
    "ctas_per_sm": 1,
    "raster": "m",
    "group": 1,
    "epilogue": "rows",
    "buffers": 1,
    "streaming": False,
}
BASES = {
    "sm90_wgmma": WGMMA,
    "sm90_splitk": SPLITK,
    "sm90_oneshot": ONESHOT,
    "sm90_swapab": SWAPAB,
    "sm90_writebound": WRITEBOUND,
    "sm90_direct": DIRECT,
    "sm90_gemv": GEMV,
    "sm90_tokens": TOKENS,
    "sm90_unaligned": UNALIGNED,
    "sm90_elements": ELEMENTS,
}
#: Of each family that can, a genome that is valid where it reads ahead as well.
READABLE_AHEAD = {name: genome for name, genome in BASES.items() if "reads_ahead" in genome} | {
    "sm90_writebound": {**WRITEBOUND, "ctas_per_sm": 2}
}


#: Sizes with one tile along M, a few and many; a deep K.
FITTED_TO = ((40, 4096, 4096), (776, 6144, 2048), (5000, 8192, 8192), (128, 512, 16384))


@cache
def candidates() -> tuple[Job, ...]:
    """Every 23rd choice that a search lists, of all layouts and dtypes, as jobs: 23 divides no
    number of gene values, so that every value of every gene comes along. Of what is fitted to a
    problem those of FITTED_TO."""
    listed = [choice for kind in KINDS for choice in catalogue(*kind)]
    listed += [c for kind in KINDS for sizes in FITTED_TO for c in fitted(Problem(*sizes, *kind))]
    once = list(dict.fromkeys(listed))
    return tuple((choice.family, choice.genome) for choice in once[::23])


def sample(count: int) -> list[Job]:
    """Jobs spread over the candidates of every layout and dtype, as many of each family."""
    by_family = {name: [job for job in candidates() if job[0] == name] for name in FAMILIES}
    share = count // len(by_family)
    return [jobs[len(jobs) * i // share] for jobs in by_family.values() for i in range(share)]


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
    shutil.copytree(compiler.sources_dir(), folder)
    for module in (compiler, places):
        monkeypatch.setattr(module, "sources_dir", lambda: folder)
    compiler.expand_source.cache_clear()
    return folder


def assert_static_gates_pass(name: str, genome: Genome) -> None:
    """A kernel passes the gates of source and binary."""
    built = compiler.build_one(name, genome)
    source = compiler.render(name, genome)
    verdict = static.check(source, {"symbol": built.entry_fields["symbol"]})
    assert verdict.passed, verdict.detail
    verdict = binary.check(built.entry_fields, built.cubin)
    assert verdict.passed, verdict.detail


def assert_source_says(name: str, genome: Genome, facts: dict[str, Any], *more: str) -> None:
    """The compiler finds these constants of a kernel's source as said."""
    asserts = [f'static_assert(({ours}) == {value}, "");' for ours, value in facts.items()]
    source = "\n".join([compiler.render(name, genome), *asserts, *more])
    symbol = family(name).fields(genome)["symbol"]
    assert compiler.compile_source(source, symbol)[1] <= 255
