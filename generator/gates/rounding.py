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
from torch.nn import functional

from hgemm_packs.generator.families.computed import GATED, TABLE
from hgemm_packs.measure.epilogue import SILU_SLOPE, finish, halve
from hgemm_packs.pack.manifest import KernelEntry

SIGNIFICAND_BITS = {"f16": 11, "bf16": 8}
INFINITY = {torch.float16: 0x7C00, torch.bfloat16: 0x7F80}  # its bits
FUNCTION_ERROR = 2.0**-20  # of an activation, or of what it is of, by which float32 may be off
TINY = 2.0**-100  # as exponentials that float32 does not hold leave gelu, of sums from 1 on
SMALLEST_F32 = 2.0**-149
#: From here on a partial sum may be one that float32 does not hold.
OVERFLOWS_F32 = 2.0**128 * (1 - 2.0**-16)
#: What the error of all elements may be, over that of rounding alone; how much more by chance, over
#: the square root of their count; and what sums may have lost, as a share of one rounding of fp32 a
#: step of 16: see `values/depth.py`.
HELD, CHANCE, LOST = 1.03, 0.25, 0.4
#: Up to here silu is zero in float32, or a number that is below its normal ones.
SILU_VANISHES = -87.0
#: Up to here silu falls.
SILU_LEAST = -1.2785


def sums_off(
    product: torch.Tensor,
    magnitude: torch.Tensor,
    k: int,
    added: torch.Tensor | float = 0.0,
    overflows: bool = True,
) -> torch.Tensor:
    """How far a float32 sum of `k` products may be from `product`, in any order; `magnitude` is
    |A| @ |B|, `added` the size of one more addend. Infinite where partial sums may overflow and the
    sum is not sure to. Zero where the sum is no number.

    Tensor cores truncate when they align addends, hence 2^-22 and not 2^-24 a step of 16. Infinite
    operands must not meet finite terms that overflow. Sums of numbers below 2^16 do not overflow
    (`overflows`), which nobody need look for.
    """
    whole = magnitude + added
    off = (k / 16 + 4) * 2.0**-22 * whole + torch.where(whole > 0, k * SMALLEST_F32, 0.0)
    if overflows:
        upwards, downwards = (whole + product) / 2, (whole - product) / 2
        may = torch.maximum(upwards, downwards) >= OVERFLOWS_F32
        many = torch.minimum(upwards, downwards) < OVERFLOWS_F32
        surely = (product.abs() - off >= 2.0**128) & many
        off = torch.where(may & ~surely, math.inf, off)
    return torch.where(_is_finite(product), off, 0.0)


def _is_finite(numbers: torch.Tensor) -> torch.Tensor:
    """torch.isfinite in half as many kernels."""
    return (numbers - numbers) == 0


def finish_exactly(
    entry: KernelEntry,
    product: torch.Tensor,
    magnitude: torch.Tensor,
    k: int,
    addend: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(what the kernel's epilogue makes of a float64 product, how far float32 may be from it before
    it is rounded). An addend is one more of the sum, and an activation makes of an error at most
    its slope times as much, silu as much as it does there."""
    overflows = entry.dtype != "f16"
    sums = product + 0.0  # a sum of zeros is +0
    if overflows:
        sums = _as_float32_holds(sums)
    exact = finish(entry.epilogue, sums, addend)
    if entry.epilogue == GATED:
        off = sums_off(product, magnitude, k, overflows=overflows)
        return exact, _gated_off(sums, exact, off)
    if addend is None:
        return exact, sums_off(product, magnitude, k, overflows=overflows)
    sums, added = product + addend.double(), addend.double().abs()
    off = sums_off(sums, magnitude, k, added, overflows)
    function, slope = TABLE[entry.epilogue]
    if function == "silu":
        return exact, _silu_off(sums, off)
    if function.startswith("gelu"):
        cancelled = _cancelled_off(sums, product.abs() + added)
        return exact, slope * off + torch.where(torch.isfinite(sums), cancelled, 0.0)
    return exact, slope * off


def _cancelled_off(sums: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """How far gelu of `sums` may be off in float32, `sizes` being those of its addends: torch takes
    1 + erf, of which nothing is left far below zero."""
    vanished = torch.where(sums.abs() < 1, 4 * SMALLEST_F32, TINY)
    return FUNCTION_ERROR * sizes + vanished


def _silu_off(sums: torch.Tensor, off: torch.Tensor) -> torch.Tensor:
    """How far silu may be off in float32 of sums that are by `off`: of its own size by what
    exponential and quotient are, and down to nothing where it may vanish."""
    made, sigmoid = functional.silu(sums), torch.sigmoid(sums)
    steep = sums * sigmoid * (1 + sums * (1 - sigmoid))
    own = FUNCTION_ERROR * (made.abs() + steep.abs()) + 4 * SMALLEST_F32
    own = own + torch.where(sums - off <= SILU_VANISHES, made.abs(), 0.0)
    ends = [(functional.silu(sums + by) - made).abs() for by in (off, -off)]
    moved = torch.where(sums + off <= SILU_LEAST, torch.maximum(*ends), SILU_SLOPE * off)
    return torch.where(_is_finite(sums), own + moved, off)


def _as_float32_holds(sums: torch.Tensor) -> torch.Tensor:
    """`sums`, infinite where float32 is."""
    near = sums.float().double()
    return torch.where(torch.isinf(near), near, sums)


def _gated_off(product: torch.Tensor, exact: torch.Tensor, off: torch.Tensor) -> torch.Tensor:
    """How far silu(gate) * up may be off. An infinity of either half stays one unless the other may
    be zero in float32, or of either sign: infinity times zero is NaN."""
    (gate, up), (gate_off, up_off) = halve(product), halve(off)
    spread = _silu_off(gate, gate_off) * (up.abs() + up_off)
    spread = spread + functional.silu(gate).abs() * up_off
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


class Accepted:
    """What `are_right` takes for right in a C of `dtype`, worked out once for all launches that are
    held against it: the ends of the right numbers as keys, which rise with the number, -0 below +0,
    and where all beyond them is right instead. `normal` numbers count for the error of the whole.

    The gate's time is that of queueing kernels: of these a launch takes a few, on 16 bits.
    """

    def __init__(self, exact: torch.Tensor, off: torch.Tensor, dtype: torch.dtype) -> None:
        known = torch.nan_to_num(off, nan=0.0, posinf=0.0)
        low, high = (exact - known).to(dtype), (exact + known).to(dtype)
        size = exact.abs()
        # A sum that is negative at most by nothing is -0, which exact + known is not.
        negative = torch.signbit(exact) & (high == 0) & ~(size < off)
        ends = [as_keys(low.view(torch.int16)), as_keys(high.view(torch.int16))]
        ends[1].masked_fill_(negative, -1)
        endless, finite, absent = off == math.inf, _is_finite(exact), exact != exact
        beyond = endless & ~finite
        infinity = INFINITY[dtype]
        for end, sign in zip(ends, (-1, 1), strict=True):
            # Of either sign: a NaN is beyond infinity, an infinity beyond all numbers.
            most = infinity if sign > 0 else -1 - infinity
            end.masked_fill_(absent, most).masked_fill_(beyond, most - sign)
            end.masked_fill_(endless & finite, 0x7FFF if sign > 0 else -0x8000)
        self.low, self.high = ends
        self.outside = absent | beyond
        self.normal = _is_finite(low) & _is_finite(high) & _is_finite(off)
        self.normal &= size >= torch.finfo(dtype).smallest_normal
        self.exact = exact
        self._of_whole = torch.where(self.normal, exact, 0.0)
        self._of_rounding = torch.where(self.normal, exact.to(dtype).double() - exact, 0.0)
        self._facts: tuple[torch.Tensor, ...] = ()

    def part(self, rows: int, columns: int) -> Accepted:
        """The first rows and columns."""
        if self.exact.shape == (rows, columns):
            return self
        part = object.__new__(Accepted)
        for name, whole in vars(self).items():
            setattr(part, name, () if name == "_facts" else whole[:rows, :columns])
        return part

    def are_right(self, bits: torch.Tensor) -> torch.Tensor:
        """Which elements of C, given as int16, are right."""
        keys = as_keys(bits)
        return ((self.low <= keys) & (keys <= self.high)) ^ self.outside

    def error(self, got: torch.Tensor) -> torch.Tensor:
        """The norm of the error of all normal numbers."""
        error: torch.Tensor = torch.where(self.normal, got - self.exact, 0.0).norm()
        return error

    def facts(self) -> tuple[torch.Tensor, ...]:
        """Of all normal numbers: the norm of what rounding alone makes of the error, their own, and
        their count."""
        if not self._facts:
            norms = self._of_rounding.norm(), self._of_whole.norm()
            self._facts = (*norms, self.normal.sum())
        return self._facts


def as_keys(bits: torch.Tensor) -> torch.Tensor:
    """int16 that rises with the number that the bits are in a 16-bit type: -0 is -1, +0 is 0, NaN
    beyond the infinities."""
    return bits ^ ((bits >> 15) & 0x7FFF)


def most_error(ideal: float, count: int, k: int, held: float) -> float:
    """The relative error that `count` elements of C together may have, where rounding alone makes
    `ideal` of it and sums have `k` products."""
    rounded = (held + CHANCE / math.sqrt(max(count, 1))) * ideal
    lost = LOST * (k / 16 + 4) * 2.0**-24
    return math.sqrt(rounded**2 + lost**2) + 2.0**-20
