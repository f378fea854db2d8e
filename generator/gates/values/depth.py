"""How many digits partial sums have: exact where K is deep and all cancels, and off by no more than
fp32 makes it.

Rounding C hides what a sum lost on its way. Where the sum cancels there is next to nothing to
round, and C is what was lost.
"""

from __future__ import annotations

import math

import torch

from hgemm_packs.generator.families.computed import GATED
from hgemm_packs.generator.gates.checker import Checker, size, sizes
from hgemm_packs.generator.gates.values.drawn import in_steps, integers, picks, shuffled

DEEP = 16384 + 8  # K
#: Root mean square of what a sum may lose, as a share of what one rounding of fp32 a step of 16 of
#: K loses of a number as large as the sums are: a tensor core that cuts off 25 bits is at 0.1, one
#: that takes 4 of K at a time at 0.4; fp16 partial sums of a sixteenth of K at 3 where K is 4096.
MOST_LOST = 0.7
GATE = 8.0  # whose silu is 8, nearly
#: Of numbers whose products float64 adds up exactly: bf16 has smaller ones.
STEP = 2.0**-16


def check_accumulator(run: Checker) -> None:
    """Numbers of few digits whose partial sums have more than 16-bit types hold, and cancel: fp32
    in any order is exact, fp16 is not. They are integers for some K and fractions for others."""
    e = run.entry
    m, n = size(e.m, e.grid.tile_m), size(e.n, e.grid.tile_n)
    for k in sizes(e.k, [64, 256, 1024, 4096, DEEP]):
        half = k // 2 // 8 * 8 or k // 2
        if half == 0:
            continue
        x, y = integers(run, 32, m, half), integers(run, 32, half, n)
        sparse = torch.zeros_like(x)
        sparse.scatter_(1, picks(run, m * min(8, half), half).view(m, -1), 1)
        rest = k - 2 * half
        a = torch.cat([x, sparse - x, torch.zeros(m, rest, device=x.device)], dim=1)
        b = torch.cat([y, y, torch.zeros(rest, n, device=x.device)])
        for scale in (1.0, 2.0 ** -int(picks(run, 1, 6) + 1)):
            stored = run.store((a * scale).to(run.dtype), (b * scale).to(run.dtype))
            exact = (sparse.double() @ y.double()) * scale * scale
            run.run("accumulator", *stored, *run.expect_exact(exact))


def check_lost_digits(run: Checker) -> None:
    """Normal numbers whose products come with either sign, in random order: C is what fp32 lost,
    and all of it together is bounded. Their steps are as coarse as float64 needs to lose none."""
    e = run.entry
    m, n = run.shape(e.grid.tile_m + 5, e.grid.tile_n + 8)
    for k in sizes(e.k, [256, 1024, 4096, DEEP]):
        half = (k - 1) // 2
        if half < 8:
            continue
        order = shuffled(run, k)
        x, y = (in_steps(run.normal(*shape), STEP) for shape in ((m, half), (half, n)))
        a, b = (torch.zeros(s, dtype=run.dtype, device=run.device) for s in ((m, k), (k, n)))
        a[:, : 2 * half], b[: 2 * half] = torch.cat([x, -x], dim=1), torch.cat([y, y])
        if e.epilogue == GATED:
            b[:, : n // 2] = 0.0
            a[:, -1], b[-1, : n // 2] = 1.0, GATE
        addend = run.addend(m, n)
        if addend is not None:
            addend.zero_()
        a, b = run.store(a[:, order], b[order])
        exact, off = run.reference(a, b)
        place = run.place(a, b)
        run.queue(a, b, place[1])
        run.judge("lost digits", a, b, place, exact, off)
        gain = GATE if e.epilogue == GATED else 1.0
        lost = (place[1].double() - exact).square().mean().sqrt() / (gain * math.sqrt(2 * half))
        run.bound(f"lost digits {m}x{n}x{k}", lost, MOST_LOST * (k / 16 + 4) * 2.0**-24)
        if addend is not None:
            run.rewrite_addend()
