"""The prior's formula of the families that load by TMA and multiply by wgmma.

One formula, seen by each family through its own genes and constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hgemm_packs.generator.search.analytic.constants import (
    ONESHOT,
    SPLITK,
    SWAPAB,
    TOKENS,
    UNALIGNED,
    WGMMA,
    WRITEBOUND,
)
from hgemm_packs.generator.search.analytic.features import Array
from hgemm_packs.generator.search.analytic.model import (
    CLOCKS_PER_US,
    SM_SMEM,
    SMS,
    Sizes,
    Terms,
    ceil,
    spilled_share,
    swap_sizes,
)

Columns = Mapping[str, Array]
Constants = Mapping[str, float]

#: What a family without the gene has. `reload`: share of B's tile that is loaded again for the
#: next tile of C; `plain`: stored straight from accumulators.
USUAL: Constants = {
    **dict.fromkeys(("cluster_m", "cluster_n", "split_k", "slices", "ctas_per_sm", "reload"), 1.0),
    **dict.fromkeys(("persistent", "pingpong", "raster_n", "grouped", "bulk", "plain"), 0.0),
    "cp_async": 0.0,
    "group": 8.0,
}


def wgmma(q: Columns, problem: Sizes, c: Constants = WGMMA) -> Terms:
    """Terms of sm90_wgmma for columns of its fields, and of all families that look like it."""
    q = {**{name: np.full_like(q["threads"], value) for name, value in USUAL.items()}, **q}
    split, ranks = q["split_k"], q["cluster_m"] * q["cluster_n"] * q["split_k"]
    k_tiles = np.ceil(ceil(problem.k, q["tile_k"]) / (split * q["slices"]))
    tiles = ceil(problem.m, q["tile_m"] * q["cluster_m"]) * q["cluster_m"]
    tiles = tiles * ceil(problem.n, q["tile_n"] * q["cluster_n"]) * q["cluster_n"]
    fit = np.select([split == 3, split == 4, split > 4], [c["fit_3"], c["fit_4"], c["fit_8"]], 1.0)
    share = tiles * split * q["slices"] / (SMS * fit)  # CTAs an SM
    most = np.maximum(1.0, np.ceil(np.round(share, 6)))
    resident = _resident(q)
    active = np.minimum(resident, most)
    items = c["whole_waves"] * most + (1 - c["whole_waves"]) * np.maximum(1.0, share)

    deep = k_tiles * q["tile_k"]
    math = (
        q["tile_m"] / 64 * deep / 16 * np.maximum(q["tile_n"] / 2, c["mma_smem"] + q["tile_n"] / 4)
    )
    math = math * c["mma"] * np.where(ranks > split, c["mma_cluster"], 1.0)
    alone = (q["consumers"] == 1) & (active == 1)
    math = math + k_tiles * np.where(alone, c["step"], c["step_shared"])
    load = _load(q, problem, deep, active, np.minimum(1.0, share), c)
    if "producers" in q:
        load = np.maximum(load, _copies(q, deep, active, c))
    body = np.hypot(math, load)

    rows, columns = np.minimum(q["tile_m"], problem.m), np.minimum(q["tile_n"], problem.n)
    rate = np.select(
        [q["bulk"] > 0, q["grouped"] > 0, q["plain"] > 0],
        [c["store_bulk"], c["store_grouped"], c.get("store_plain", 1.0)],
        c["store_staged"],
    )
    store = rows * columns * 2 / split / rate + c["store_wait"]
    sent = q["tile_m"] * q["tile_n"] * 4 * (split - 1) / split / c["reduce_bytes"]
    reduce = np.where(split > 1, c["reduce"] + c["reduce_rank"] * split + sent, 0.0)
    partial = 2 * q["tile_m"] * q["tile_n"] * 4 / split  # written, and read by another slice
    across = c.get("slice", 0.0) + partial / c.get("slice_bytes", 1.0)
    reduce = reduce + np.where(q["slices"] > 1, across, 0.0)
    kept = np.where(resident > 1, c["overlap"], 1.0)
    fill = c["fill"] - c.get("cp_async", 0.0) * q["cp_async"]
    single = (fill + store + reduce) * (1 + (np.ceil(most / resident) - 1) * kept)
    hidden = np.hypot(body, c["pingpong_store"] * store) - body
    looped = fill + store
    looped = looped + np.where(q["pingpong"] > 0, items * hidden, (items - 1) * store * kept)
    serial = np.where(q["persistent"] > 0, looped, single)
    serial = serial + np.where(ranks > 1, c["cluster"], 0.0)
    dram = _dram_us(q, problem, np.minimum(SMS * active / split, tiles), tiles, c)
    launch = c["launch_us"] + c["smem_us"] * q["smem"] / 1e5
    clocks = items * body + serial
    return Terms(
        total=launch + np.hypot(clocks / CLOCKS_PER_US, dram),
        serial=launch + serial / CLOCKS_PER_US,
        math=items * math / CLOCKS_PER_US,
        load=items * load / CLOCKS_PER_US,
        dram=dram,
        tail=(items - np.minimum(share, items)) * body / CLOCKS_PER_US,
    )


def _resident(q: Columns) -> Array:
    """CTAs of sm90_wgmma that an SM holds, by shared memory and an estimate of registers."""
    rows = np.where(q["pingpong"] > 0, q["tile_m"], q["tile_m"] / q["consumers"])
    registers = np.minimum(255, 8 * ceil(rows * q["tile_n"] / 128 + 50, 8))
    by_registers = np.floor(65536 / (q["threads"] * registers))
    by_smem = np.floor(SM_SMEM / (q["smem"] + 1024))
    ctas: Array = np.maximum(q["ctas_per_sm"], np.minimum(by_smem, by_registers))
    return ctas


def _load(
    q: Columns,
    problem: Sizes,
    deep: Array,
    active: Array,
    busy: Array,
    c: Constants,
) -> Array:
    """Clocks that a tile's operands take to come from L2: by latency and bytes in flight, by
    what L2 gives when all SMs read."""
    rows = q["tile_m"] + c["beyond"] * np.maximum(0.0, q["tile_m"] - problem.m)
    columns = q["tile_n"] + c["beyond"] * np.maximum(0.0, q["tile_n"] - problem.n)
    rounds = deep / (q["stages"] * q["tile_k"] * active)
    read = (rows / q["cluster_n"] + columns * q["reload"] / q["cluster_m"]) * deep * 2
    clocks: Array = np.hypot(rounds * c["latency"], read * busy / c["l2"])
    return clocks


def _copies(q: Columns, deep: Array, active: Array, c: Constants) -> Array:
    """Clocks that threads take to copy a tile's operands: by the units that there are, and where
    these go through registers by the batches that wait for memory one after the other."""
    clocks, waits = np.zeros_like(deep), np.zeros_like(deep)
    for rows, each in ((q["tile_m"], q["a_bytes"]), (q["tile_n"], q["b_bytes"])):
        warps = rows * deep * 2 / np.maximum(4, each) / 32
        clocks = clocks + warps * np.where(each == 2, c["copy_2"], c["copy"])
        batches = warps / (4 * q["producers"] * q["batch"])
        waits = waits + np.where(each == 2, batches * c["in_flight"] / 4, 0.0)
    busy: Array = np.maximum(clocks, waits / active)
    return busy


def unaligned(q: Columns, problem: Sizes, c: Constants = UNALIGNED) -> Terms:
    """Terms of sm90_unaligned."""
    return wgmma({**q, "tile_k": np.full_like(q["threads"], 64.0)}, problem, c)


def _dram_us(q: Columns, problem: Sizes, running: Array, tiles: Array, c: Constants) -> Array:
    """Time that DRAM needs: operands once, or again for every wave of the raster when L2 spills."""
    m, n, k = problem.m, problem.n, problem.k
    along_n = q["raster_n"] > 0
    band_tile = np.where(along_n, q["tile_m"], q["tile_n"])
    line_tile = np.where(along_n, q["tile_n"], q["tile_m"])
    band = np.minimum(q["group"], np.where(along_n, ceil(m, band_tile), ceil(n, band_tile)))
    line = np.where(along_n, ceil(n, line_tile), ceil(m, line_tile))
    line = np.minimum(line, ceil(running, band))
    waves = (band * band_tile + line * line_tile) * k * 2 * tiles / running
    read = np.maximum(2.0 * k * (m + n), waves) + 2.0 * m * n
    us: Array = spilled_share(problem, c["l2_mb"]) * read / c["dram_gbps"] / 1e3
    return us


def splitk(q: Columns, problem: Sizes, c: Constants = SPLITK) -> Terms:
    """Terms of sm90_splitk."""
    return wgmma({**q, "split_k": q["split"], "consumers": q["tile_m"] / 64}, problem, c)


def oneshot(q: Columns, problem: Sizes, c: Constants = ONESHOT) -> Terms:
    """Terms of sm90_oneshot: a ring as deep as its slice of K."""
    tile_k = np.minimum(q["slab_group"] * 64, q["k_slice"])
    seen = {
        "split_k": q["split"],
        "consumers": q["tile_m"] / 64,
        "tile_k": tile_k,
        "stages": q["k_slice"] / tile_k,
    }
    return wgmma({**q, **seen}, problem, c)


def swapab(q: Columns, problem: Sizes, c: Constants = SWAPAB) -> Terms:
    """Terms of sm90_swapab: its rows are the problem's columns."""
    one = np.ones_like(q["threads"])
    seen = {"tile_m": q["tile_n"], "tile_n": q["tile_m"], "group": one, "raster_n": one}
    return wgmma({**q, **seen}, swap_sizes(problem), c)


def tokens(q: Columns, problem: Sizes, c: Constants = TOKENS) -> Terms:
    """Terms of sm90_tokens: sm90_wgmma with the problem's columns on its rows."""
    seen = {
        "tile_m": q["tile_n"],
        "tile_n": q["tile_m"],
        "cluster_m": q["cluster_n"],
        "cluster_n": q["cluster_m"],
        "raster_n": 1 - q["raster_n"],
    }
    return wgmma({**q, **seen}, swap_sizes(problem), c)


def writebound(q: Columns, problem: Sizes, c: Constants = WRITEBOUND) -> Terms:
    """Terms of sm90_writebound: consumers take turns, and B stays."""
    one = np.ones_like(q["threads"])
    seen = {
        "tile_m": 64 * one,
        "tile_k": q["k"],
        "persistent": one,
        "pingpong": one,
        "reload": 0 * one,
    }
    return wgmma({**q, **seen}, problem, c)


TMA_MODELS: Mapping[str, Callable[..., Terms]] = {
    "sm90_wgmma": wgmma,
    "sm90_splitk": splitk,
    "sm90_oneshot": oneshot,
    "sm90_swapab": swapab,
    "sm90_writebound": writebound,
    "sm90_tokens": tokens,
    "sm90_unaligned": unaligned,
}
