"""Family sm90_swapab: weights on wgmma's rows, tokens on its columns, for few rows of A. Twin of
sm90/swapab.cuh."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families.base import (
    AHEAD,
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
    check_gated,
    mn_major,
    operand_map,
    row_group_of,
)

GENES: dict[str, tuple[int | str | bool, ...]] = {
    "layout": ("nn", "nt"),
    "dtype": ("f16", "bf16"),
    "tile_m": tuple(range(8, 257, 8)),
    "tile_n": (64, 128, 256),
    "tile_k": (64, 128, 256),
    "stages": (2, 3, 4, 5, 6, 8, 10, 12, 16),
    "consumers": (1, 2),
    "split_k": (1, 2, 4, 8),
    "persistent": (False, True),
    "ctas_per_sm": (1, 2, 3, 4),
    **AHEAD,
}


def smem_bytes(g: Genome) -> int:
    """Dynamic shared memory in bytes: ring, inbox of the reduction, staging, room to align."""
    warps = 4 * number(g, "consumers")
    stage = (number(g, "tile_m") + number(g, "tile_n")) * number(g, "tile_k") * 2
    inbox = number(g, "tile_m") * number(g, "tile_n") * 4 if number(g, "split_k") > 1 else 0
    return 1024 + number(g, "stages") * stage + inbox + warps * number(g, "tile_m") * 32


def _threads(g: Genome) -> int:
    """Consumer warpgroups, one producer warp, and one that lets dependents start."""
    return 128 * number(g, "consumers") + (64 if g["reads_ahead"] else 32)


def _check(g: Genome) -> None:
    check_ahead(g)
    consumers, ctas, split = number(g, "consumers"), number(g, "ctas_per_sm"), number(g, "split_k")
    rows = number(g, "tile_n") // consumers
    require(rows in (64, 128), "a consumer holds 64 or 128 rows of weights")
    room = register_room(_threads(g), ctas)
    accumulators = rows * number(g, "tile_m") // 128
    require(
        accumulators + 56 <= room,
        f"{accumulators} accumulators a thread do not fit {room} registers",
    )
    require(smem_bytes(g) <= smem_room(ctas), "shared memory")
    require(split <= 4 * consumers, "split_k ends with whole warps")
    # Accumulators, their sums, and half of the parts that arrive, for the compiler loads ahead. All
    # 440 fp16 genomes above this spill, and 5 of 512 that were compiled below.
    ahead = max(40, accumulators * split // 2)
    require(
        split == 1 or 2 * accumulators + ahead <= room,
        f"{accumulators} sums of {split} parts a thread do not fit {room} registers",
    )
    require(split == 1 or not g["persistent"], "split_k reduces once")
    require(not g["reads_ahead"] or not g["persistent"], "a persistent grid leaves no room ahead")


def _macros(g: Genome) -> dict[str, int | str]:
    genes = ("tile_m", "tile_n", "tile_k", "stages", "consumers", "split_k", "ctas_per_sm")
    return {
        **common_macros(g, *genes),
        "HGP_PERSISTENT": int(bool(g["persistent"])),
        **ahead_macros(g),
    }


def _record(g: Genome) -> dict[str, Any]:
    tokens, rows = number(g, "tile_m"), number(g, "tile_n")
    row_group = row_group_of(g)
    sizes = dims(n=row_group or 8)
    if g["split_k"] != 1:  # every CTA of a cluster has something to multiply
        sizes["k"]["min"] = number(g, "split_k") * number(g, "tile_k")
    return {
        "param_layout": "tma2_v1",
        "block": _threads(g),
        "cluster": [1, 1, number(g, "split_k")],
        "grid": {"tile_m": tokens, "tile_n": rows, "persistent": bool(g["persistent"])},
        "smem_bytes": smem_bytes(g),
        "tma": [
            operand_map("a", tokens, False),
            operand_map("b", rows, mn_major(str(g["layout"]))[1], row_group=row_group),
        ],
        "dims": sizes,
        **ahead_fields(g),
    }


OPERATORS = {
    "tile": ("tile_m", "tile_n"),
    "depth": ("tile_k", "stages"),
    "schedule": ("consumers", "persistent", "ctas_per_sm"),
    "split": ("split_k",),
    "ahead": tuple(AHEAD),
}

FAMILY = Family(
    "sm90_swapab",
    "sm90/swapab.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    in_order=True,
    gated=check_gated,
    exceptions=("turns_residual", "lays_tiles"),
)
