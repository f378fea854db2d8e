"""Family sm90_batched: records that the manifest reader takes, constraints by name, cubins that
pass the gates of source and binary, and the tiles that CTAs find and store, on a CPU."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.families import BATCHED, FAMILIES, Genome, InvalidGenome, family, tokens
from hgemm_packs.generator.families.batched import FAMILY, FIXED
from hgemm_packs.pack.manifest import OF_BATCH
from tests.generator import host, kernels
from tests.generator.kernels import assert_source_says, assert_static_gates_pass, record

BASE: Genome = {**kernels.BATCHED, "tile_m": 32}


def test_it_is_known_by_name_and_to_no_search_of_products() -> None:
    assert family("sm90_batched") is FAMILY is BATCHED["sm90_batched"]
    assert FAMILY.name not in FAMILIES


def draw(count: int) -> list[Genome]:
    source, found = random.Random(0), list[Genome]()
    while len(found) < count:
        genome = {gene: source.choice(values) for gene, values in FAMILY.genes.items()}
        if FAMILY.is_valid(genome):
            found.append(genome)
    return found


def test_every_valid_genome_has_a_record_that_the_manifest_reader_takes() -> None:
    genomes = draw(300)
    assert len({FAMILY.kernel_name(genome) for genome in genomes}) == len(genomes)
    assert {genome["layout"] for genome in genomes} == {"nn", "nt", "tn", "tt"}
    for genome in genomes:
        entry = record(FAMILY.fields(genome))
        assert entry.is_batched and entry.grid.persistent and not entry.reads_ahead
        one = record(tokens.FAMILY.fields({**genome, **FIXED}))
        assert entry.param_layout == OF_BATCH[one.param_layout]
        same = ("tma", "block", "cluster", "grid", "smem_bytes", "align", "m", "n", "k")
        assert all(getattr(entry, name) == getattr(one, name) for name in same)


def test_a_residual_has_the_layout_with_an_addend() -> None:
    for epilogue, layout in (("rows", "tma2_batched_v1"), ("bulk", "tma3_batched_v1")):
        entry = record(FAMILY.fields({**BASE, "epilogue": epilogue, "computes": "residual"}))
        assert entry.param_layout == f"{layout}_addend"
        assert entry.param_sizes[-2:] == (8, 4)


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"computes": "bias"}, "a batch has its products, or a matrix added to each"),
    ({"computes": "gated_silu"}, "a batch has its products, or a matrix added to each"),
    ({"consumers": 1, "schedule": "pingpong"}, "pingpong needs two consumers"),
    ({"stages": 12, "tile_k": 128}, "shared memory"),
    ({"layout": "tn", "tile_m": 40}, "tokens of tn and tt come in steps of 32"),
    ({"persistent": True}, "genes must be"),
]


@pytest.mark.parametrize(("genes", "words"), BROKEN)
def test_a_broken_constraint_is_named(genes: dict[str, Any], words: str) -> None:
    FAMILY.validate(BASE)
    with pytest.raises(InvalidGenome, match=f"^sm90_batched: .*{words}"):
        FAMILY.validate({**BASE, **genes})


TURNS: Genome = {"schedule": "pingpong", "tile_n": 64}
SAMPLE: list[dict[str, Any]] = [
    {},
    {"layout": "nn", "dtype": "f16", "tile_m": 8, "tile_n": 64, "consumers": 1, "ctas_per_sm": 2},
    {"layout": "tn", "tile_m": 96, **TURNS},
    {"layout": "tt", "tile_m": 64, "cluster_m": 2, "epilogue": "bulk", "streaming": True},
    {"tile_m": 136, "cluster_n": 2, "epilogue": "bulk", "buffers": 2},
    {"computes": "residual", "epilogue": "staged"},
    {"computes": "residual", "epilogue": "bulk", "layout": "nn"},
]


@pytest.mark.parametrize("genes", SAMPLE)
def test_a_kernel_passes_the_gates_of_source_and_binary(genes: dict[str, Any]) -> None:
    assert_static_gates_pass(FAMILY.name, {**BASE, **genes})


@pytest.mark.parametrize("genes", SAMPLE)
def test_shared_memory_and_threads_are_what_the_source_lays_out(genes: dict[str, Any]) -> None:
    genome = {**BASE, **genes}
    fields = FAMILY.fields(genome)
    staging = "(kWhole ? kConsumers : kWarps) * kBuffers * kBufferBytes"
    facts = {
        f"1024 + kStages * StageLayout::kBytes + {staging}": fields["smem_bytes"],
        "kThreads": fields["block"],
        "kTokens": fields["grid"]["tile_m"],
        "kRows": fields["grid"]["tile_n"],
        "kClusterSize": fields["cluster"][0] * fields["cluster"][1],
    }
    assert_source_says(FAMILY.name, genome, facts)


def count_wrong(folder: Path, genes: dict[str, Any], change: tuple[str, str] = ("", "")) -> int:
    """Elements of C that are wrong, missing, stored twice or in no product, over some batches."""
    genome = {**BASE, **genes}
    return host.count_wrong(folder, FAMILY.name, genome, '#include "batched.h"', change)


ON_CPU: list[dict[str, Any]] = [
    {"tile_m": 8, "tile_n": 64, "consumers": 1},
    {"tile_m": 24, "epilogue": "staged", "raster": "n", "group": 2},
    {"tile_m": 72, **TURNS, "buffers": 2},
    {"tile_m": 16, "epilogue": "bulk", "group": 4},
    {"tile_m": 16, "cluster_m": 2, "cluster_n": 2},
    {"tile_m": 16, "computes": "residual"},
    {"tile_m": 24, "computes": "residual", "epilogue": "bulk", "tile_n": 64, "consumers": 1},
    {"tile_m": 8, "computes": "residual", "epilogue": "staged"},
]


@host.needs_compiler
@pytest.mark.parametrize("genes", ON_CPU)
def test_each_product_is_stored_once_and_nothing_else(
    genes: dict[str, Any], tmp_path: Path
) -> None:
    assert count_wrong(tmp_path, genes) == 0


@host.needs_compiler
@pytest.mark.parametrize(
    ("genes", "change"),
    [
        ({}, ("(i64)at.of * m * ldc", "(i64)at.of * (m + 1) * ldc")),
        ({}, ("t - of * each", "t")),
        ({}, ("total = each * batches", "total = each * (batches - 1)")),
        ({}, ("at < m && to < HGP_OF_C(n)", "to < HGP_OF_C(n)")),
        ({"computes": "residual"}, ("addend + (i64)at.of * m * n", "addend")),
        ({"epilogue": "bulk"}, (", &map_c, at.of", ", &map_c, 0")),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "-",
)
def test_a_mistake_is_seen(genes: dict[str, Any], change: tuple[str, str], tmp_path: Path) -> None:
    assert count_wrong(tmp_path, {"tile_m": 16, **genes}, change) > 0
