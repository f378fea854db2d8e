"""Family sm90_wgmma: TMA + wgmma, warp-specialised, persistent or one tile a CTA. Twin of
sm90/wgmma.cuh."""

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
    LAYOUTS,
    check_gated,
    mn_major,
    operand_map,
    row_group_of,
)

GENES: dict[str, tuple[int | str | bool, ...]] = {
    "layout": LAYOUTS,
    "dtype": ("f16", "bf16"),
    "tile_m": (64, 128, 256),
    "tile_n": (32, 64, 96, 128, 160, 192, 224, 256),
    "tile_k": (64, 128),
    "stages": (2, 3, 4, 5, 6, 7, 8, 10, 12),
    "consumers": (1, 2),
    "schedule": ("cooperative", "pingpong"),
    "cluster_m": (1, 2, 4),
    "cluster_n": (1, 2, 4),
    "split_k": (1, 2, 3, 4, 5, 6, 8),
    "persistent": (False, True),
    "ctas_per_sm": (1, 2, 3, 4),
    "raster": ("m", "n"),
    "group": (1, 2, 4, 8, 16, 64),
    "epilogue": ("staged", "grouped", "bulk"),
    "bulk_blocks": (1, 2),  # 64 x 64 blocks that are stored together
    "streaming": (False, True),
    **AHEAD,
}


def _stage_bytes(g: Genome) -> int:
    return (number(g, "tile_m") + number(g, "tile_n")) * number(g, "tile_k") * 2


def _staging_bytes(g: Genome) -> int:
    """Epilogue staging of all consumers, in bytes."""
    warps = 4 * number(g, "consumers")
    if g["epilogue"] == "grouped":
        return 0
    if g["epilogue"] == "bulk":
        return warps * 4096 * number(g, "bulk_blocks")
    columns = number(g, "tile_n") // number(g, "split_k")
    return warps * 16 * next(chunk for chunk in (64, 32, 16) if columns % chunk == 0) * 2


def smem_bytes(g: Genome) -> int:
    """Dynamic shared memory in bytes: ring, staging, and room to align the ring to 1024."""
    inbox = number(g, "tile_m") * number(g, "tile_n") * 4 if number(g, "split_k") > 1 else 0
    return 1024 + number(g, "stages") * _stage_bytes(g) + _staging_bytes(g) + inbox


def _reallocate(g: Genome) -> bool:
    """Whether a whole producer warpgroup hands its registers to two consumers."""
    return bool(g["consumers"] == 2 and g["ctas_per_sm"] == 1)


def _threads(g: Genome) -> int:
    """Consumer warpgroups, and a producer warpgroup, or a producer warp and, in kernels that read
    ahead, one that lets dependents start."""
    ahead = 64 if g["reads_ahead"] else 32
    return number(g, "consumers") * 128 + (128 if _reallocate(g) else ahead)


def _registers(g: Genome) -> int:
    """Registers a consumer thread can have."""
    return 232 if _reallocate(g) else register_room(_threads(g), number(g, "ctas_per_sm"))


def _check(g: Genome) -> None:
    check_ahead(g)
    m, n, consumers = number(g, "tile_m"), number(g, "tile_n"), number(g, "consumers")
    pingpong = g["schedule"] == "pingpong"
    rows = m if pingpong else m // consumers
    require(not pingpong or consumers == 2, "pingpong needs two consumers")
    require(not pingpong or bool(g["persistent"]), "pingpong needs a persistent grid")
    require(rows in (64, 128), "a consumer holds 64 or 128 rows")
    require(
        not g["reads_ahead"] or not g["persistent"],
        "a persistent grid leaves no room ahead",
    )
    require(
        not g["reads_ahead"] or number(g, "cluster_m") * number(g, "cluster_n") == 1,
        "what reads ahead shares no operand",
    )
    accumulators = rows * n // 128
    room = _registers(g)
    require(
        accumulators + 40 <= room,
        f"{accumulators} accumulators a thread do not fit {room} registers",
    )
    _check_split(g, rows, room)
    require(smem_bytes(g) <= smem_room(number(g, "ctas_per_sm")), "shared memory")
    b_transposed = mn_major(str(g["layout"]))[1]
    require(g["epilogue"] != "grouped" or not b_transposed, "grouped epilogue is for nt and tt")
    blocks = number(g, "bulk_blocks")
    require(
        g["epilogue"] != "bulk" or n % (64 * blocks) == 0,
        "bulk epilogue stores 64 columns a block",
    )
    require(g["epilogue"] == "bulk" or blocks == 1, "blocks are stored by the bulk epilogue")
    require(number(g, "cluster_m") * number(g, "cluster_n") <= 4, "clusters of at most four")
    slice_rows = 32 if g["epilogue"] == "grouped" else 8
    require(
        b_transposed or n % (slice_rows * number(g, "cluster_m")) == 0,
        "B slices of whole atoms",
    )
    require(bool(g["persistent"]) or g["group"] != 64, "banding by 64 is for persistent grids")


def _check_split(g: Genome, rows: int, room: int) -> None:
    split = number(g, "split_k")
    if split == 1:
        return
    share = 32 if g["epilogue"] == "grouped" else 16
    require(number(g, "cluster_m") * number(g, "cluster_n") == 1, "split_k takes the whole cluster")
    require(not g["persistent"] and rows == 64, "split_k reduces once, 64 rows a consumer")
    require(g["epilogue"] != "bulk", "split_k stores shares, not whole tiles")
    require(number(g, "tile_n") % (split * share) == 0, f"a share is a multiple of {share} columns")
    accumulators = number(g, "tile_n") // 2
    sums = accumulators // split  # beside what the share was before, which stays in registers
    require(
        accumulators + 2 * sums + 24 <= room,
        f"{sums} sums beside {accumulators} accumulators a thread do not fit {room} registers",
    )


def _check_gated(g: Genome) -> None:
    check_gated(g)
    n, blocks = number(g, "tile_n"), number(g, "bulk_blocks")
    require(
        g["epilogue"] != "bulk" or n % (128 * blocks) == 0,
        "bulk epilogue stores 64 columns of C a block",
    )
    require(n % (16 * number(g, "cluster_m")) == 0, "B slices of whole groups of 16")
    require(n % (32 * number(g, "split_k")) == 0, "a share is a multiple of 16 columns of C")


def _macros(g: Genome) -> dict[str, int | str]:
    genes = (
        "tile_m",
        "tile_n",
        "tile_k",
        "stages",
        "consumers",
        "cluster_m",
        "cluster_n",
        "split_k",
        "ctas_per_sm",
        "group",
        "bulk_blocks",
    )
    return {
        **common_macros(g, *genes),
        "HGP_REALLOCATE": int(_reallocate(g)),
        "HGP_PERSISTENT": int(bool(g["persistent"])),
        "HGP_PINGPONG": int(g["schedule"] == "pingpong"),
        "HGP_RASTER_N": int(g["raster"] == "n"),
        "HGP_EPILOGUE_BULK": int(g["epilogue"] == "bulk"),
        "HGP_EPILOGUE_GROUPED": int(g["epilogue"] == "grouped"),
        "HGP_STREAMING": int(bool(g["streaming"])),
        **ahead_macros(g),
    }


def _record(g: Genome) -> dict[str, Any]:
    m, n = number(g, "tile_m"), number(g, "tile_n")
    cluster_m, cluster_n = number(g, "cluster_m"), number(g, "cluster_n")
    row_group, bulk = row_group_of(g), g["epilogue"] == "bulk"
    a_transposed, b_transposed = mn_major(str(g["layout"]))
    maps = [
        operand_map("a", m, a_transposed, slices=cluster_n),
        operand_map("b", n, b_transposed, slices=cluster_m, row_group=row_group),
    ]
    sizes = dims(m=8 if a_transposed else 1, n=row_group or 8)
    if g["split_k"] != 1:  # every CTA of a cluster has something to multiply
        sizes["k"]["min"] = number(g, "split_k") * number(g, "tile_k")
    if bulk:
        maps.append(operand_map("c", 64, False))
    return {
        "param_layout": "tma3_v1" if bulk else "tma2_v1",
        "block": _threads(g),
        "cluster": [cluster_m, cluster_n, number(g, "split_k")],
        "grid": {"tile_m": m, "tile_n": n, "persistent": bool(g["persistent"])},
        "smem_bytes": smem_bytes(g),
        "tma": maps,
        "dims": sizes,
        **ahead_fields(g),
    }


OPERATORS = {
    "tile": ("tile_m", "tile_n"),
    "depth": ("tile_k", "stages"),
    "schedule": ("schedule", "consumers", "persistent", "ctas_per_sm"),
    "cluster": ("cluster_m", "cluster_n"),
    "split": ("split_k",),
    "raster": ("raster", "group"),
    "epilogue": ("epilogue", "bulk_blocks", "streaming"),
    "ahead": tuple(AHEAD),
}

FAMILY = Family(
    "sm90_wgmma",
    "sm90/wgmma.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    in_order=True,
    gated=_check_gated,
    exceptions=("lays_tiles", "goes_round"),
)
