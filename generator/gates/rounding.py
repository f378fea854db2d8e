"""The rounding model: what a kernel may give that sums in fp32, in any order, and rounds once.

What is right of an element is a float64 number and how far the fp32 value that is rounded may be
from it: C is what some value between makes, rounded to nearest even. So where an overflow or a tie
is decided by the last bits of a sum, both sides of it are right. A distance of infinity says that
nobody knows: fp32 gives a number in one order and an infinity or NaN in another. Used by `checker`
for every element, and its digits by whoever compares with what rounding alone makes. Runs on any
device; knows no kernel but its record.
"""

from __future__ import annotations

import math

import torch

from hgemm_packs.generator.families.computed import GATED, TABLE
from hgemm_packs.measure.epilogue import finish, halve, spread_gated
from hgemm_packs.pack.manifest import KernelEntry

SIGNIFICAND_BITS = {"f16": 11, "bf16": 8}
FUNCTION_ERROR = 2.0**-20  # of what an activation is of, by which float32 may be off in all
TINY = 2.0**-100  # as exponentials that float32 does not hold leave it
SMALLEST_F32 = 2.0**-149
#: From here on a partial sum may be one that float32 does not hold.
OVERFLOWS_F32 = 2.0**128 * (1 - 2.0**-16)
#: What the error of all elements may be, over that of rounding alone; how much more by chance, over
#: the square root of their count; and what sums may have lost, as a share of one rounding of fp32 a
#: step of 16: see `values/depth.py`.
HELD, CHANCE, LOST = 1.03, 0.25, 0.4
#: Up to here silu is zero in float32, or a number that is below its normal ones.
SILU_VANISHES = -87.0


def sums_off(
    product: torch.Tensor, magnitude: torch.Tensor, k: int, added: torch.Tensor | float = 0.0
) -> torch.Tensor:
    """How far a float32 sum of `k` products may be from `product`, in any order; `magnitude` is
    |A| @ |B|, `added` the size of one more addend. Infinite where partial sums may overflow and the
    sum is not sure to. Zero where the sum is no number.

    Tensor cores truncate when they align addends, hence 2^-22 and not 2^-24 a step of 16. Infinite
    operands must not meet finite terms that overflow.
    """
    whole = magnitude + added
    off = (k / 16 + 4) * 2.0**-22 * whole + torch.where(whole > 0, k * SMALLEST_F32, 0.0)
    upwards, downwards = (whole + product) / 2, (whole - product) / 2
    may = torch.maximum(upwards, downwards) >= OVERFLOWS_F32
    surely = (product.abs() - off >= 2.0**128) & (torch.minimum(upwards, downwards) < OVERFLOWS_F32)
    off = torch.where(may & ~surely, math.inf, off)
    return torch.where(torch.isfinite(product), off, 0.0)


def finish_exactly(
    entry: KernelEntry,
    product: torch.Tensor,
    magnitude: torch.Tensor,
    k: int,
    addend: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(what the kernel's epilogue makes of a float64 product, how far float32 may be from it before
    it is rounded). An addend is one more of the sum, and an activation makes of an error at most
    its slope times as much. Gated sums are off as `spread_gated` says, and silu is what
    FUNCTION_ERROR says times the other factor."""
    sums = _as_float32_holds(product + 0.0)  # a sum of zeros is +0
    exact = finish(entry.epilogue, sums, addend)
    if entry.epilogue == GATED:
        return exact, _gated_off(sums, exact, sums_off(product, magnitude, k))
    if addend is None:
        return exact, sums_off(product, magnitude, k)
    sums, added = product + addend.double(), addend.double().abs()
    off = TABLE[entry.epilogue].slope * sums_off(sums, magnitude, k, added)
    if TABLE[entry.epilogue].function != "identity":
        off = off + torch.where(
            torch.isfinite(sums), FUNCTION_ERROR * (product.abs() + added) + TINY, 0.0
        )
    return exact, off


def _as_float32_holds(sums: torch.Tensor) -> torch.Tensor:
    """`sums`, infinite where float32 is."""
    near = sums.float().double()
    return torch.where(torch.isinf(near), near, sums)


def _gated_off(product: torch.Tensor, exact: torch.Tensor, off: torch.Tensor) -> torch.Tensor:
    """How far silu(gate) * up may be off. An infinity of either half stays one unless the other may
    be zero in float32, or of either sign: infinity times zero is NaN."""
    (gate, up), (gate_off, up_off) = halve(product), halve(off)
    function = FUNCTION_ERROR * gate.abs() + TINY
    spread = spread_gated(product, off) + function * (up.abs() + up_off)
    spread = torch.where(torch.isfinite(exact), spread, 0.0)
    vanishes = (gate.abs() <= gate_off) | (gate - gate_off <= SILU_VANISHES)
    unknown = (torch.isinf(up) & vanishes) | (torch.isinf(gate) & (up.abs() <= up_off))
    unknown |= torch.isinf(gate_off) | torch.isinf(up_off)
    nan_for_sure = torch.isnan(gate) | torch.isnan(up) | (gate == -math.inf)
    return torch.where(unknown & ~nan_for_sure, math.inf, spread)


def bounds(
    exact: torch.Tensor, off: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the greatest that C may be, where something is known of it."""
    known = torch.nan_to_num(off, nan=0.0, posinf=0.0)
    low, high = ((exact + by).to(dtype).double() for by in (-known, known))
    return low, high


def are_right(got: torch.Tensor, exact: torch.Tensor, off: torch.Tensor) -> torch.Tensor:
    """Which elements of C are what float32 may make of them. A zero has the sign of a number that
    may have been rounded to it; a sum of zeros begins with +0, and so is +0. Where nobody knows, an
    infinity or NaN may be either; a number may be anything."""
    low, high = bounds(exact, off, got.dtype)
    wide = got.double()
    inside = (low <= wide) & (wide <= high)
    sign = torch.signbit(got)
    unsure = (exact.abs() < off) | (sign == torch.signbit(exact))
    right = torch.where(torch.isnan(exact), torch.isnan(wide), inside & ((wide != 0) | unsure))
    unknown = torch.isinf(off) & (torch.isfinite(exact) | ~torch.isfinite(wide))
    return right | unknown


def most_error(ideal: torch.Tensor, count: torch.Tensor, k: int, held: float) -> torch.Tensor:
    """The relative error that `count` elements of C together may have, where rounding alone makes
    `ideal` of it and sums have `k` products."""
    rounded = (held + CHANCE / count.clamp_min(1).sqrt()) * ideal
    lost = LOST * (k / 16 + 4) * 2.0**-24
    return (rounded.square() + lost**2).sqrt() + 2.0**-20
