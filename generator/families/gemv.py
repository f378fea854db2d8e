"""Family sm90_gemv: weights streamed once, by each thread for itself, for up to 16 rows of A. Twin
of sm90/gemv.cuh."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families.base import (
    Family,
    Genome,
    InvalidGenome,
    common_macros,
    dims_ptr,
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


def _g(genome: Genome, gene: str) -> int:
    return int(genome[gene])


def _threads(g: Genome) -> int:
    return 32 * _g(g, "warps_n") * _g(g, "warps_k")


def _tile_n(g: Genome) -> int:
    return 16 * _g(g, "mi") * _g(g, "warps_n")


def _turn_bytes(g: Genome) -> int:
    """Weights that a CTA loads in one turn."""
    return _threads(g) * 32 * _g(g, "mi") * _g(g, "unroll")


def _registers(g: Genome) -> int:
    """What a thread needs, a multiple of 8: operands of a turn, accumulators, and addresses."""
    mi, blocks, unroll = _g(g, "mi"), _g(g, "tokens") // 8, _g(g, "unroll")
    operands = unroll * (8 * mi + 4 * blocks) + 4 * mi * blocks
    return -(-(operands + 40) // 8) * 8


def _smem_bytes(g: Genome) -> int:
    tokens, tile_n = _g(g, "tokens"), _tile_n(g)
    activations = _threads(g) * _g(g, "unroll") * tokens // 8 * 16 if g["ahead"] else 0
    ring = _g(g, "stages") * (_turn_bytes(g) + activations) if _g(g, "stages") > 1 else 0
    sums = _g(g, "warps_k") * tokens * (tile_n + 4) * 4
    inbox = tokens * tile_n * 4 + 16 if _g(g, "cluster_k") > 1 else 0  # and its barrier
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
    if not 128 <= threads <= 512:
        raise InvalidGenome("sm90_gemv: 128 to 512 threads")
    if _tile_n(g) > 256:
        raise InvalidGenome("sm90_gemv: at most 256 columns, or few SMs have work")
    if g["layout"] == "nn" and g["mi"] == 1:
        raise InvalidGenome("sm90_gemv: nn would load 4 bytes at a time")
    if g["ahead"] and g["stages"] == 1:
        raise InvalidGenome("sm90_gemv: activations go ahead through a ring")
    registers = _registers(g)
    if registers > 248 or REGISTERS // registers * 4 < threads // 32:
        raise InvalidGenome(f"sm90_gemv: about {registers} registers a thread")
    if _smem_bytes(g) > SMEM:
        raise InvalidGenome(f"sm90_gemv: {_smem_bytes(g)} bytes of shared memory")


def _macros(g: Genome) -> dict[str, int | str]:
    genes = ("tokens", "mi", "warps_n", "warps_k", "unroll", "stages", "cluster_k")
    return {
        **common_macros(g),
        **{f"HGP_{gene.upper()}": _g(g, gene) for gene in genes},
        "HGP_AHEAD": int(bool(g["ahead"])),
        "HGP_STREAMING": int(bool(g["streaming"])),
        "HGP_FETCH": f'"{g["fetch"]}"',
        "HGP_CTAS_PER_SM": _ctas_per_sm(g),
    }


def _record(g: Genome) -> dict[str, Any]:
    return {
        "param_layout": "ptr_v1",
        "block": _threads(g),
        "cluster": [1, 1, _g(g, "cluster_k")],
        "grid": {"tile_m": _g(g, "tokens"), "tile_n": _tile_n(g), "persistent": False},
        "smem_bytes": _smem_bytes(g),
        "tma": [],
        "dims": {**dims_ptr(_tile_n(g)), "m": {"min": 1, "max": _g(g, "tokens"), "multiple_of": 1}},
    }


OPERATORS = {
    "tile": ("mi", "warps_n"),
    "tokens": ("tokens",),
    "split": ("warps_k", "cluster_k"),
    "depth": ("unroll", "stages", "ahead"),
    "memory": ("streaming", "fetch"),
}

FAMILY = Family("sm90_gemv", "sm90/gemv.cuh", GENES, _check, _macros, _record, OPERATORS)
