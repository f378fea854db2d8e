"""Family sm90_unaligned: operands that no tensor map can describe, copied by warpgroups of threads.
Twin of sm90/unaligned.cuh."""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families.base import (
    Family,
    Genome,
    ceil_div,
    common_macros,
    dims_ptr,
    number,
    register_room,
    require,
    smem_room,
)
from hgemm_packs.generator.families.operand import LAYOUTS, mn_major

BYTES = (16, 8, 4, 2)  # of the widest access that addresses and strides of an operand allow
GENES: dict[str, tuple[int | str | bool, ...]] = {
    "layout": LAYOUTS,
    "dtype": ("f16", "bf16"),
    "a_bytes": BYTES,
    "b_bytes": BYTES,
    "c_bytes": BYTES,
    "tile_m": (64, 128, 256),
    "tile_n": (32, 64, 96, 128, 192, 256),
    "stages": (2, 3, 4, 5, 6, 8),
    "consumers": (1, 2),  # warpgroups
    "producers": (1, 2),  # warpgroups
    "wide": (False, True),  # aligned accesses of 16 bytes, shifted in shared memory
    "batch": (4, 8, 16),  # pairs of loads of 2 bytes that a thread has in flight
    "split_k": (1, 2, 4),
    "ctas_per_sm": (1, 2, 3),
    "group": (1, 4, 8, 16),
}
LARGEST_SHARE = 240  # registers that setmaxnreg is asked to give a consumer thread
# Of a producer thread: places in both operands, and the longest batch, or what it shifts at once.
PRODUCER_REGISTERS, WIDE_PRODUCER_REGISTERS = 64, 80


def _threads(g: Genome) -> int:
    return 128 * (number(g, "consumers") + number(g, "producers"))


def _staging_bytes(g: Genome) -> int:
    """Epilogue staging of all consumers, in bytes."""
    columns = number(g, "tile_n") // number(g, "split_k")
    chunk = next((chunk for chunk in (64, 32, 16) if columns % chunk == 0), 16)
    return 4 * number(g, "consumers") * 16 * chunk * 2


def _tail_bytes(g: Genome) -> int:
    """What the lines of a slab have beside it where they come by wide accesses: 16 bytes each."""
    total = 0
    for operand, major, tile in zip("ab", mn_major(str(g["layout"])), "mn", strict=True):
        rows = number(g, f"tile_{tile}")
        lines = 2 * rows if major and rows % 64 else rows
        total += 16 * lines if g["wide"] and g[f"{operand}_bytes"] != 16 else 0
    return total


def smem_bytes(g: Genome) -> int:
    """Dynamic shared memory in bytes: ring, staging, inbox, and room to align the ring to 1024."""
    m, n = number(g, "tile_m"), number(g, "tile_n")
    inbox = m * n * 4 if number(g, "split_k") > 1 else 0
    stage = (m + n) * 128 + ceil_div(_tail_bytes(g), 1024) * 1024
    return 1024 + number(g, "stages") * stage + _staging_bytes(g) + inbox


def _through_registers(g: Genome) -> bool:
    return not g["wide"] and 2 in (g["a_bytes"], g["b_bytes"])


def _consumer_needs(g: Genome) -> int:
    """What a consumer thread needs: its accumulators, and where K is split the sums beside them."""
    accumulators = number(g, "tile_m") * number(g, "tile_n") // number(g, "consumers") // 128
    split = number(g, "split_k")
    return accumulators + max(48, 2 * accumulators // split + 28 if split > 1 else 0)


def _room(g: Genome) -> int:
    return register_room(_threads(g), number(g, "ctas_per_sm"))


def reallocates(g: Genome) -> bool:
    """Whether producers hand registers over, as consumers need more than a fair share."""
    return _consumer_needs(g) > _room(g)


def _producer_registers(g: Genome) -> int:
    return WIDE_PRODUCER_REGISTERS if g["wide"] else PRODUCER_REGISTERS


def _consumer_registers(g: Genome) -> int:
    """Registers of a consumer thread after that."""
    consumers, producers = number(g, "consumers"), number(g, "producers")
    rest = _room(g) * (consumers + producers) - producers * _producer_registers(g)
    return min(LARGEST_SHARE, rest // consumers // 8 * 8)


def _check(g: Genome) -> None:
    m, n, consumers, split = (
        number(g, gene) for gene in ("tile_m", "tile_n", "consumers", "split_k")
    )
    rows = m // consumers
    require(rows in (64, 128), "a consumer holds 64 or 128 rows")
    if g["wide"]:
        widths = {g["a_bytes"], g["b_bytes"], g["c_bytes"]}
        require(widths <= {2, 16} and 2 in widths, "wide accesses take 2 or 16 bytes, not all 16")
        require(g["producers"] == 2, "each eighth line has a warp of its own")
        require(number(g, "stages") > 2, "slabs land, are shifted and multiplied at once")
        fits = n < 256 and (split == 1 or _consumer_needs(g) <= _room(g))
        require(fits, "registers of a wide store beside the sums")
    require(
        _through_registers(g) or g["batch"] == GENES["batch"][0],
        "only loads of 2 bytes come in batches",
    )
    require(n % (16 * split) == 0, "a share is a multiple of 16 columns")
    require(split == 1 or rows == 64, "split_k reduces once, 64 rows a consumer")
    require(split == 1 or n < 256, "registers of sums over K beside 256 columns")
    require(_room(g) >= _producer_registers(g), "registers of a producer")
    room = _consumer_registers(g) if reallocates(g) else _room(g)
    require(
        _consumer_needs(g) <= room,
        f"{_consumer_needs(g)} registers of a consumer thread do not fit {room}",
    )
    # What setmaxnreg gives is beside what the compiler has for a single product.
    require(n // 2 + 32 <= _room(g), f"{n // 2} accumulators of a product do not fit {_room(g)}")
    require(smem_bytes(g) <= smem_room(number(g, "ctas_per_sm")), "shared memory")
    b_mn_major = mn_major(str(g["layout"]))[1]
    width = 16 if g["wide"] else max(4, number(g, "b_bytes"))
    step = 128 * number(g, "producers") * width
    atom = 64 if b_mn_major and n % 64 == 0 else 32 if b_mn_major else n
    require(atom * 128 % step == 0, "producers copy whole atoms at once")


def _macros(g: Genome) -> dict[str, int | str]:
    genes = (
        *("a_bytes", "b_bytes", "c_bytes", "tile_m", "tile_n", "stages", "consumers", "producers"),
        *("batch", "split_k", "ctas_per_sm", "group", "wide"),
    )
    return {
        **common_macros(g, *genes),
        "HGP_REALLOCATE": int(reallocates(g)),
        "HGP_PRODUCER_REGISTERS": _producer_registers(g),
        "HGP_CONSUMER_REGISTERS": _consumer_registers(g),
    }


def _steps(g: Genome) -> dict[str, int]:
    """What M, N and K are multiples of: rows are whole units of what threads copy. A last unit in
    part would be right, but compute-sanitizer takes it for a read behind the matrix."""
    layout = str(g["layout"])
    along = ("k" if layout[0] == "n" else "m", "n" if layout[1] == "n" else "k", "n")
    steps = {"m": 1, "n": 1, "k": 1}
    for operand, name in zip("abc", along, strict=True):
        steps[name] = max(steps[name], number(g, f"{operand}_bytes") // 2)
    return steps


def _record(g: Genome) -> dict[str, Any]:
    m, n, split = number(g, "tile_m"), number(g, "tile_n"), number(g, "split_k")
    steps = _steps(g)
    sizes = dims_ptr(n, **steps)
    # Every CTA of a cluster has something to multiply.
    sizes["k"]["min"] = ceil_div(64 * (split - 1) + 1, steps["k"]) * steps["k"]
    return {
        "param_layout": "ptr_v1",
        "block": _threads(g),
        "cluster": [1, 1, split],
        "grid": {"tile_m": m, "tile_n": n, "persistent": False},
        "smem_bytes": smem_bytes(g),
        "tma": [],
        "align": {operand: number(g, f"{operand}_bytes") for operand in "abc"},
        "dims": sizes,
    }


OPERATORS = {
    "tile": ("tile_m", "tile_n"),
    "depth": ("stages", "batch"),
    "copies": ("wide",),
    "roles": ("consumers", "producers", "ctas_per_sm"),
    "split": ("split_k",),
    "raster": ("group",),
    "bytes": ("a_bytes", "b_bytes", "c_bytes"),
}

FAMILY = Family(
    "sm90_unaligned",
    "sm90/unaligned.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    exceptions=("shifts_rows", "lays_tiles", "asks_alignment"),
)
