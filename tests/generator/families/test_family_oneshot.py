"""Family sm90_oneshot: its records are what the kernel's own arithmetic needs, and what breaks a
constraint is named."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, cubin, sass
from hgemm_packs.generator.families import FAMILIES, Genome, InvalidGenome
from hgemm_packs.generator.families.oneshot import FAMILY, LARGEST_SIDE
from hgemm_packs.problem import Problem
from tests.generator.kernels import record

BASE: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "tile_m": 64,
    "tile_n": 32,
    "k_slice": 128,
    "slab_group": 2,
    "split": 1,
    "epilogue": "staged",
    "reads_ahead": False,
    "triggers_early": False,
    "cp_async": False,
}


def _problem(m: int, n: int, k: int) -> Problem:
    return Problem(m, n, k, "nt", "f16")


def test_every_valid_genome_has_a_record_that_the_manifest_reader_takes() -> None:
    genomes = list(FAMILY.space())
    assert {(g["layout"], g["dtype"]) for g in genomes} == {
        (layout, dtype) for layout in ("nn", "nt", "tn", "tt") for dtype in ("f16", "bf16")
    }
    names = {FAMILY.kernel_name(genome) for genome in genomes}
    assert len(names) == len(genomes)
    for genome in random.Random(0).sample(genomes, 300):
        entry = record(FAMILY.fields(genome))
        slabs = 2 * entry.k.max // int(genome["split"]) * (entry.grid.tile_m + entry.grid.tile_n)
        assert slabs < entry.smem_bytes <= 232448
        assert entry.block == 2 * entry.grid.tile_m + 32 * int(genome["reads_ahead"])
        assert entry.cluster == (1, 1, genome["split"])


def test_shared_memory_is_operands_inbox_staging_and_barriers() -> None:
    operands = 128 * (64 + 32) * 2
    assert FAMILY.fields(BASE)["smem_bytes"] == operands + 64 * 32 * 2 + 2 * 8
    single = {**BASE, "slab_group": 1, "epilogue": "grouped"}
    assert FAMILY.fields(single)["smem_bytes"] == operands + 3 * 8
    split = {**BASE, "split": 2}
    assert FAMILY.fields(split)["smem_bytes"] == operands + 64 * 32 * 4 + 64 * 16 * 2 + 2 * 8


@pytest.mark.parametrize(
    ("layout", "tile_n", "boxes", "swizzles", "steps"),
    [
        ("nt", 96, [(64, 64), (64, 96)], [128, 128], (1, 8)),
        ("nn", 96, [(64, 64), (32, 64)], [128, 64], (1, 8)),
        ("tn", 128, [(64, 64), (64, 64)], [128, 128], (8, 8)),
        ("tt", 16, [(64, 64), (64, 16)], [128, 128], (8, 8)),
    ],
)
def test_boxes_and_multiples_follow_the_layout(
    layout: str,
    tile_n: int,
    boxes: list[tuple[int, int]],
    swizzles: list[int],
    steps: tuple[int, int],
) -> None:
    entry = record(FAMILY.fields({**BASE, "layout": layout, "tile_n": tile_n}))
    assert [spec.box for spec in entry.tma] == boxes
    assert [spec.swizzle for spec in entry.tma] == swizzles
    assert (entry.m.multiple_of, entry.n.multiple_of) == steps


def test_a_kernel_takes_the_k_that_keeps_every_cta_of_its_cluster_busy() -> None:
    entry = record(FAMILY.fields({**BASE, "split": 4, "epilogue": "plain"}))
    taken = [k for k in range(8, 1024, 8) if entry.admits(_problem(64, 64, k)) is None]
    assert taken == list(range(3 * 128 + 8, 4 * 128 + 1, 8))
    assert entry.admits(_problem(LARGEST_SIDE, LARGEST_SIDE, 512)) is None
    for m, n in ((LARGEST_SIDE + 1, 64), (64, LARGEST_SIDE + 8), (64, 12)):
        assert entry.admits(_problem(m, n, 512)) is not None


def test_the_grouped_epilogue_takes_whole_groups_of_columns() -> None:
    entry = record(FAMILY.fields({**BASE, "epilogue": "grouped"}))
    assert [spec.row_group for spec in entry.tma] == [0, 32]
    assert [n for n in range(8, 100, 8) if entry.admits(_problem(1, n, 64)) is None] == [32, 64, 96]


# (genes that differ from a valid genome, words of the refusal)
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"layout": "nn", "tile_n": 16}, r"B stored \[K,N\] comes in boxes of 32 columns"),
    ({"layout": "tn", "epilogue": "grouped"}, r"grouped epilogue needs B stored \[N,K\]"),
    ({"epilogue": "grouped", "split": 2}, "do not split into 2 shares for the grouped"),
    ({"split": 4}, "do not split into 4 shares for the staged"),
    ({"epilogue": "plain", "tile_n": 16, "split": 16}, "do not split into 16 shares for the plain"),
    ({"epilogue": "plain", "tile_n": 96, "split": 8}, "do not split into 8 shares for the plain"),
    ({"k_slice": 192}, "groups of slabs fill the slice"),
    ({"k_slice": 1024, "tile_n": 64}, "shared memory"),
]


@pytest.mark.parametrize(("genes", "words"), BROKEN)
def test_a_broken_constraint_is_named(genes: dict[str, Any], words: str) -> None:
    FAMILY.validate(BASE)
    with pytest.raises(InvalidGenome, match=f"^sm90_oneshot: .*{words}"):
        FAMILY.validate({**BASE, **genes})


@pytest.mark.parametrize(
    ("genes", "copies", "sends"),
    [
        ({}, 4, 0),
        ({"layout": "tn", "tile_m": 128, "tile_n": 96}, 2 * (2 + 3), 0),
        ({"split": 16, "epilogue": "plain"}, 4, 16),
        ({"split": 8, "epilogue": "plain", "dtype": "bf16", "tile_n": 64}, 4, 8),
    ],
)
def test_a_kernel_is_unrolled_and_holds_no_static_shared_memory(
    genes: dict[str, Any], copies: int, sends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slabs are swizzled by address: dynamic memory has to begin at the kernel's own alignment."""
    monkeypatch.setitem(FAMILIES, FAMILY.name, FAMILY)
    genome = {**BASE, **genes}
    built = compiler.build_one(FAMILY.name, genome)
    (entry,) = cubin.read_cubin(built.cubin).entries
    assert entry.static_smem_bytes == 0
    census = sass.census(built.cubin)
    assert sum(form.count for form in census.mma) == int(genome["k_slice"]) // 16
    assert census.count("UTMALDG") == copies
    assert census.count("STAS") == sends


def test_a_kernel_whose_threads_copy_takes_pointers_and_no_maps() -> None:
    entry, other = (record(FAMILY.fields({**BASE, "cp_async": x})) for x in (True, False))
    assert (entry.param_layout, len(entry.tma), len(other.tma)) == ("ptr_v1", 0, 2)
    assert (entry.smem_bytes, entry.grid, entry.k) == (other.smem_bytes, other.grid, other.k)
    grouped = {**BASE, "cp_async": True, "epilogue": "grouped", "tile_n": 96}
    entry = record(FAMILY.fields(grouped))
    assert [n for n in range(8, 100, 8) if entry.admits(_problem(1, n, 64)) is None] == [32, 64, 96]
    transposed = record(FAMILY.fields({**BASE, "cp_async": True, "layout": "tn", "tile_n": 64}))
    assert (transposed.m.multiple_of, transposed.n.multiple_of) == (8, 8)


@pytest.mark.parametrize(
    ("genes", "copies"),
    [
        ({}, 2 * (64 + 32)),
        ({"layout": "nn", "tile_n": 96, "tile_m": 128}, 2 * (128 + 96)),
        ({"layout": "tt", "tile_n": 16, "dtype": "bf16"}, 2 * (64 + 16)),
        ({"layout": "tn", "tile_n": 128, "split": 4}, 2 * (64 + 128)),
        ({"epilogue": "grouped", "tile_m": 128, "tile_n": 96, "slab_group": 1}, 2 * (128 + 96)),
        ({"layout": "nn", "tile_n": 64, "split": 2, "reads_ahead": True}, 2 * (64 + 64)),
    ],
)
def test_threads_copy_each_unit_of_both_operands_once(genes: dict[str, Any], copies: int) -> None:
    """Rows of 64 of K, 128 bytes or eight units of 16 each, dealt to all threads."""
    genome = {**BASE, "cp_async": True, **genes}
    census = sass.census(compiler.build_one(FAMILY.name, genome).cubin)
    threads = 2 * int(genome["tile_m"])
    assert (census.count("UTMALDG"), census.count("LDGSTS")) == (0, copies * 8 // threads)
    assert census.count("LDGDEPBAR") == int(genome["k_slice"]) // 64 // int(genome["slab_group"])
