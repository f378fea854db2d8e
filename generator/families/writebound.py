"""Family sm90_writebound: B kept in shared memory, A streamed, for small K and a large C. Twin of
sm90/writebound.cuh."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families.base import (
    AHEAD,
    SM_BYTES,
    Family,
    Genome,
    ahead_fields,
    ahead_macros,
    check_ahead,
    common_macros,
    dims,
    number,
    register_room,
    require,
    smem_room,
)
from hgemm_packs.generator.families.operand import (
    LAYOUTS,
    check_gated,
    mn_major,
    operand_map,
    row_group_of,
)

GENES: dict[str, tuple[int | str | bool, ...]] = {
    "layout": LAYOUTS,
    "dtype": ("f16", "bf16"),
    "tile_n": (64, 96, 128, 192, 256),
    "k": (64, 128, 192, 256),  # the largest K, whole in shared memory
    "stages": (2, 3, 4, 6, 8),  # of A, each 64 rows by k
    "stages_b": (1, 2),
    "consumers": (2, 3, 4),
    "ordered": (False, True),  # consumers multiply one after the other
    "ctas_per_sm": (1, 2),
    "epilogue": ("staged", "grouped", "bulk"),
    "streaming": (False, True),
    **AHEAD,
}

_TILE_M = 64


def _staging_bytes(g: Genome) -> int:
    """Epilogue staging of all consumers, in bytes."""
    warps = 4 * number(g, "consumers")
    if g["epilogue"] == "grouped":
        return 0
    if g["epilogue"] == "bulk":
        return warps * 4096
    return warps * 16 * (64 if number(g, "tile_n") % 64 == 0 else 32) * 2


def _needed_bytes(g: Genome) -> int:
    rows = _TILE_M * number(g, "stages") + number(g, "tile_n") * number(g, "stages_b")
    return 1024 + rows * number(g, "k") * 2 + _staging_bytes(g)


def smem_bytes(g: Genome) -> int:
    """Dynamic shared memory in bytes: ring, B, staging, and room to align them to 1024; enough that
    no more than ctas_per_sm fit an SM, for the grid is what the driver says can be resident."""
    return max(_needed_bytes(g), SM_BYTES // (number(g, "ctas_per_sm") + 1))


def _threads(g: Genome) -> int:
    """Consumer warpgroups, one producer warp, and one that lets dependents start."""
    return number(g, "consumers") * 128 + (64 if g["reads_ahead"] else 32)


def _check(g: Genome) -> None:
    check_ahead(g)
    accumulators, room = (
        number(g, "tile_n") // 2,
        register_room(_threads(g), number(g, "ctas_per_sm")),
    )
    require(
        number(g, "stages") % number(g, "consumers") == 0,
        "a stage is always read by the same consumer: stages are a multiple of consumers",
    )
    require(
        not g["reads_ahead"] or g["ctas_per_sm"] == 2,
        "a grid that reads ahead leaves room for as many CTAs of the next",
    )
    require(
        accumulators + 32 <= room,
        f"{accumulators} accumulators a thread do not fit {room} registers",
    )
    require(_needed_bytes(g) <= smem_room(number(g, "ctas_per_sm")), "shared memory")
    b_transposed = mn_major(str(g["layout"]))[1]
    require(g["epilogue"] != "grouped" or not b_transposed, "grouped epilogue is for nt and tt")
    require(
        g["epilogue"] != "bulk" or number(g, "tile_n") % 64 == 0,
        "bulk epilogue stores 64 columns at a time",
    )


def _check_gated(g: Genome) -> None:
    check_gated(g)
    require(
        g["epilogue"] != "bulk" or number(g, "tile_n") % 128 == 0,
        "bulk epilogue stores 64 columns of C at a time",
    )


def _macros(g: Genome) -> dict[str, int | str]:
    genes = ("tile_n", "stages", "stages_b", "consumers", "ctas_per_sm")
    return {
        **common_macros(g, *genes),
        "HGP_DEPTH": number(g, "k"),
        "HGP_ORDERED": int(bool(g["ordered"])),
        "HGP_EPILOGUE_BULK": int(g["epilogue"] == "bulk"),
        "HGP_EPILOGUE_GROUPED": int(g["epilogue"] == "grouped"),
        "HGP_STREAMING": int(bool(g["streaming"])),
        **ahead_macros(g),
    }


def _record(g: Genome) -> dict[str, Any]:
    row_group, bulk = row_group_of(g), g["epilogue"] == "bulk"
    a_transposed, b_transposed = mn_major(str(g["layout"]))
    maps = [
        operand_map("a", _TILE_M, a_transposed),
        operand_map("b", number(g, "tile_n"), b_transposed, row_group=row_group),
    ]
    if bulk:
        maps.append(operand_map("c", 64, False))
    sizes = dims(m=8 if a_transposed else 1, n=row_group or 8)
    # A K that a smaller `k` holds would be multiplied by zeros for nothing.
    sizes["k"].update(min=number(g, "k") - 56, max=number(g, "k"))
    return {
        "param_layout": "tma3_v1" if bulk else "tma2_v1",
        "block": _threads(g),
        "cluster": [1, 1, 1],
        "grid": {"tile_m": _TILE_M, "tile_n": number(g, "tile_n"), "persistent": True},
        "smem_bytes": smem_bytes(g),
        "tma": maps,
        "dims": sizes,
        **ahead_fields(g),
    }


OPERATORS = {
    "tile": ("tile_n", "k"),
    "depth": ("stages", "stages_b"),
    "schedule": ("consumers", "ordered", "ctas_per_sm"),
    "epilogue": ("epilogue", "streaming"),
    "ahead": tuple(AHEAD),
}

FAMILY = Family(
    "sm90_writebound",
    "sm90/writebound.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    gated=_check_gated,
    exceptions=("lays_tiles",),
)
