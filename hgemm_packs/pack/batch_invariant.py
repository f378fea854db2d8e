"""Which kernel runs a problem in the batch-invariant mode: every one adds up K alike, so that M may
choose among them for speed.

Asked by `select`, once per problem and device. The order of a sum follows from the kernel's family
and launch record; the choice from rows of problems nearby, whose times a small rule carries over.
"""

from __future__ import annotations

import functools
import heapq
import math
from typing import NamedTuple

from ..problem import Problem
from .manifest import KernelEntry, Row
from .manifest_reader import Manifest

#: Families whose CTA adds up all of K that it reads in one float32 accumulator, by wgmma of 16 of K
#: after each other from the lowest on: whatever the tile, and whichever operand is on wgmma's rows.
#: Their declarations say so (`Family.in_order`); benchmarks/results/bits holds what was measured.
IN_ORDER = frozenset({"sm90_wgmma", "sm90_swapab"})

#: Rows nearby whose kernels are candidates.
NEAREST = 16
#: The rule's constants; tests/benchmarks/rows/test_bits.py holds it against recordings.
CLOCKS_PER_US = 1700.0
LAUNCH_US = 2.0
TILE_CLOCKS = 400.0  # of a tile beside its products
LOADED_PER_CLOCK = 64.0  # bytes of operands that an SM gets
WHOLE_WAVES = 0.8  # 1: every tile of a wave ends at once; 0: waves overlap freely
DRAM_BYTES_PER_US = 4.5e6
L2_BYTES = 36e6  # operands of this size come from DRAM by half


class Candidate(NamedTuple):
    """A kernel that runs a problem, how long it should take, and the row that says so."""

    us: float
    kernel: KernelEntry
    row: Row | None


def adds_in_order(kernel: KernelEntry) -> bool:
    """Whether one CTA adds up the whole of K, in order. Of a family that does, the launch record
    says whether several CTAs share a tile of C, each with a part of K."""
    whole = kernel.cluster[2] == 1 and kernel.grid.slices == 1
    return whole and kernel.family in IN_ORDER and kernel.epilogue == "none"


def rank(manifest: Manifest, problem: Problem, sm_count: int) -> list[Candidate]:
    """The pack's kernels of the mode for a problem, the one that should be fastest first: that of
    the problem's own row, then by estimate. Empty where none takes the problem."""
    fitting = (
        (distance(row, problem), row, kernel)
        for row, kernel in _measured(manifest, problem.layout, problem.dtype)
        if kernel.admits(problem) is None
    )
    nearest = heapq.nsmallest(NEAREST, fitting, key=lambda each: each[0])
    profiles = {each.name: each.sm_count for each in manifest.device_profiles}
    found = []
    for apart, row, kernel in nearest:
        change = estimate_us(kernel, problem, sm_count) / estimate_us(
            kernel, row, profiles[row.profile]
        )
        found.append((apart > 0, Candidate(row.hot.us * change, kernel, row)))
    if not found:  # kernels that no row names for what they do alone
        for kernel in filter(adds_in_order, manifest.kernels):
            if kernel.admits(problem) is None:
                us = estimate_us(kernel, problem, sm_count)
                found.append((True, Candidate(us, kernel, None)))
    found.sort(key=lambda each: (each[0], each[1].us, each[1].kernel.id))
    return [candidate for _, candidate in found]


def distance(row: Row, problem: Problem) -> float:
    """How far two problems are apart: factors of two in M, N and K."""
    return sum(
        abs(math.log2(here / there))
        for here, there in ((row.m, problem.m), (row.n, problem.n), (row.k, problem.k))
    )


@functools.lru_cache(maxsize=64)
def _measured(manifest: Manifest, layout: str, dtype: str) -> tuple[tuple[Row, KernelEntry], ...]:
    """The rows of this layout and type whose kernel is one of the mode. Raises PackError."""
    wanted = layout, dtype, "none"
    rows = (row for row in manifest.table if (row.layout, row.dtype, row.epilogue) == wanted)
    found = ((row, manifest.kernel(row.kernel)) for row in rows if row.kernel)
    return tuple((row, kernel) for row, kernel in found if adds_in_order(kernel))


def estimate_us(kernel: KernelEntry, problem: Problem | Row, sm_count: int) -> float:
    """How long a kernel of the mode takes, for ratios: waves of tiles, each as long as its products
    and its loads, beside what DRAM takes."""
    m, n, k = problem.m, problem.n, problem.k
    tile_m, tile_n = kernel.grid.tile_m, kernel.grid.tile_n
    tiles = _tiles(m, tile_m, kernel.cluster[0]) * _tiles(n, tile_n, kernel.cluster[1])
    share = tiles / sm_count
    waves = WHOLE_WAVES * math.ceil(share) + (1 - WHOLE_WAVES) * max(1.0, share)
    swapped = kernel.family == "sm90_swapab"
    rows, columns = (tile_n, tile_m) if swapped else (tile_m, tile_n)
    # A wgmma multiplies 64 rows by 16 of K, its first operand from shared memory.
    multiplied = rows / 64 * k / 16 * max(columns / 2, 16 + columns / 4)
    loaded = (tile_m + tile_n) * k * 2 / LOADED_PER_CLOCK
    clocks = waves * (math.hypot(multiplied, loaded) + TILE_CLOCKS)
    bytes_ = 2.0 * (m * k + k * n + m * n)
    spilled = 1 / (1 + math.exp(min(50.0, (L2_BYTES - bytes_) / (0.15 * L2_BYTES))))
    return LAUNCH_US + math.hypot(clocks / CLOCKS_PER_US, spilled * bytes_ / DRAM_BYTES_PER_US)


def _tiles(size: int, tile: int, cluster: int) -> int:
    """Tiles along a side, in whole clusters."""
    return math.ceil(size / (tile * cluster)) * cluster
