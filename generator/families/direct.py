"""Family sm90_direct: no shared-memory operands, warps and CTAs split K. For problems of about 2
us. Twin of sm90/direct.cuh."""

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

GENES: dict[str, tuple[int | str | bool, ...]] = {
    "layout": ("nn", "nt"),
    "dtype": ("f16", "bf16"),
    "mi": (1, 2),
    "ni": (1, 2, 4, 8),
    "warps_m": (1, 2, 4),
    "warps_n": (1, 2, 4),
    "warps_k": (1, 2, 4, 8, 16),
    "unroll": (1, 2, 4, 8),
    "exact": (False, True),
    "fixed_k": (0, 64, 128, 256, 512, 1024, 2048),  # K of one CTA; 0: known at run time
    "cluster_k": (1, 2, 4, 8, 16),
}


def tile(g: Genome) -> tuple[int, int]:
    """Rows and columns of C that a CTA's warps have."""
    return 16 * number(g, "mi") * number(g, "warps_m"), 8 * number(g, "ni") * number(g, "warps_n")


def threads(g: Genome) -> int:
    """Of a CTA."""
    return 32 * number(g, "warps_m") * number(g, "warps_n") * number(g, "warps_k")


def _window(g: Genome) -> int:
    """K that a CTA has in flight."""
    return 32 * number(g, "warps_k") * number(g, "unroll")


def _smem_bytes(g: Genome) -> int:
    """Parts of the warps; with clusters also what the other CTAs send, and its barrier."""
    m, n = tile(g)
    pad = 4 if number(g, "ni") >= 4 else 0 if g["warps_n"] == 1 else 8 * number(g, "ni")
    parts = 0 if g["warps_k"] == 1 else number(g, "warps_k") * m * (n + pad) * 4
    return parts + (0 if g["cluster_k"] == 1 else m * n * 4 + 16)


def _registers(g: Genome) -> int:
    """What a thread needs at most, as seen over the space: more than the chains of accumulators and
    the operands in flight in a loop, whose addresses and next operands live beside them."""
    mi, ni = number(g, "mi"), number(g, "ni")
    chains = 2 if mi * ni <= 4 else 1
    held = 4 * mi * ni * chains + number(g, "unroll") * (8 * mi + 4 * ni)
    if g["fixed_k"] == _window(g):
        return held + 20
    return held + held // 3 + (0 if g["exact"] else 24)


def _check(g: Genome) -> None:
    require(threads(g) <= 512, "at most 512 threads")
    require(g["ni"] != 1 or g["layout"] == "nt", "nn loads at least two columns")
    registers = _registers(g)
    require(registers <= min(255, 65536 // threads(g)), f"about {registers} registers a thread")
    require(g["cluster_k"] == 1 or number(g, "warps_k") >= 4, "warps split K before CTAs do")
    m, n = tile(g)
    require(g["cluster_k"] == 1 or m * n <= 1024, "a smaller tile beats a cluster that shares it")
    fixed, window = number(g, "fixed_k"), _window(g)
    whole = fixed % window == 0 and fixed <= 4 * window
    require(whole, "fixed_k is one to four times the K in flight")
    require(not fixed or bool(g["exact"]), "with fixed_k the kernel is exact")


def _macros(g: Genome) -> dict[str, int | str]:
    genes = ("mi", "ni", "warps_m", "warps_n", "warps_k", "unroll", "fixed_k", "cluster_k")
    return {
        **common_macros(g, *genes),
        "HGP_EXACT": int(bool(g["exact"])),
    }


def _dims(g: Genome) -> dict[str, dict[str, int]]:
    whole_k = number(g, "cluster_k") * (number(g, "fixed_k") or _window(g))
    m, n = tile(g)
    sizes = dims_ptr(n, m, n, whole_k) if g["exact"] else dims_ptr(n)
    if g["fixed_k"]:
        sizes["k"] = {"min": whole_k, "max": whole_k, "multiple_of": whole_k}
    return sizes


def _record(g: Genome) -> dict[str, Any]:
    m, n = tile(g)
    return {
        "param_layout": "ptr_v1",
        "block": threads(g),
        "cluster": [1, 1, number(g, "cluster_k")],
        "grid": {"tile_m": m, "tile_n": n, "persistent": False},
        "smem_bytes": _smem_bytes(g),
        "tma": [],
        "dims": _dims(g),
    }


OPERATORS = {
    "tile": ("mi", "ni"),
    "warps": ("warps_m", "warps_n"),
    "split": ("warps_k", "cluster_k"),
    "depth": ("unroll", "fixed_k"),
    "exact": ("exact",),
}

FAMILY = Family(
    "sm90_direct",
    "sm90/direct.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    exceptions=("lays_tiles",),
)
