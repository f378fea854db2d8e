"""Family sm90_oneshot: a CTA loads its whole slice of K at once. For problems of 2 to 5 us. Twin of
sm90/oneshot.cuh."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families.base import (
    AHEAD,
    LARGEST_SIDE,
    SMEM_LIMIT_BYTES,
    Family,
    Genome,
    ahead_fields,
    ahead_macros,
    check_ahead,
    common_macros,
    dims,
    number,
    require,
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
    "tile_m": (64, 128),
    "tile_n": (16, 32, 64, 96, 128),
    "k_slice": (64, 128, 192, 256, 384, 512, 768, 1024),
    "slab_group": (1, 2, 4),
    "split": (1, 2, 4, 8, 16),
    "epilogue": ("staged", "grouped", "plain"),
    **AHEAD,
    "cp_async": (False, True),  # all threads copy, no tensor maps
}

#: Epilogue -> what a CTA's share of the tile must be a multiple of, in floats of each thread: 4 are
#: a block of 8 columns.
SHARE = {"staged": 8, "grouped": 16, "plain": 4}


def _staging_bytes(g: Genome) -> int:
    """Epilogue staging of all warps, in bytes: this CTA's share of the tile."""
    if g["epilogue"] != "staged":
        return 0
    return number(g, "tile_m") * number(g, "tile_n") // number(g, "split") * 2


def smem_bytes(g: Genome) -> int:
    """Dynamic shared memory in bytes: operands, inbox of the reduction, staging, barriers."""
    m, n = number(g, "tile_m"), number(g, "tile_n")
    inbox = m * n * 4 if number(g, "split") > 1 else 0
    barriers = 8 * (number(g, "k_slice") // 64 // number(g, "slab_group") + 1)
    return (m + n) * number(g, "k_slice") * 2 + inbox + _staging_bytes(g) + barriers


def _check(g: Genome) -> None:
    check_ahead(g)
    n, split = number(g, "tile_n"), number(g, "split")
    epilogue, b_mn_major = str(g["epilogue"]), mn_major(str(g["layout"]))[1]
    require(not b_mn_major or n % 32 == 0, "B stored [K,N] comes in boxes of 32 columns")
    require(epilogue != "grouped" or not b_mn_major, "grouped epilogue needs B stored [N,K]")
    share = SHARE[epilogue]
    # The plain epilogue also stores a half or a quarter of a block.
    parts = (2 * split, 4 * split) if epilogue == "plain" else ()
    require(
        n % (2 * split * share) == 0 or n in parts,
        f"{n} columns do not split into {split} shares for the {epilogue} epilogue",
    )
    groups = number(g, "k_slice") % (64 * number(g, "slab_group")) == 0
    require(groups, "groups of slabs fill the slice")
    require(smem_bytes(g) <= SMEM_LIMIT_BYTES, "shared memory")


def _check_gated(g: Genome) -> None:
    check_gated(g)
    share = 2 * SHARE[str(g["epilogue"])]  # gate and up
    require(
        number(g, "tile_n") % (2 * number(g, "split") * share) == 0,
        f"a share is a multiple of {share} sums of each thread",
    )


def _macros(g: Genome) -> dict[str, int | str]:
    genes = ("tile_m", "tile_n", "k_slice", "slab_group", "split")
    return {
        **common_macros(g, *genes),
        **ahead_macros(g),
        "HGP_CP_ASYNC": int(bool(g["cp_async"])),
        "HGP_EPILOGUE_GROUPED": int(g["epilogue"] == "grouped"),
        "HGP_EPILOGUE_STAGED": int(g["epilogue"] == "staged"),
    }


def _record(g: Genome) -> dict[str, Any]:
    m, n, k, split = (number(g, gene) for gene in ("tile_m", "tile_n", "k_slice", "split"))
    a_mn_major, b_mn_major = mn_major(str(g["layout"]))
    row_group = row_group_of(g)
    sizes = dims(m=8 if a_mn_major else 1, n=row_group or 8)
    sizes["m"]["max"] = sizes["n"]["max"] = LARGEST_SIDE
    maps = [
        operand_map("a", m, a_mn_major),
        operand_map("b", n, b_mn_major, row_group=row_group),
    ]
    # Every CTA of a cluster has something to multiply; what a slice has too much is read as zeros.
    sizes["k"] = {"min": (split - 1) * k + 8, "max": split * k, "multiple_of": 8}
    return {
        "param_layout": "ptr_v1" if g["cp_async"] else "tma2_v1",
        "block": m * 2 + (32 if g["reads_ahead"] else 0),
        "cluster": [1, 1, split],
        "grid": {"tile_m": m, "tile_n": n, "persistent": False},
        "smem_bytes": smem_bytes(g),
        "tma": [] if g["cp_async"] else maps,
        "dims": sizes,
        **ahead_fields(g),
    }


OPERATORS = {
    "tile": ("tile_m", "tile_n"),
    "slice": ("k_slice", "split"),
    "depth": ("slab_group",),
    "epilogue": ("epilogue",),
    "ahead": tuple(AHEAD),
    "copies": ("cp_async",),
}

FAMILY = Family(
    "sm90_oneshot",
    "sm90/oneshot.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    gated=_check_gated,
    exceptions=("lays_tiles",),
)
