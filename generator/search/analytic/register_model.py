"""The prior's formula of the families that load straight into registers.

One formula, seen by each family through its own genes and constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hgemm_packs.generator.search.analytic.constants import DIRECT, ELEMENTS, GEMV
from hgemm_packs.generator.search.analytic.features import Array
from hgemm_packs.generator.search.analytic.model import (
    CLOCKS_PER_US,
    SM_SMEM,
    SMS,
    Sizes,
    Swapped,
    Terms,
    ceil,
    spilled_share,
)

Columns = Mapping[str, Array]
Constants = Mapping[str, float]


def direct(q: Columns, problem: Sizes, c: Constants = DIRECT) -> Terms:
    """Terms of sm90_direct for columns of its fields."""
    nn = problem.layout == "nn"
    mi, ni, unroll, warps_k = q["mi"], q["ni"], q["unroll"], q["warps_k"]
    tile_m, tile_n, warps = 16 * mi * q["warps_m"], 8 * ni * q["warps_n"], q["threads"] / 32
    parts = q["cluster_k"]
    passes = ceil(problem.k / parts, 32 * warps_k * unroll)
    share = ceil(problem.m, tile_m) * ceil(problem.n, tile_n) * parts / SMS
    most = np.maximum(1.0, np.ceil(share))
    items = c["whole_waves"] * most + (1 - c["whole_waves"]) * np.maximum(1.0, share)
    registers = 8 * ceil(4 * mi * ni + unroll * (8 * mi + 4 * ni) + 40, 8)
    smem = np.where(warps_k > 1, warps_k * tile_m * (tile_n + 4) * 4, 0.0)
    resident = np.minimum(
        np.floor(65536 / (np.minimum(registers, 255) * q["threads"])), np.floor(64 / warps)
    )
    resident = np.maximum(1.0, np.minimum(resident, np.floor(SM_SMEM / (smem + 1024))))

    loads = unroll * (2 * mi + (8 * c["load_nn"] if nn else ni))
    products = unroll * 2 * mi * ni * c["mma"]
    waits = passes * (c["latency"] + c["load"] * loads + products)
    math = passes * products * warps / 4
    rows, columns = np.minimum(tile_m, problem.m), np.minimum(tile_n, problem.n)
    load = passes * loads * warps * 128 / c["l1"]
    load = load + (rows + columns) * problem.k / parts * 2 / c["l2"] * np.sqrt(
        np.minimum(1.0, share)
    )
    rounds = np.ceil(most / resident)
    add = c["reduce"] + smem / c["reduce_bytes"]
    end = c["store"] + np.where(warps_k > 1, add, 0.0) + np.where(q["exact"] > 0, 0.0, c["ragged"])
    serial = rounds * (waits + end) + c["warp"] * warps + (rounds - 1) * c["wave"]
    serial = serial + np.where(parts > 1, c["cluster"], 0.0)
    slower = np.where(q["exact"] > 0, 1.0, c["ragged_share"]) / CLOCKS_PER_US
    slower = slower * np.where(q["fixed_k"] > 0, c["fixed"], 1.0)
    clocks = items * (math + load) + serial
    operands = 2e-3 * (problem.m * problem.k + problem.k * problem.n + problem.m * problem.n)
    dram = spilled_share(problem, c["l2_mb"]) * operands / c["dram_gbps"] + np.zeros_like(mi)
    return Terms(
        total=c["launch_us"] + np.hypot(clocks * slower, dram),
        serial=c["launch_us"] + serial * slower,
        math=items * math * slower,
        load=items * load * slower,
        dram=dram,
        tail=(items - np.minimum(share, items)) * (math + load) * slower,
    )


def gemv(q: Columns, problem: Sizes, c: Constants = GEMV) -> Terms:
    """Terms of sm90_gemv: `direct` with the weights on its rows."""
    one = np.ones_like(q["threads"])
    seen = {
        "ni": q["tokens"] / 8,
        "warps_m": q["warps_n"],
        "warps_n": one,
        "unroll": q["unroll"] * q["stages"],
        "exact": one,
        "fixed_k": 0 * one,
    }
    return direct({**q, **seen}, Swapped(problem.n, problem.m, problem.k, "nt"), c)


def elements(q: Columns, problem: Sizes, c: Constants = ELEMENTS) -> Terms:
    """Terms of sm90_elements: `direct` with half the K a step, and no kernel for whole tiles."""
    zero = np.zeros_like(q["threads"])
    return direct({**q, "unroll": q["unroll"] / 2, "exact": zero, "fixed_k": zero}, problem, c)


REGISTER_MODELS: Mapping[str, Callable[..., Terms]] = {
    "sm90_direct": direct,
    "sm90_gemv": gemv,
    "sm90_elements": elements,
}
