"""Family sm90_tokens: weights on wgmma's rows, tokens in steps of 8 on its columns, with the
schedules of sm90_wgmma. Twin of sm90/tokens.cuh."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families.base import (
    AHEAD,
    Family,
    Genome,
    ahead_fields,
    ahead_macros,
    ceil_div,
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
    "tile_m": tuple(range(8, 257, 8)),
    "tile_n": (64, 128, 192, 256, 384),
    "tile_k": (64, 128),
    "stages": (2, 3, 4, 5, 6, 7, 8, 10, 12),
    "consumers": (1, 2, 3),
    "schedule": ("cooperative", "pingpong"),
    "cluster_m": (1, 2, 4),
    "cluster_n": (1, 2, 4),
    "split_k": (1, 2, 4, 8),
    "persistent": (False, True),
    "ctas_per_sm": (1, 2),
    "raster": ("m", "n"),
    "group": (1, 2, 4, 8, 16, 64),
    "epilogue": ("staged", "rows", "bulk"),
    "buffers": (1, 2),  # of what is staged, in turn
    "streaming": (False, True),
    **AHEAD,
}
#: Registers of a producer thread and of a consumer's where a producer warpgroup hands its own over,
#: by the number of consumers.
HANDED_OVER = {2: (40, 232), 3: (32, 160)}
#: A block of four warpgroups has 128 registers a thread, enough for one tensor instruction with 100
#: sums, which takes 26 more.
MOST_OF_THREE = 200
LARGEST_BOX = 256  # rows
CHUNK = 64  # tokens that are staged at a time, but for bulk stores


def _token_slice(g: Genome) -> int:
    """Tokens that a CTA loads: whole atoms of 8."""
    return ceil_div(number(g, "tile_m"), 8 * number(g, "cluster_n")) * 8


def _weight_boxes(g: Genome) -> int:
    """Boxes in which a CTA loads its slice of the weights, where a row of them is one of K."""
    if mn_major(str(g["layout"]))[1]:
        return 1
    return ceil_div(number(g, "tile_n") // number(g, "cluster_m"), LARGEST_BOX)


def _staging_bytes(g: Genome) -> int:
    """Epilogue staging of all consumers, in bytes: 64 columns of each, or 32 of a gated tile."""
    tokens = number(g, "tile_m")
    chunk = tokens if g["epilogue"] == "bulk" else min(tokens, CHUNK)
    row = 64 if row_group_of(g) else 128
    return number(g, "consumers") * number(g, "buffers") * chunk * row


def smem_bytes(g: Genome) -> int:
    """Dynamic shared memory in bytes: ring, inbox of the reduction, staging, room to align."""
    m, n = number(g, "tile_m"), number(g, "tile_n")
    stage = (m + n) * number(g, "tile_k") * 2
    inbox = m * n * 4 if number(g, "split_k") > 1 else 0
    return 1024 + number(g, "stages") * stage + inbox + _staging_bytes(g)


def _reallocate(g: Genome) -> bool:
    """Whether a whole producer warpgroup hands its registers to the consumers."""
    return number(g, "consumers") > 1 and g["ctas_per_sm"] == 1


def _threads(g: Genome) -> int:
    """Consumer warpgroups, and a producer warpgroup, or a producer warp and, in kernels that read
    ahead, one that lets dependents start."""
    ahead = 64 if g["reads_ahead"] else 32
    return number(g, "consumers") * 128 + (128 if _reallocate(g) else ahead)


def _registers(g: Genome) -> int:
    """Registers a consumer thread can have."""
    if _reallocate(g):
        return HANDED_OVER[number(g, "consumers")][1]
    return register_room(_threads(g), number(g, "ctas_per_sm"))


def _rows(g: Genome) -> int:
    """Rows of weights that a consumer holds."""
    return number(g, "tile_n") // (1 if g["schedule"] == "pingpong" else number(g, "consumers"))


def accumulators(g: Genome) -> int:
    """Of a consumer thread."""
    return _rows(g) * number(g, "tile_m") // 128


def _check(g: Genome) -> None:
    check_ahead(g)
    consumers, persistent = number(g, "consumers"), bool(g["persistent"])
    pingpong = g["schedule"] == "pingpong"
    cluster = number(g, "cluster_m") * number(g, "cluster_n")
    require(not pingpong or consumers == 2, "pingpong needs two consumers")
    require(not pingpong or persistent, "pingpong needs a persistent grid")
    rows = _rows(g)
    require(
        rows % 64 == 0 and rows * (1 if pingpong else consumers) == g["tile_n"],
        "a consumer holds a multiple of 64 rows of weights",
    )
    require(not g["reads_ahead"] or not persistent, "a persistent grid leaves no room ahead")
    require(not g["reads_ahead"] or cluster == 1, "what reads ahead shares no operand")
    room, held = _registers(g), accumulators(g)
    require(held + 40 <= room, f"{held} accumulators a thread do not fit {room} registers")
    require(
        consumers < 3 or number(g, "tile_m") <= MOST_OF_THREE,
        f"three consumers multiply {MOST_OF_THREE} tokens at most",
    )
    _check_split(g, room)
    require(smem_bytes(g) <= smem_room(number(g, "ctas_per_sm")), "shared memory")
    require(cluster <= 4, "clusters of at most four")
    require(number(g, "tile_m") >= 8 * number(g, "cluster_n"), "token slices of whole atoms of 8")
    require(
        not mn_major(str(g["layout"]))[0] or number(g, "tile_m") % 32 == 0,
        "tokens of tn and tt come in steps of 32",
    )
    require(g["epilogue"] != "staged" or g["buffers"] == 1, "warps stage in one buffer")
    require(persistent or g["group"] != 64, "banding by 64 is for persistent grids")


def _check_split(g: Genome, room: int) -> None:
    split, held = number(g, "split_k"), accumulators(g)
    if split == 1:
        return
    require(number(g, "cluster_m") * number(g, "cluster_n") == 1, "split_k takes the whole cluster")
    require(not g["persistent"], "split_k reduces once")
    require(g["epilogue"] == "staged", "split_k ends with whole warps, which stage alone")
    require(4 * number(g, "consumers") % split == 0, "split_k ends with whole warps")
    # As in sm90_swapab: accumulators, their sums, and half of the parts that arrive.
    ahead = max(40, held * split // 2)
    require(
        2 * held + ahead <= room,
        f"{held} sums of {split} parts a thread do not fit {room} registers",
    )


def _check_gated(g: Genome) -> None:
    check_gated(g)
    require(g["epilogue"] != "bulk", "bulk epilogue stores 64 columns of C a block")


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
        "buffers",
    )
    producer, consumer = HANDED_OVER.get(number(g, "consumers"), (0, 0))
    return {
        **common_macros(g, *genes),
        "HGP_REALLOCATE": int(_reallocate(g)),
        "HGP_PRODUCER_REGISTERS": producer,
        "HGP_CONSUMER_REGISTERS": consumer,
        "HGP_TOKEN_SLICE": _token_slice(g),
        "HGP_WEIGHT_BOXES": _weight_boxes(g),
        "HGP_PERSISTENT": int(bool(g["persistent"])),
        "HGP_PINGPONG": int(g["schedule"] == "pingpong"),
        "HGP_RASTER_N": int(g["raster"] == "n"),
        "HGP_EPILOGUE_BULK": int(g["epilogue"] == "bulk"),
        "HGP_EPILOGUE_STAGED": int(g["epilogue"] == "staged"),
        "HGP_STREAMING": int(bool(g["streaming"])),
        **ahead_macros(g),
    }


def _record(g: Genome) -> dict[str, Any]:
    m, n = number(g, "tile_m"), number(g, "tile_n")
    cluster_m, cluster_n = number(g, "cluster_m"), number(g, "cluster_n")
    row_group, bulk = row_group_of(g), g["epilogue"] == "bulk"
    a_transposed, b_transposed = mn_major(str(g["layout"]))
    tokens = m if a_transposed else _token_slice(g) * cluster_n
    maps = [
        operand_map("a", tokens, a_transposed, slices=cluster_n),
        operand_map("b", n, b_transposed, slices=cluster_m * _weight_boxes(g), row_group=row_group),
    ]
    sizes = dims(m=8 if a_transposed else 1, n=row_group or 8)
    if g["split_k"] != 1:  # every CTA of a cluster has something to multiply
        sizes["k"]["min"] = number(g, "split_k") * number(g, "tile_k")
    if bulk:
        maps.append(operand_map("c", m, False))
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
    "epilogue": ("epilogue", "buffers", "streaming"),
    "ahead": tuple(AHEAD),
}

#: Not `in_order` until the bits of its kernels are measured.
FAMILY = Family(
    "sm90_tokens",
    "sm90/tokens.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    gated=_check_gated,
    exceptions=("turns_residual", "lays_tiles", "goes_round"),
)
