"""Family sm90_elements: fragments loaded element by element, for small problems that are aligned to
nothing. Twin of sm90/elements.cuh."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families.base import (
    Family,
    Genome,
    common_macros,
    dims_ptr,
    number,
    require,
)
from hgemm_packs.generator.families.direct import threads, tile
from hgemm_packs.generator.families.operand import LAYOUTS

GENES: dict[str, tuple[int | str | bool, ...]] = {
    "layout": LAYOUTS,
    "dtype": ("f16", "bf16"),
    "mi": (1, 2, 4),
    "ni": (1, 2, 4, 8),
    "warps_m": (1, 2, 4),
    "warps_n": (1, 2, 4),
    "warps_k": (1, 2, 4, 8, 16),
    "unroll": (1, 2, 4),
    "cluster_k": (1, 2, 4, 8, 16),
}


def _smem_bytes(g: Genome) -> int:
    """Parts of the warps; with clusters also what the other CTAs send, and its barrier."""
    m, n = tile(g)
    row = n + (40 - n % 32) % 32
    sums = 4 * number(g, "warps_k") * m * row + 16
    return sums + (0 if g["cluster_k"] == 1 else m * n * 4 + 16)


def _registers(g: Genome) -> int:
    """What a thread needs at most: accumulators, elements in flight, and their addresses."""
    mi, ni = number(g, "mi"), number(g, "ni")
    return 4 * mi * ni + number(g, "unroll") * (8 * mi + 4 * ni) + 2 * (2 * mi + ni) + 40


def _check(g: Genome) -> None:
    m, n = tile(g)
    require(threads(g) <= 512, "at most 512 threads")
    registers = _registers(g)
    # Of 216 and more, each spilled in a layout at least.
    require(registers <= min(200, 65536 // threads(g)), f"about {registers} registers a thread")
    require(g["cluster_k"] == 1 or number(g, "warps_k") >= 4, "warps split K before CTAs do")
    require(g["cluster_k"] == 1 or m * n <= 1024, "a smaller tile beats a cluster that shares it")


def _macros(g: Genome) -> dict[str, int | str]:
    genes = ("mi", "ni", "warps_m", "warps_n", "warps_k", "unroll", "cluster_k")
    return common_macros(g, *genes)


def _record(g: Genome) -> dict[str, Any]:
    m, n = tile(g)
    return {
        "param_layout": "ptr_v1",
        "block": threads(g),
        "cluster": [1, 1, number(g, "cluster_k")],
        "grid": {"tile_m": m, "tile_n": n, "persistent": False},
        "smem_bytes": _smem_bytes(g),
        "tma": [],
        "align": dict.fromkeys("abc", 2),
        "dims": dims_ptr(n, m=1, n=1, k=1),
    }


OPERATORS = {
    "tile": ("mi", "ni"),
    "warps": ("warps_m", "warps_n"),
    "split": ("warps_k", "cluster_k"),
    "depth": ("unroll",),
}

FAMILY = Family(
    "sm90_elements",
    "sm90/elements.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    exceptions=("asks_alignment",),
)
