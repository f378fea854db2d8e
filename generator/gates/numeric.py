"""Numeric gate: one kernel against float64, over every place where a GEMM kernel can go wrong.

Each check launches the kernel through the launcher on operands with leading strides above the
minimum, into a C that is NaN inside and fenced by guard bands outside. Any element out of bounds of
the rounding model, unwritten or different in a second run, any guard touched and any input changed
is a failure. Runs on any device; never times anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from hgemm_packs.generator.gates.checker import (
    Checker,
    Launch,
    Numeric,
    NumericError,
    rounding_slack,
)
from hgemm_packs.manifest import KernelEntry, Range

__all__ = ["Launch", "Numeric", "NumericError", "check", "ring_depth"]

WAVES = 3  # tiles of the multi-wave problem, in multiples of the CTAs that run at a time
BAND = 67  # tiles of the long side of the raster problems: above the widest band of any family
DEEP = 16384 + 8  # K


def _sizes(rule: Range, values: Iterable[int]) -> list[int]:
    """`values` rounded up to what the kernel admits, rising and without repeats."""
    step = rule.multiple_of
    return sorted({max(rule.min, -(-v // step) * step) for v in values})


def _size(rule: Range, value: int) -> int:
    return _sizes(rule, [value])[0]


def ring_depth(entry: KernelEntry) -> int:
    """K in elements that one pass over the kernel's pipeline covers: its ring, or one round of
    loads."""
    genome = entry.genome
    if "stages" in genome:
        return int(genome["stages"]) * int(genome["tile_k"])
    return 32 * int(genome.get("warps_k", 1)) * int(genome.get("unroll", 1))


def check_remainders(run: Checker) -> None:
    """N in every step up to two tiles. M in every step up to a tile, as a decoder's batch is, and
    beyond in steps that meet every remainder of 8."""
    e = run.entry
    tile_m, tile_n = e.grid.tile_m, e.grid.tile_n
    ms = _sizes(e.m, [*range(1, tile_m + 2), *range(tile_m + 2, 2 * tile_m, 7), 2 * tile_m])
    ns = _sizes(e.n, range(1, 2 * tile_n + 1))
    k = _size(e.k, 72)
    a, b = run.store(run.normal(ms[-1], k), run.normal(k, ns[-1]))
    wide_a, wide_b = a.double(), b.double()
    exact = wide_a @ wide_b
    slack = rounding_slack(exact, wide_a.abs() @ wide_b.abs(), k, e.dtype)
    for i in range(max(len(ms), len(ns))):
        m, n = ms[i % len(ms)], ns[i % len(ns)]
        run.run("remainders", a[:m], b[:, :n], exact[:m, :n], slack[:m, :n])


def check_depth(run: Checker) -> None:
    """K of every 8 up to two k-tiles, round each multiple of the ring, and as deep as the grid."""
    e = run.entry
    ring, tile_k = ring_depth(e), int(e.genome.get("tile_k", 32))
    around = [ring * i + d for i in (1, 2, 3) for d in (-tile_k, -8, 0, 8, tile_k)]
    ks = _sizes(e.k, [*range(8, 2 * tile_k + 1, 8), *around, 4096, DEEP])
    m, n = _size(e.m, e.grid.tile_m + 1), _size(e.n, e.grid.tile_n + 8)
    for k in ks:
        runs = 2 if k == ks[-1] else 1
        run.product("depth", *run.store(run.normal(m, k), run.normal(k, n)), runs=runs)
    # Truncation adds up where all terms have one sign: only the bound of each element holds.
    k = _size(e.k, 4096)
    stored = run.store(run.normal(m, k, 1.0), run.normal(k, n, 1.0))
    run.product("large mean", *stored, allowed=math.inf)


def check_range(run: Checker) -> None:
    """Sums that fp16 holds as subnormal numbers, from operands of which many are: nothing is
    flushed to zero."""
    e = run.entry
    m, n, k = _size(e.m, e.grid.tile_m + 3), _size(e.n, e.grid.tile_n + 8), _size(e.k, 136)
    run.product("small", *run.store(run.normal(m, k) * 2.0**-12, run.normal(k, n) * 2.0**-10))


def check_waves(run: Checker, sm_count: int) -> None:
    """More tiles than several waves of CTAs, of uneven count, so that persistent loops go round;
    and long rows and columns of tiles, so that the raster begins a second band."""
    e = run.entry
    ctas = sm_count * max(2, int(e.genome.get("ctas_per_sm", 1)))
    side = 1
    while side * (side + 1) < WAVES * ctas:
        side += 1

    def tiles(rows: int, columns: int, k: int, runs: int) -> None:
        m = _size(e.m, rows * e.grid.tile_m - 3)
        n = _size(e.n, columns * e.grid.tile_n - 8)
        stored = run.store(run.normal(m, k), run.normal(k, n))
        run.product("waves", *stored, runs=runs)

    tiles(side, side + 1, _size(e.k, 64), 1)
    tiles(side, side + 1, _size(e.k, ring_depth(e) + 8), 2)
    tiles(BAND, 3, _size(e.k, 64), 1)
    tiles(3, BAND, _size(e.k, 64), 1)


def check_accumulator(run: Checker) -> None:
    """Integers whose partial sums pass 2048 by far and cancel: fp32 in any order is exact, fp16 is
    not."""
    e = run.entry
    m, n = _size(e.m, e.grid.tile_m), _size(e.n, e.grid.tile_n)
    for k in _sizes(e.k, [64, 256, 1024, 4096, DEEP]):
        half = k // 2 // 8 * 8

        def integers(*shape: int) -> torch.Tensor:
            return torch.randint(
                -32, 33, shape, generator=run.generator, device=run.generator.device
            )

        x, y = integers(m, half), integers(half, n)
        sparse = torch.zeros_like(x)
        picks = torch.randint(half, (m, min(8, half)), generator=run.generator, device=x.device)
        sparse.scatter_(1, picks, 1)
        rest = k - 2 * half
        a = torch.cat([x, sparse - x, torch.zeros(m, rest, device=x.device)], dim=1).to(run.dtype)
        b = torch.cat([y, y, torch.zeros(rest, n, device=x.device)]).to(run.dtype)
        exact = sparse.double() @ y.double()
        run.run("accumulator", *run.store(a, b), exact, torch.zeros_like(exact))


def check_specials(run: Checker) -> None:
    """NaN, Inf and overflow stay in their own row, column or element; two runs agree bit for bit.

    The special values are written over operands that the kernel has seen before, so that a result
    kept from an earlier launch shows.
    """
    e = run.entry
    m, n = _size(e.m, e.grid.tile_m + 5), _size(e.n, e.grid.tile_n + 8)
    k = _size(e.k, 200)
    a, b = run.store(run.normal(m, k), run.normal(k, n))
    run.product("repeat", a, b, runs=2)
    a[m - 2, k - 1], b[0, n - 3] = float("nan"), float("inf")
    a[0, :], b[:, 1] = 256.0, 256.0  # 65536 K: above fp16's largest
    run.keep(a, b)
    run.product("specials", a, b)


def check(
    entry: KernelEntry, launch: Launch, device: torch.device, sm_count: int, seed: int
) -> Numeric:
    """All checks of one kernel on `device`. Raises NumericError for the first failure.

    `launch` is the kernel; the gate itself runs on any device, so that its own tests need no GPU.
    """
    run = Checker(entry, launch, device, seed)
    for one in (check_remainders, check_depth, check_accumulator, check_range, check_specials):
        one(run)
        run.settle()
    check_waves(run, sm_count)
    return run.settle()
