"""Family sm90_splitk: few tiles and a deep K, which is shared out over the CTAs of a cluster and
over clusters. Twin of sm90/splitk.cuh."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families.base import (
    AHEAD,
    LARGEST_SIDE,
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
    "tile_m": (64, 128),  # 64 rows a consumer warpgroup
    "tile_n": (32, 64, 96, 128, 192, 256),
    "tile_k": (64, 128),
    "stages": (2, 3, 4, 5, 6, 7, 8, 10, 12),
    "split": (1, 2, 3, 4, 6, 8, 16),
    "slices": (1, 2, 3, 4, 6, 8, 12, 16),
    "run": (0, 4),  # neighbouring tiles before their next slice; 0: all tiles
    "ctas_per_sm": (1, 2, 3),
    "epilogue": ("staged", "grouped"),
    **AHEAD,
}


def _parts(g: Genome) -> int:
    """CTAs that share a tile, each with a part of K."""
    return number(g, "split") * number(g, "slices")


def _share(g: Genome) -> int:
    """Columns that a cluster leaves to a CTA."""
    return number(g, "tile_n") // number(g, "split")


def _unit(g: Genome) -> int:
    """Columns of the product that an epilogue stores at a time."""
    return 32 if row_group_of(g) else 16  # gated: 16 of C


def _across(g: Genome) -> int:
    """Slices that store columns of their own; 0 where slices cannot have equal parts. More slices
    than these take turns by warps, of which a warpgroup has four."""
    slices = number(g, "slices")
    turns = (n for n in (1, 2, 4) if slices % n == 0 and _share(g) * n % (slices * _unit(g)) == 0)
    return slices // next(turns, slices + 1)


def _stored_columns(g: Genome) -> int:
    """Columns that a CTA stores."""
    return _share(g) // max(1, _across(g))


def _ring_bytes(g: Genome) -> int:
    return (
        number(g, "stages") * (number(g, "tile_m") + number(g, "tile_n")) * number(g, "tile_k") * 2
    )


def _inbox_bytes(g: Genome) -> int:
    return number(g, "tile_m") * number(g, "tile_n") * 4 if number(g, "split") > 1 else 0


def _staging_bytes(g: Genome) -> int:
    """Epilogue staging of all consumers, in bytes."""
    if g["epilogue"] == "grouped":
        return 0
    chunk = next(columns for columns in (64, 32, 16) if _stored_columns(g) % columns == 0)
    return number(g, "tile_m") * chunk * 2


def _room_bytes(g: Genome) -> int:
    """Dynamic shared memory that a CTA can have."""
    return smem_room(number(g, "ctas_per_sm"))


def _overlaid(g: Genome) -> bool:
    """Whether the cluster's inbox lies over the ring: only where there is no room beside it, for
    the cluster must then come together after the products."""
    apart = 1024 + _ring_bytes(g) + _inbox_bytes(g) + _staging_bytes(g)
    return _inbox_bytes(g) > 0 and apart > _room_bytes(g)


def smem_bytes(g: Genome) -> int:
    """Dynamic shared memory in bytes: ring, inbox, staging, and room to align the ring to 1024."""
    inbox = 0 if _overlaid(g) else _inbox_bytes(g)
    return 1024 + _ring_bytes(g) + inbox + _staging_bytes(g)


def _reallocate(g: Genome) -> bool:
    """Whether a whole producer warpgroup hands its registers to two consumers."""
    return bool(g["tile_m"] == 128 and g["ctas_per_sm"] == 1 and number(g, "tile_n") > 192)


def _threads(g: Genome) -> int:
    """Consumer warpgroups, and a producer warpgroup, or a producer warp and, in kernels that read
    ahead, one that lets dependents start."""
    ahead = 64 if g["reads_ahead"] else 32
    return number(g, "tile_m") * 2 + (128 if _reallocate(g) else ahead)


def _registers(g: Genome) -> int:
    """Registers a consumer thread can have."""
    return 232 if _reallocate(g) else register_room(_threads(g), number(g, "ctas_per_sm"))


def _loads(g: Genome) -> int:
    """Loads of 16 bytes that a thread has registers for when it adds the slices."""
    others = 40 + 2 * number(g, "slices")  # addresses, mostly
    return max(8, (_registers(g) - _stored_columns(g) // 2 - others) // 4)


def _check(g: Genome) -> None:
    check_ahead(g)
    room, accumulators = _registers(g), number(g, "tile_n") // 2
    require(_parts(g) > 1, "K is shared by two CTAs at least")
    require(_parts(g) <= 64, "K is shared by 64 CTAs at most")
    alone = number(g, "split") == 1 and number(g, "slices") > 1
    require(g["run"] == 0 or alone, "runs of tiles are for slices without a split")
    require(
        accumulators + 40 <= room,
        f"{accumulators} accumulators a thread do not fit {room} registers",
    )
    require(
        _stored_columns(g) // 2 + 5 * number(g, "slices") + 16
        <= room,  # 4 of a part and its address
        f"{g['slices']} parts beside a share do not fit {room} registers",
    )
    grouped = g["epilogue"] == "grouped"
    require(not grouped or not mn_major(str(g["layout"]))[1], "grouped epilogue is for nt and tt")
    require(
        number(g, "tile_n") % (number(g, "split") * _unit(g)) == 0,
        f"a share is a multiple of {_unit(g)} columns",
    )
    require(_across(g) > 0, f"{g['slices']} slices cannot have equal parts of {_share(g)} columns")
    require(smem_bytes(g) <= _room_bytes(g), "shared memory")
    require(not _overlaid(g) or _inbox_bytes(g) <= _ring_bytes(g), "the ring holds the inbox")


def _macros(g: Genome) -> dict[str, int | str]:
    genes = ("tile_m", "tile_n", "tile_k", "stages", "split", "slices", "run", "ctas_per_sm")
    return {
        **common_macros(g, *genes),
        "HGP_ACROSS": _across(g),
        "HGP_OVERLAID": int(_overlaid(g)),
        "HGP_REALLOCATE": int(_reallocate(g)),
        "HGP_LOADS": _loads(g),
        "HGP_EPILOGUE_GROUPED": int(g["epilogue"] == "grouped"),
        **ahead_macros(g),
    }


def _record(g: Genome) -> dict[str, Any]:
    m, n = number(g, "tile_m"), number(g, "tile_n")
    slices, row_group = number(g, "slices"), row_group_of(g)
    a_transposed, b_transposed = mn_major(str(g["layout"]))
    sizes = dims(m=8 if a_transposed else 1, n=row_group or 8)
    sizes["m"]["max"] = sizes["n"]["max"] = LARGEST_SIDE
    sizes["k"]["min"] = _parts(g) * number(g, "tile_k")  # every CTA has something to multiply
    grid: dict[str, Any] = {"tile_m": m, "tile_n": n, "persistent": False}
    workspace: dict[str, Any] = {}
    if slices > 1:
        grid["slices"] = slices
        workspace["workspace_bytes"] = m * _share(g) * 4
        workspace["cooperative"] = True
    return {
        "param_layout": "tma2_ws_v2" if slices > 1 else "tma2_v1",
        "block": _threads(g),
        "cluster": [1, 1, number(g, "split")],
        "grid": grid,
        "smem_bytes": smem_bytes(g),
        "tma": [
            operand_map("a", m, a_transposed),
            operand_map("b", n, b_transposed, row_group=row_group),
        ],
        "dims": sizes,
        **workspace,
        **ahead_fields(g),
    }


OPERATORS = {
    "tile": ("tile_m", "tile_n"),
    "depth": ("tile_k", "stages", "ctas_per_sm"),
    "split": ("split", "slices", "run"),
    "epilogue": ("epilogue",),
    "ahead": tuple(AHEAD),
}

FAMILY = Family(
    "sm90_splitk",
    "sm90/splitk.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    gated=check_gated,
    exceptions=("lays_tiles",),
)
