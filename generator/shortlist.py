"""Which kernels of a pool are worth measuring on a problem: those that admit it and look fastest by
a roofline-and-waves estimate.

Called by the sweep, so that tens are measured and not hundreds. Never decides what is dispatched.
"""

from __future__ import annotations

import math

from hgemm_packs.manifest import KernelEntry
from hgemm_packs.problem import Problem

CLOCK_GHZ = 1.7
SMS = 132
LOAD_BYTES_PER_CLOCK = 40.0  # an SM's share of what L2 delivers to tiles loaded by the copy engine
STORE_BYTES_PER_CLOCK = 18.0
LAUNCH_US = 1.5
SAME_TILING = 6  # variants of one tiling that are measured, so that a list has several tilings


def estimate_us(entry: KernelEntry, problem: Problem) -> float:
    """Roofline per tile times waves: good enough to rank, never to claim."""
    tile_m, tile_n = entry.grid.tile_m, entry.grid.tile_n
    tiles = math.ceil(problem.m / tile_m) * math.ceil(problem.n / tile_n)
    split = int(entry.genome.get("split_k", 1))
    tiles *= split
    depth = problem.k / split
    steps = depth / 16
    if entry.family == "sm90_direct":
        # mma.sync runs at about 60% of wgmma's rate, and each warp pulls its operands through L1.
        warps_k = int(entry.genome["warps_k"])
        math_clocks = tile_m / 64 * steps * tile_n / 2 / 0.6
        load_clocks = (tile_m + tile_n) * problem.k * 2 / 24.0
        latency = 700 * math.ceil(problem.k / (32 * warps_k * int(entry.genome["unroll"])))
        waves = max(1.0, tiles / SMS)
        clocks = waves * max(math_clocks, load_clocks) + latency + (400 if warps_k > 1 else 0)
        return LAUNCH_US - 0.6 + clocks / CLOCK_GHZ / 1000
    ctas = int(entry.genome["ctas_per_sm"])
    math_clocks = tile_m / 64 * steps * max(tile_n / 2, 16 + tile_n / 4)
    load_clocks = (tile_m + tile_n) * depth * 2 / LOAD_BYTES_PER_CLOCK
    store_clocks = tile_m * tile_n * 2 / STORE_BYTES_PER_CLOCK
    main = max(math_clocks, load_clocks)
    overlapped = entry.genome["schedule"] == "pingpong" or ctas > 1
    tile_clocks = max(main, store_clocks) if overlapped else main + store_clocks / 2
    waves = math.ceil(tiles / SMS)
    reduction = 1500 if split > 1 else 0
    return (
        LAUNCH_US + (waves * tile_clocks + store_clocks / 2 + reduction + 1000) / CLOCK_GHZ / 1000
    )


def shortlist(kernels: list[KernelEntry], problem: Problem, limit: int) -> list[KernelEntry]:
    """The `limit` kernels that admit `problem` and look fastest, at most SAME_TILING of one
    tiling. The order of `kernels` does not matter."""
    chosen: list[KernelEntry] = []
    taken: dict[tuple[object, ...], int] = {}
    admitted = [entry for entry in kernels if entry.admits(problem) is None]
    for entry in sorted(admitted, key=lambda entry: (estimate_us(entry, problem), entry.name)):
        if len(chosen) == limit:
            break
        g = entry.genome
        tiling = (
            entry.family,
            entry.grid.tile_m,
            entry.grid.tile_n,
            g.get("schedule"),
            g.get("split_k"),
        )
        if taken.setdefault(tiling, 0) < SAME_TILING:
            taken[tiling] += 1
            chosen.append(entry)
    return chosen
