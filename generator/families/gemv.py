"""Family sm90_gemv: weights streamed once, by each thread for itself, for up to 16 rows of A. Twin
of sm90/gemv.cuh."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families import computed
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
    "tokens": (8, 16),
    "mi": (1, 2, 4),
    "warps_n": (1, 2, 3, 4, 5, 6, 7, 8),
    "warps_k": (1, 2, 4, 8, 16),
    "unroll": (1, 2, 4, 8),
    "stages": (1, 2, 3, 4, 6, 8),
    "ahead": (False, True),
    "cluster_k": (1, 2, 4, 8),
    "streaming": (False, True),
    "fetch": (64, 128, 256),
}
REGISTERS = 512  # for a lane of each of an SM's four partitions; warps are dealt to them in turn
THREADS, CTAS = 2048, 32  # that an SM can hold
SMEM = 200 << 10  # bytes of an SM's shared memory to use: the rest caches activations


def _threads(g: Genome) -> int:
    return 32 * number(g, "warps_n") * number(g, "warps_k")


def _tile_n(g: Genome) -> int:
    return 16 * number(g, "mi") * number(g, "warps_n")


def _turn_bytes(g: Genome) -> int:
    """Weights that a CTA loads in one turn."""
    return _threads(g) * 32 * number(g, "mi") * number(g, "unroll")


def _registers(g: Genome) -> int:
    """What a thread needs, a multiple of 8: operands of a turn, accumulators, and addresses."""
    mi, blocks, unroll = number(g, "mi"), number(g, "tokens") // 8, number(g, "unroll")
    operands = unroll * (8 * mi + 4 * blocks) + 4 * mi * blocks
    return -(-(operands + 40) // 8) * 8


def _smem_bytes(g: Genome) -> int:
    tokens, tile_n = number(g, "tokens"), _tile_n(g)
    activations = _threads(g) * number(g, "unroll") * tokens // 8 * 16 if g["ahead"] else 0
    ring = number(g, "stages") * (_turn_bytes(g) + activations) if number(g, "stages") > 1 else 0
    sums = number(g, "warps_k") * tokens * (tile_n + 4) * 4
    inbox = tokens * tile_n * 4 + 16 if number(g, "cluster_k") > 1 else 0  # and its barrier
    return max(ring, sums) + inbox


def _ctas_per_sm(g: Genome) -> int:
    return min(
        REGISTERS // _registers(g) * 4 // (_threads(g) // 32),
        THREADS // _threads(g),
        SMEM // _smem_bytes(g),
        CTAS,
    )


def _check(g: Genome) -> None:
    threads = _threads(g)
    require(128 <= threads <= 512, "128 to 512 threads")
    require(_tile_n(g) <= 256, "at most 256 columns, or few SMs have work")
    require(g["layout"] == "nt" or g["mi"] != 1, "nn would load 4 bytes at a time")
    require(not g["ahead"] or g["stages"] != 1, "activations go ahead through a ring")
    registers = _registers(g)
    fits = registers <= 248 and REGISTERS // registers * 4 >= threads // 32
    require(fits, f"about {registers} registers a thread")
    require(_smem_bytes(g) <= SMEM, f"{_smem_bytes(g)} bytes of shared memory")


def _check_gated(_: Genome) -> None:
    """Any genome will do: a thread's columns are all of the gate, or all of what it lets through,
    and both are added where they are stored."""


def _macros(g: Genome) -> dict[str, int | str]:
    genes = ("tokens", "mi", "warps_n", "warps_k", "unroll", "stages", "cluster_k")
    return {
        **common_macros(g, *genes),
        "HGP_AHEAD": int(bool(g["ahead"])),
        "HGP_STREAMING": int(bool(g["streaming"])),
        "HGP_FETCH": f'"{g["fetch"]}"',
        "HGP_CTAS_PER_SM": _ctas_per_sm(g),
    }


def _record(g: Genome) -> dict[str, Any]:
    return {
        "param_layout": "ptr_v1",
        "block": _threads(g),
        "cluster": [1, 1, number(g, "cluster_k")],
        "grid": {"tile_m": number(g, "tokens"), "tile_n": _tile_n(g), "persistent": False},
        "smem_bytes": _smem_bytes(g),
        "tma": [],
        "dims": {
            **dims_ptr(_tile_n(g), n=16 if computed.epilogue_of(g) == computed.GATED else 8),
            "m": {"min": 1, "max": number(g, "tokens"), "multiple_of": 1},
        },
    }


OPERATORS = {
    "tile": ("mi", "warps_n"),
    "tokens": ("tokens",),
    "split": ("warps_k", "cluster_k"),
    "depth": ("unroll", "stages", "ahead"),
    "memory": ("streaming", "fetch"),
}

FAMILY = Family(
    "sm90_gemv",
    "sm90/gemv.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    gated=_check_gated,
    exceptions=("lays_tiles",),
)
