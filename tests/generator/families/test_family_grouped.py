"""Family sm90_grouped: records that the manifest reader takes, constraints by name, cubins that
pass the gates of source and binary, and the tiles that CTAs find and store, on a CPU."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.families import FAMILIES, GROUPED, Genome, InvalidGenome, family
from hgemm_packs.generator.families.grouped import FAMILY
from hgemm_packs.pack.manifest import GROUPED_LAYOUT, MAX_GROUPS
from tests.generator import host
from tests.generator.kernels import assert_source_says, assert_static_gates_pass, record

BASE: Genome = {
    "layout": "nt",
    "dtype": "bf16",
    "tile_m": 32,
    "tile_n": 128,
    "tile_k": 64,
    "stages": 4,
    "consumers": 2,
    "pingpong": False,
    "reallocate": False,
    "ctas_per_sm": 1,
}


def test_it_is_known_by_name_and_to_no_search_of_products() -> None:
    assert family("sm90_grouped") is FAMILY is GROUPED["sm90_grouped"]
    assert FAMILY.name not in FAMILIES


def test_every_valid_genome_has_a_record_that_the_manifest_reader_takes() -> None:
    genomes = list(FAMILY.space())
    kinds = {(g["layout"], g["dtype"]) for g in genomes}
    assert kinds == {(layout, dtype) for layout in ("nn", "nt") for dtype in ("f16", "bf16")}
    assert len({FAMILY.kernel_name(genome) for genome in genomes}) == len(genomes)
    for genome in random.Random(0).sample(genomes, 300):
        entry = record(FAMILY.fields(genome))
        assert entry.param_layout == GROUPED_LAYOUT and entry.grid.persistent
        assert (entry.m.min, entry.m.multiple_of, entry.n.multiple_of) == (1, 1, 8)
        assert entry.smem_bytes + 1536 <= 233472 // int(genome["ctas_per_sm"])
        own = 128 * int(genome["consumers"])
        assert entry.block == own + (128 if genome["reallocate"] else 32)


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"consumers": 1, "pingpong": True}, "ping-pong takes two consumers"),
    ({"consumers": 1, "reallocate": True}, "handed over to two consumers"),
    ({"ctas_per_sm": 2, "reallocate": True}, "handed over to two consumers"),
    ({"tile_n": 64}, "a consumer holds 64 or 128 rows"),
    ({"tile_n": 256, "pingpong": True}, "a consumer holds 64 or 128 rows"),
    ({"stages": 12, "tile_k": 128}, "shared memory"),
    ({"layout": "tn"}, "layout='tn' is not one of"),
]


@pytest.mark.parametrize(("genes", "words"), BROKEN)
def test_a_broken_constraint_is_named(genes: dict[str, Any], words: str) -> None:
    FAMILY.validate(BASE)
    with pytest.raises(InvalidGenome, match=f"^sm90_grouped: .*{words}"):
        FAMILY.validate({**BASE, **genes})


def test_accumulators_fit_the_registers() -> None:
    for tile, more, fits in ((104, False, True), (128, False, False), (168, True, True)):
        genome = {**BASE, "tile_n": 256, "tile_m": tile, "stages": 3, "reallocate": more}
        assert FAMILY.is_valid(genome) == fits, tile


SAMPLE: list[dict[str, Any]] = [
    {},
    {"layout": "nn", "dtype": "f16", "tile_m": 8, "tile_n": 64, "consumers": 1, "ctas_per_sm": 3},
    {"layout": "nn", "tile_m": 128, "pingpong": True, "reallocate": True},
    {"tile_m": 256, "reallocate": True, "stages": 3},
]


@pytest.mark.parametrize("genes", SAMPLE)
def test_a_kernel_passes_the_gates_of_source_and_binary(genes: dict[str, Any]) -> None:
    assert_static_gates_pass(FAMILY.name, {**BASE, **genes})


@pytest.mark.parametrize("genes", SAMPLE)
def test_shared_memory_and_threads_are_what_the_source_lays_out(genes: dict[str, Any]) -> None:
    genome = {**BASE, **genes}
    fields = FAMILY.fields(genome)
    dynamic = "1024 + kStages * StageLayout::kBytes + kProducer * kStagingBytes"
    facts = {
        f"{dynamic} + (HGP_MAX_GROUPS + 1) * (int)sizeof(Group)": fields["smem_bytes"],
        "kThreads": fields["block"],
        "kTokens": fields["grid"]["tile_m"],
        "kRows": fields["grid"]["tile_n"],
        "HGP_MAX_GROUPS": MAX_GROUPS,
    }
    room = 'static_assert(sizeof(Shared) <= 512, "beside what smem_room leaves");'
    assert_source_says(FAMILY.name, genome, facts, room)


def count_wrong(folder: Path, genes: dict[str, Any], change: tuple[str, str] = ("", "")) -> int:
    """Elements of C that are wrong, missing, stored twice or in no group, over some splits."""
    genome = {**BASE, **genes}
    return host.count_wrong(folder, FAMILY.name, genome, '#include "grouped.h"', change)


@host.needs_compiler
@pytest.mark.parametrize(
    "genes",
    [
        {"tile_m": 8, "tile_n": 64, "consumers": 1},
        {"tile_m": 24},
        {"tile_m": 72, "tile_n": 64, "pingpong": True},
    ],
)
def test_each_row_of_a_group_is_stored_once_and_nothing_else(
    genes: dict[str, Any], tmp_path: Path
) -> None:
    assert count_wrong(tmp_path, genes) == 0


@host.needs_compiler
@pytest.mark.parametrize(
    "change",
    [
        ("at < end", "at < end + 1"),
        ("lane < chunk ? tiles : 0", "lane < chunk ? groups : 0"),
        ("(1u << lane) - 1", "(2u << lane) - 1"),
        ("group->start + ", "group->start + 1 + "),
        ("unit / 2, to", "unit / 2 + 1, to"),
    ],
    ids=lambda change: change[0],
)
def test_a_mistake_is_seen(change: tuple[str, str], tmp_path: Path) -> None:
    assert count_wrong(tmp_path, {"tile_m": 8, "tile_n": 64, "consumers": 1}, change) > 0
