"""Family sm90_grouped: rows of tokens in groups, each times a matrix of its own, weights on wgmma's
rows. Twin of sm90/grouped.cuh.

No product of two matrices: searches of these do not know it, so it stands in GROUPED, not in
FAMILIES.
"""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families.base import (
    SMEM_LIMIT_BYTES,
    Family,
    Genome,
    common_macros,
    dims,
    number,
    register_room,
    require,
    smem_room,
)
from hgemm_packs.generator.families.operand import mn_major, operand_map
from hgemm_packs.pack.manifest import MAX_GROUPS

GENES: dict[str, tuple[int | str | bool, ...]] = {
    "layout": ("nn", "nt"),
    "dtype": ("f16", "bf16"),
    "tile_m": tuple(range(8, 257, 8)),
    "tile_n": (64, 128, 256),
    "tile_k": (64, 128, 256),
    "stages": (2, 3, 4, 5, 6, 8, 10, 12),
    "consumers": (1, 2),
    "pingpong": (False, True),
    "reallocate": (False, True),
    "ctas_per_sm": (1, 2, 3, 4),
}
#: Registers of a consumer's thread, where the producer's warpgroup hands over its own.
_REALLOCATED = 232
_GROUP_BYTES = 16  # of a group in the list that a CTA makes


def smem_bytes(g: Genome) -> int:
    """Dynamic shared memory in bytes: ring, staging, the list of groups, room to align."""
    warps = 4 * number(g, "consumers")
    stage = (number(g, "tile_m") + number(g, "tile_n")) * number(g, "tile_k") * 2
    staging = warps * min(number(g, "tile_m"), 64) * 32
    return 1024 + number(g, "stages") * stage + staging + (MAX_GROUPS + 1) * _GROUP_BYTES


def _threads(g: Genome) -> int:
    """Consumer warpgroups, and one producer warp or, where it hands over registers, four."""
    return 128 * number(g, "consumers") + (128 if g["reallocate"] else 32)


def _check(g: Genome) -> None:
    consumers, ctas = number(g, "consumers"), number(g, "ctas_per_sm")
    require(consumers == 2 or not g["pingpong"], "ping-pong takes two consumers")
    require(
        not g["reallocate"] or (consumers == 2 and ctas == 1),
        "registers are handed over to two consumers of a lone CTA",
    )
    rows = number(g, "tile_n") // (1 if g["pingpong"] else consumers)
    require(rows in (64, 128), "a consumer holds 64 or 128 rows of weights")
    room = _REALLOCATED if g["reallocate"] else register_room(_threads(g), ctas)
    accumulators = rows * number(g, "tile_m") // 128
    require(
        accumulators + 64 <= room,
        f"{accumulators} accumulators a thread do not fit {room} registers",
    )
    require(smem_bytes(g) <= min(smem_room(ctas), SMEM_LIMIT_BYTES), "shared memory")


def _macros(g: Genome) -> dict[str, int | str]:
    genes = ("tile_m", "tile_n", "tile_k", "stages", "consumers", "ctas_per_sm")
    return {
        **common_macros(g, *genes),
        "HGP_PINGPONG": int(bool(g["pingpong"])),
        "HGP_REALLOCATE": int(bool(g["reallocate"])),
        "HGP_MAX_GROUPS": MAX_GROUPS,
    }


def _record(g: Genome) -> dict[str, Any]:
    tokens, rows = number(g, "tile_m"), number(g, "tile_n")
    return {
        "param_layout": "tma2_grouped_v1",
        "block": _threads(g),
        "cluster": [1, 1, 1],
        "grid": {"tile_m": tokens, "tile_n": rows, "persistent": True},
        "smem_bytes": smem_bytes(g),
        "tma": [
            operand_map("a", tokens, False),
            operand_map("b", rows, mn_major(str(g["layout"]))[1]),
        ],
        "dims": dims(),
    }


OPERATORS = {
    "tile": ("tile_m", "tile_n"),
    "depth": ("tile_k", "stages"),
    "schedule": ("consumers", "pingpong", "reallocate", "ctas_per_sm"),
}

FAMILY = Family(
    "sm90_grouped",
    "sm90/grouped.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    exceptions=("lists_groups", "reads_groups"),
)
