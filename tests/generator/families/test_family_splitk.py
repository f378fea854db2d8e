"""sm90_splitk: which genomes are valid, what a record says of slices, workspace and shared memory,
and that kernels of every kind compile without a spill and with the products that they need."""

from __future__ import annotations

from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, sass
from hgemm_packs.generator.families import Genome, InvalidGenome
from hgemm_packs.generator.families.splitk import FAMILY
from hgemm_packs.pack.manifest import PARAM_LAYOUTS
from tests.generator.kernels import record

BASE: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "tile_m": 64,
    "tile_n": 64,
    "tile_k": 64,
    "stages": 6,
    "split": 2,
    "slices": 4,
    "run": 0,
    "ctas_per_sm": 1,
    "epilogue": "staged",
    "reads_ahead": False,
    "triggers_early": False,
}
# Two consumers of 64 x 256: no room for an inbox beside the ring.
LARGE: Genome = {**BASE, "tile_m": 128, "tile_n": 256, "stages": 4, "slices": 8}

# (genes that differ from a valid genome, words of the refusal)
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"split": 1, "slices": 1}, "K is shared by two CTAs at least"),
    ({"tile_n": 256, "split": 8, "slices": 12}, "K is shared by 64 CTAs at most"),
    ({"tile_n": 256, "ctas_per_sm": 3, "stages": 2}, "128 accumulators a thread do not fit 128"),
    (
        {"tile_m": 128, "ctas_per_sm": 3, "stages": 2, "slices": 16},
        "16 parts beside a share do not fit 72 registers",
    ),
    (
        {"ctas_per_sm": 3, "stages": 4, "split": 1, "slices": 16, "reads_ahead": True},
        "16 parts beside a share do not fit 96 registers",
    ),
    ({"layout": "nn", "epilogue": "grouped"}, "grouped epilogue is for nt and tt"),
    ({"layout": "tn", "epilogue": "grouped"}, "grouped epilogue is for nt and tt"),
    ({"split": 8}, "a share is a multiple of 16 columns"),
    ({"split": 3}, "a share is a multiple of 16 columns"),
    ({"split": 4, "epilogue": "grouped"}, "a share is a multiple of 32 columns"),
    ({"tile_k": 128, "stages": 8}, "shared memory"),
    ({"stages": 7, "ctas_per_sm": 2}, "shared memory"),
    ({**LARGE, "stages": 2}, "the ring holds the inbox"),
    ({"run": 4}, "runs of tiles are for slices without a split"),
    ({"run": 4, "split": 4, "slices": 1}, "runs of tiles are for slices without a split"),
    ({"slices": 3}, "3 slices cannot have equal parts of 32 columns"),
    ({"slices": 16}, "16 slices cannot have equal parts of 32 columns"),
    (
        {"slices": 8, "split": 1, "tile_n": 32, "epilogue": "grouped"},
        "8 slices cannot have equal parts of 32 columns",
    ),
]


@pytest.mark.parametrize(("genes", "words"), BROKEN)
def test_a_broken_constraint_is_named(genes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidGenome, match=f"^sm90_splitk: .*{words}"):
        FAMILY.validate({**BASE, **genes})


def test_the_record_of_a_kernel_with_slices() -> None:
    fields = FAMILY.fields(BASE)
    assert fields["param_layout"] == "tma2_ws_v2"
    assert fields["param_sizes"] == list(PARAM_LAYOUTS["tma2_ws_v2"])
    assert fields["grid"] == {"tile_m": 64, "tile_n": 64, "persistent": False, "slices": 4}
    assert fields["cluster"] == [1, 1, 2]
    assert fields["workspace_bytes"] == 64 * 32 * 4  # a share: half of the tile's columns, fp32
    assert fields["block"] == 128 + 32
    assert fields["dims"]["k"] == {"min": 2 * 4 * 64, "max": 1 << 24, "multiple_of": 8}
    # Room to align, six stages, an inbox of the whole tile, 16 rows of 16 columns for four warps.
    assert fields["smem_bytes"] == 1024 + 6 * 16384 + 64 * 64 * 4 + 4 * 16 * 16 * 2
    entry = record(fields)
    assert (entry.grid.slices, entry.workspace_bytes) == (4, 64 * 32 * 4)


@pytest.mark.parametrize(
    ("genes", "across", "stored"),
    [
        ({"slices": 2}, 2, 16),
        ({}, 2, 16),  # four slices of a share of 32 columns: every second warp
        ({"slices": 8}, 2, 16),
        ({"split": 1, "tile_n": 128}, 4, 32),
        ({"split": 1, "tile_n": 128, "slices": 16}, 8, 16),
        ({"split": 1, "tile_n": 192, "slices": 12}, 12, 16),
        ({"split": 1, "tile_n": 128, "slices": 8, "epilogue": "grouped"}, 4, 32),
    ],
)
def test_slices_that_all_add_share_the_columns(
    genes: dict[str, Any], across: int, stored: int
) -> None:
    genome = {**BASE, "stages": 4, **genes}
    assert FAMILY.macros(genome)["HGP_ACROSS"] == across
    fields = FAMILY.fields(genome)
    share = int(genome["tile_n"]) // int(genome["split"])
    assert share // across == stored and int(genome["slices"]) // across in (1, 2, 4)
    assert fields["workspace_bytes"] == 64 * share * 4
    assert record(fields).cooperative
    staging = 0 if genome["epilogue"] == "grouped" else 64 * min(stored, 64) * 2
    inbox = 64 * 64 * 4 if genome["split"] == 2 else 0
    assert fields["smem_bytes"] == 1024 + 4 * (64 + int(genome["tile_n"])) * 128 + inbox + staging


def test_a_cluster_alone_needs_no_workspace() -> None:
    fields = FAMILY.fields({**BASE, "slices": 1})
    assert fields["param_layout"] == "tma2_v1"
    assert "slices" not in fields["grid"]
    assert fields["workspace_bytes"] == 0
    assert fields["dims"]["k"]["min"] == 2 * 64


def test_slices_alone_need_no_inbox() -> None:
    fields = FAMILY.fields({**BASE, "split": 1})
    assert fields["cluster"] == [1, 1, 1]
    assert fields["workspace_bytes"] == 64 * 64 * 4
    assert fields["smem_bytes"] == 1024 + 6 * 16384 + 4 * 16 * 16 * 2


def test_an_inbox_without_room_lies_over_the_ring() -> None:
    assert FAMILY.macros(BASE)["HGP_OVERLAID"] == 0
    assert FAMILY.macros(LARGE)["HGP_OVERLAID"] == 1
    assert FAMILY.fields(LARGE)["smem_bytes"] == 1024 + 4 * (128 + 256) * 128 + 128 * 16 * 2
    assert FAMILY.macros({**LARGE, "split": 1})["HGP_OVERLAID"] == 0


def test_a_producer_warpgroup_comes_with_128_accumulators_and_two_consumers() -> None:
    assert FAMILY.fields(LARGE)["block"] == 256 + 128
    assert FAMILY.fields({**LARGE, "tile_n": 128})["block"] == 256 + 32


@pytest.mark.parametrize(
    ("layout", "m", "boxes"),
    [
        ("nn", 1, ([64, 64], [64, 64])),
        ("nt", 1, ([64, 64], [64, 96])),
        ("tn", 8, ([64, 64], [64, 64])),
        ("tt", 8, ([64, 64], [64, 96])),
    ],
)
def test_maps_and_sizes_follow_the_layout(layout: str, m: int, boxes: tuple[Any, Any]) -> None:
    wide = 96 if layout[1] == "t" else 128
    fields = FAMILY.fields({**BASE, "layout": layout, "tile_n": wide})
    assert tuple(entry["box"] for entry in fields["tma"]) == boxes
    assert fields["dims"]["m"]["multiple_of"] == m
    assert (FAMILY.macros({**BASE, "layout": layout})["HGP_A_MN_MAJOR"] == 1) == (m == 8)


def test_grouped_rows_need_whole_groups_of_columns() -> None:
    fields = FAMILY.fields({**BASE, "epilogue": "grouped"})
    assert [entry["row_group"] for entry in fields["tma"]] == [0, 32]
    assert fields["dims"]["n"]["multiple_of"] == 32
    assert fields["smem_bytes"] == 1024 + 6 * 16384 + 64 * 64 * 4


KERNELS: list[dict[str, Any]] = [
    {},
    {"slices": 1},
    {"layout": "nn", "dtype": "bf16", "split": 1},
    {"layout": "tn", "tile_n": 32, "split": 1, "slices": 8, "tile_k": 128},
    {"layout": "tt", "tile_m": 128, "tile_n": 128, "epilogue": "grouped"},
    LARGE,
    {"split": 1, "tile_n": 128, "slices": 8, "stages": 4},
    {"split": 1, "slices": 8, "run": 4},
    {"layout": "nn", "dtype": "bf16", "slices": 8},
]


@pytest.mark.parametrize("genes", KERNELS)
def test_kernels_compile_without_atomics(
    genes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    genome = {**BASE, **genes}
    monkeypatch.setattr(compiler, "family", lambda _: FAMILY)
    built = compiler.build_one("sm90_splitk", genome)
    census = sass.census(built.cubin)
    loops = census.mma_count("HGMMA", "f32")
    assert loops and loops % (int(genome["tile_k"]) // 16) == 0
    assert census.count(*sass.MEMORY["atomics"]) == 0
    assert census.count("LDL", "STL") == 0
