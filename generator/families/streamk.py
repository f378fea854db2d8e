"""Family sm90_streamk: a grid that fills the device and shares out, by k-tiles, the tiles that make
no whole wave. Twin of sm90/streamk.cuh."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families.base import (
    SMEM_LIMIT_BYTES,
    Family,
    Genome,
    InvalidGenome,
    ceil_div,
    common_macros,
    dims,
)
from hgemm_packs.generator.families.operand import LAYOUTS, mn_major, operand_map

SM_SMEM_BYTES = 233472  # of an SM; each of its CTAs takes 1 KB more than it asks for

GENES: dict[str, tuple[int | str | bool, ...]] = {
    "layout": LAYOUTS,
    "dtype": ("f16", "bf16"),
    "tile_m": (64, 128, 256),  # one consumer of 64 rows, or two
    "tile_n": (32, 64, 96, 128, 160, 192, 224, 256),
    "tile_k": (64, 128),
    "stages": (2, 3, 4, 5, 6, 7, 8, 10, 12),
    "waves": (1, 2),  # that are streamed, the last of them not whole
    "least": (1, 2, 4, 8),  # k-tiles that are worth a part of their own
    "ctas_per_sm": (1, 2, 3),
    "raster": ("m", "n"),
    "group": (1, 4, 8, 16),
    "epilogue": ("staged", "grouped"),
}


def _int(genome: Genome, gene: str) -> int:
    return int(genome[gene])


def _consumers(g: Genome) -> int:
    return min(2, _int(g, "tile_m") // 64)


def _staging_bytes(g: Genome) -> int:
    """Epilogue staging of all consumers, in bytes."""
    if g["epilogue"] == "grouped":
        return 0
    chunk = next(columns for columns in (64, 32) if _int(g, "tile_n") % columns == 0)
    return _consumers(g) * 64 * chunk * 2


def smem_bytes(g: Genome) -> int:
    """Dynamic shared memory in bytes: ring, staging, and room to align the ring to 1024; at least
    so much that an SM holds no more than `ctas_per_sm`. The grid is all CTAs that the device runs
    at once, and the order of a sum depends on it: both then follow from the genome and the number
    of SMs."""
    stage = (_int(g, "tile_m") + _int(g, "tile_n")) * _int(g, "tile_k") * 2
    needed = 1024 + _int(g, "stages") * stage + _staging_bytes(g)
    return max(needed, SM_SMEM_BYTES // (_int(g, "ctas_per_sm") + 1))


def _reallocate(g: Genome) -> bool:
    """Whether a whole producer warpgroup hands its registers to two consumers."""
    return bool(_consumers(g) == 2 and g["ctas_per_sm"] == 1)


def _threads(g: Genome) -> int:
    """Consumer warpgroups, and one producer warp or warpgroup."""
    return _consumers(g) * 128 + (128 if _reallocate(g) else 32)


def _registers(g: Genome) -> int:
    """Registers a consumer thread can have: four partitions of 512 a lane, in steps of 8."""
    if _reallocate(g):
        return 232
    warps = ceil_div(_threads(g) // 32 * _int(g, "ctas_per_sm"), 4)
    return min(255, 512 // warps // 8 * 8)


def _accumulators(g: Genome) -> int:
    """Registers a thread that hold its sums."""
    return _int(g, "tile_m") // _consumers(g) * _int(g, "tile_n") // 128


def _loads(g: Genome) -> int:
    """Loads of 16 bytes that a thread has registers for when it adds a part."""
    return max(2, (_registers(g) - _accumulators(g) - 48) // 4)


def _require(ok: bool, text: str) -> None:
    if not ok:
        raise InvalidGenome(f"sm90_streamk: {text}")


def _check(g: Genome) -> None:
    room, accumulators = _registers(g), _accumulators(g)
    _require(
        accumulators + 48 <= room,
        f"{accumulators} accumulators a thread do not fit {room} registers",
    )
    limit = min(SMEM_LIMIT_BYTES - 512, SM_SMEM_BYTES // _int(g, "ctas_per_sm") - 1536)
    _require(smem_bytes(g) <= limit, "shared memory")
    b_transposed = mn_major(str(g["layout"]))[1]
    _require(g["epilogue"] != "grouped" or not b_transposed, "grouped epilogue is for nt and tt")


def _macros(g: Genome) -> dict[str, int | str]:
    genes = ("tile_m", "tile_n", "tile_k", "stages", "waves", "least", "ctas_per_sm", "group")
    return {
        **common_macros(g),
        **{f"HGP_{gene.upper()}": _int(g, gene) for gene in genes},
        "HGP_REALLOCATE": int(_reallocate(g)),
        "HGP_LOADS": _loads(g),
        "HGP_RASTER_N": int(g["raster"] == "n"),
        "HGP_EPILOGUE_GROUPED": int(g["epilogue"] == "grouped"),
    }


def _record(g: Genome) -> dict[str, Any]:
    m, n, grouped = _int(g, "tile_m"), _int(g, "tile_n"), g["epilogue"] == "grouped"
    a_transposed, b_transposed = mn_major(str(g["layout"]))
    return {
        "param_layout": "tma2_ws_v1",
        "block": _threads(g),
        "cluster": [1, 1, 1],
        "grid": {"tile_m": m, "tile_n": n, "persistent": True},
        "cooperative": True,
        "workspace_bytes": m * n * 4,  # the part that a CTA leaves
        "smem_bytes": smem_bytes(g),
        "tma": [
            operand_map("a", m, a_transposed),
            operand_map("b", n, b_transposed, row_group=32 if grouped else 0),
        ],
        "dims": dims(m=8 if a_transposed else 1, n=32 if grouped else 8),
    }


OPERATORS = {
    "tile": ("tile_m", "tile_n"),
    "depth": ("tile_k", "stages", "ctas_per_sm"),
    "stream": ("waves", "least"),
    "raster": ("raster", "group"),
    "epilogue": ("epilogue",),
}

FAMILY = Family("sm90_streamk", "sm90/streamk.cuh", GENES, _check, _macros, _record, OPERATORS)
