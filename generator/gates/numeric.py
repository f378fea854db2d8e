"""Numeric gate: one kernel against float64, over every place where a GEMM kernel can go wrong.

Each check launches the kernel through the launcher on operands with leading strides above the
minimum, into a C that is NaN inside and fenced by guard bands outside. Any element out of bounds of
the rounding model, unwritten or different in a second run, any guard touched and any input changed
is a failure. Runs on any device; never times anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from hgemm_packs.generator.families.computed import GATED
from hgemm_packs.generator.gates import values
from hgemm_packs.generator.gates.checker import (
    Checker,
    Launch,
    Numeric,
    NumericError,
    size,
    sizes,
)
from hgemm_packs.generator.gates.repeats import (
    check_replay,
    check_rewritten,
    check_steady,
    check_streams,
)
from hgemm_packs.generator.gates.sizes import (
    Shape,
    check_bases,
    check_large,
    check_sizes,
    check_usual,
)
from hgemm_packs.generator.gates.values.depth import DEEP
from hgemm_packs.generator.gates.values.patterns import check_indices
from hgemm_packs.generator.gates.values.ring import ring_depth
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.pack.manifest import KernelEntry

__all__ = ["Launch", "Numeric", "NumericError", "check", "ring_depth"]

WAVES = 3  # tiles of the multi-wave problem, in multiples of the CTAs that run at a time
BAND = 67  # tiles of the long side of the raster problems: above the widest band of any family
MAX_ELEMENTS = 1 << 26  # of C, in every slice: more tiles are no more use than their time
#: Depths round which a kernel whose ring nobody knows may go wrong.
UNKNOWN_RING = [*range(64, 1025, 64), 1536, 2048, 3072, 8192]


def check_remainders(run: Checker) -> None:
    """N in every step up to two tiles. M in every step up to a tile, as a decoder's batch is, and
    beyond in steps that meet every remainder of 8."""
    e = run.entry
    tile_m, tile_n = e.grid.tile_m, e.grid.tile_n
    ms = sizes(e.m, [*range(1, tile_m + 2), *range(tile_m + 2, 2 * tile_m, 7), 2 * tile_m])
    ns = sizes(e.n, range(1, 2 * tile_n + 1))
    k = size(e.k, 72)
    a, b = run.store(run.normal(ms[-1], k), run.normal(k, ns[-1]))
    exact, off = run.reference(a, b)
    for i in range(max(len(ms), len(ns))):
        m, n = run.shape(ms[i % len(ms)], ns[i % len(ns)])
        right = (exact, off) if run.by_elements else run.reference(a[:m], b[:, :n])
        run.run("remainders", a[:m], b[:, :n], *right)


def check_depth(run: Checker) -> None:
    """K of every 8 up to two k-tiles, round each multiple of the ring, where the kernel takes them
    by odd steps too (many depths where the ring is not known), and as deep as the grid."""
    e = run.entry
    ring, tile_k = ring_depth(e), int(e.genome.get("tile_k", 32))
    around = [ring * i + d for i in (1, 2, 3) for d in (-tile_k, -8, -1, 0, 1, 8, tile_k)]
    if not e.genome:
        around = [depth + d for depth in UNKNOWN_RING for d in (-8, 0, 8)]
    ks = sizes(e.k, [*range(1, 18), *range(8, 2 * tile_k + 1, 8), *around, 4096, DEEP])
    m, n = run.shape(e.grid.tile_m + 1, e.grid.tile_n + 8)
    for k in ks:
        runs = 2 if k == ks[-1] else 1
        run.product("depth", *run.store(run.normal(m, k), run.normal(k, n)), runs=runs)
    # Truncation adds up where all terms have one sign: only the bound of each element holds.
    k = size(e.k, 4096)
    # Gated sums stay near 100, that fp16 holds what is made of them.
    scale = 2.0 ** -max(0, k.bit_length() - 8) if e.epilogue == GATED else 1.0
    stored = run.store(run.normal(m, k, 1.0) * scale, run.normal(k, n, 1.0))
    run.product("large mean", *stored, allowed=math.inf)


def check_waves(run: Checker, sm_count: int) -> None:
    """More tiles than several waves of CTAs, of uneven count, so that persistent loops go round;
    and long rows and columns of tiles, so that the raster begins a second band. Of a kernel whose
    CTAs wait for each other, as many as run at once."""
    e = run.entry
    ctas = sm_count * max(2, int(e.genome.get("ctas_per_sm", 1)))
    if e.grid.persistent and run.max_ctas is not None:
        ctas = run.max_ctas
    side = 1
    while side * (side + 1) < WAVES * ctas:
        side += 1

    def tiles(rows: int, columns: int, k: int, runs: int) -> None:
        run.product("waves", *_store_tiles(run, rows, columns, k), runs=runs)

    tiles(side, side + 1, size(e.k, 64), 1)
    tiles(side, side + 1, size(e.k, ring_depth(e) + 8), 2)
    tiles(BAND, 3, size(e.k, 64), 1)
    tiles(3, BAND, size(e.k, 64), 1)
    if e.grid.persistent and not e.tma:  # tiles along M alone are dealt in turn
        tiles(ctas + 3, 1, size(e.k, 64), 1)


def _store_tiles(
    run: Checker, rows: int, columns: int, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B of about so many tiles, the last of each side not full."""
    grid = run.entry.grid
    elements = rows * grid.tile_m * columns * grid.tile_n * grid.slices
    fit = min(1.0, (MAX_ELEMENTS / elements) ** 0.5)
    m, n = int(rows * fit) * grid.tile_m - 3, int(columns * fit) * grid.tile_n - 8
    m, n = run.shape(m, n)
    return run.store(run.normal(m, k), run.normal(k, n))


def check_fewer(run: Checker, fewer: Sequence[Launch]) -> None:
    """The kernel as on devices that run fewer CTAs at once, a few tiles each: as many CTAs as this
    device runs may be a number that the kernel counts on."""
    run.arms += [arm for arm in fewer if isinstance(arm, KernelArm)]
    k = size(run.entry.k, ring_depth(run.entry) + 8)
    for arm in fewer:
        for rows, columns in ((BAND, 3), (BAND * 3, 1), (3, BAND)):
            a, b = _store_tiles(run, rows, columns, k)
            place = run.place(a, b)
            run.queue_by(arm, a, b, place[1])
            run.judge("fewer CTAs", a, b, place, *run.reference(a, b))


def check(
    entry: KernelEntry,
    launch: Launch,
    device: torch.device,
    sm_count: int,
    seed: int,
    max_ctas: int | None = None,
    planned: Sequence[Shape] = (),
    large: Sequence[Shape] = (),
    fewer: Sequence[Launch] = (),
) -> Numeric:
    """All checks of one kernel on `device`. Raises NumericError for the first failure. `planned`
    and `large` are further problems that the size gate asks for, as `named` reads them.

    `launch` is the kernel; the gate itself runs on any device, so that its own tests need no GPU.
    `max_ctas` is as for a Checker, `fewer` for `check_fewer`.
    """
    run = Checker(entry, launch, device, seed, max_ctas)
    for one in (check_remainders, check_depth, *values.CHECKS):
        one(run)
        run.settle()
    check_waves(run, sm_count)
    run.settle()
    check_fewer(run, fewer)
    run.settle()
    for one in (
        check_indices,
        check_rewritten,
        check_replay,
        check_streams,
        check_steady,
    ):
        one(run)
        run.settle()
    check_usual(run)
    check_bases(run)
    check_sizes(run, planned)
    check_large(run, large)
    return run.result
