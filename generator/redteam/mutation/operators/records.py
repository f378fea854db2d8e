"""Faults of the launch record and of the genome: what the kernel is said to be and is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hgemm_packs.generator.redteam.mutation.operators.base import (
    ADDRESSES,
    ORDER,
    RESOURCES,
    SIZES,
    STATE,
    Fields,
    InGenome,
    InRecord,
)

Found = Iterator[tuple[str, Any]]


def _smaller_tile(fields: Fields) -> Found:
    for name in ("tile_m", "tile_n"):
        for part in (2, 4):
            if fields["grid"][name] // part >= 8:
                yield f"grid.{name}", fields["grid"][name] // part


def _larger_tile(fields: Fields) -> Found:
    for name in ("tile_m", "tile_n"):
        yield f"grid.{name}", fields["grid"][name] * 2


def _other_cluster(fields: Fields) -> Found:
    one = list(fields["cluster"])
    for other in (
        [one[1], one[0], one[2]],
        [one[0] * 2, *one[1:]],
        [1, 1, 1],
        [*one[:2], one[2] * 2],
    ):
        if other != one:
            yield "cluster", other


def _other_grid(fields: Fields) -> Found:
    yield "grid.persistent", not fields["grid"].get("persistent", False)


def _other_slices(fields: Fields) -> Found:
    slices = fields["grid"].get("slices", 1)
    for other in (slices * 2, slices + 1, slices // 2, 1):
        if other not in (slices, 0):
            yield "grid.slices", other


def _wider_dims(fields: Fields) -> Found:
    for dim, rule in fields["dims"].items():
        if rule["multiple_of"] > 1:
            yield f"dims.{dim}", {**rule, "multiple_of": rule["multiple_of"] // 2, "min": 1}
        if rule["min"] > rule["multiple_of"]:
            yield f"dims.{dim}", {**rule, "min": rule["multiple_of"]}
        if rule["max"] < 1 << 24:
            most = (1 << 24) // rule["multiple_of"] * rule["multiple_of"]
            yield f"dims.{dim}", {**rule, "max": most}


def _lower_alignment(fields: Fields) -> Found:
    for name, has in fields["align"].items():
        for other in (2, 4, 8):
            if other < has:
                yield f"align.{name}", other


def _smaller_workspace(fields: Fields) -> Found:
    has = fields["workspace_bytes"]
    if isinstance(has, int) and has:
        yield from (("workspace_bytes", other) for other in (has // 2, 16, 0))


def _less_shared(fields: Fields) -> Found:
    has = fields["smem_bytes"]
    yield from (("smem_bytes", other) for other in (has - 1024, has // 2, 0) if 0 <= other < has)


def _other_block(fields: Fields) -> Found:
    yield from (("block", other) for other in (fields["block"] - 32, fields["block"] + 32) if other)


def _other_map(fields: Fields) -> Found:
    for i, one in enumerate(fields["tma"]):
        inner, outer = one["box"]
        if outer >= 16:
            yield f"tma.{i}", {**one, "box": [inner, outer // 2]}
        yield f"tma.{i}", {**one, "swizzle": 64 if one["swizzle"] == 128 else 128}
        if one.get("row_group"):
            yield f"tma.{i}", {**one, "row_group": 0}


def _not_cooperative(fields: Fields) -> Found:
    if fields.get("cooperative"):
        yield "cooperative", False


def _claims_ahead(fields: Fields) -> Found:
    for name in ("reads_ahead", "triggers_early"):
        yield name, not fields.get(name, False)


def _other_kind(fields: Fields) -> Found:
    yield "dtype", {"f16": "bf16", "bf16": "f16"}[fields["dtype"]]
    for layout in ("nn", "nt", "tn", "tt"):
        if layout != fields["layout"]:
            yield "layout", layout


OPERATORS = (
    InRecord("smaller_tile", SIZES, _smaller_tile),
    InRecord("larger_tile", SIZES, _larger_tile),
    InRecord("other_cluster", RESOURCES, _other_cluster),
    InRecord("other_grid", SIZES, _other_grid),
    InRecord("other_slices", SIZES, _other_slices),
    InRecord("wider_dims", SIZES, _wider_dims),
    InRecord("lower_alignment", ADDRESSES, _lower_alignment),
    InRecord("smaller_workspace", STATE, _smaller_workspace),
    InRecord("less_shared", RESOURCES, _less_shared),
    InRecord("other_block", RESOURCES, _other_block),
    InRecord("other_map", ADDRESSES, _other_map),
    InRecord("not_cooperative", ORDER, _not_cooperative),
    InRecord("claims_ahead", ORDER, _claims_ahead),
    InRecord("other_kind", ADDRESSES, _other_kind),
    InGenome("tile_of_another", SIZES, ("tile_m", "tile_n", "mi", "ni", "warps_m", "warps_n")),
    InGenome("depth_of_another", RESOURCES, ("stages", "tile_k", "k_slice", "k", "unroll")),
    InGenome(
        "cluster_of_another", ORDER, ("cluster_m", "cluster_n", "cluster_k", "split_k", "split")
    ),
    InGenome(
        "grid_of_another", SIZES, ("persistent", "slices", "across", "run", "raster", "group")
    ),
    InGenome("store_of_another", ADDRESSES, ("epilogue", "a_bytes", "b_bytes", "c_bytes", "exact")),
)
