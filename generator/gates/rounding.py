"""The rounding model: how far from float64 a kernel may be that sums in fp32, in any order, and
rounds once.

Used by `checker` for every element, and its digits by whoever compares with what rounding alone
makes. Runs on any device; knows no kernel but its record.
"""

from __future__ import annotations

import torch

from hgemm_packs.generator.families.computed import GATED, TABLE
from hgemm_packs.measure.epilogue import finish, halve, spread_gated
from hgemm_packs.measure.operands import DTYPES
from hgemm_packs.pack.manifest import KernelEntry

SIGNIFICAND_BITS = {"f16": 11, "bf16": 8}
FUNCTION_ERROR = 2.0**-20  # of what an activation is of, by which float32 may be off in all
TINY = 2.0**-100  # as exponentials that float32 does not hold leave it


def rounding_slack(
    exact: torch.Tensor, magnitude: torch.Tensor, k: int, dtype: str
) -> torch.Tensor:
    """Largest error that fp32 accumulation in any order and one rounding to `dtype` can make.

    `magnitude` is |A| @ |B|. Tensor cores truncate when they align addends, hence 2^-22 and not
    2^-24 a step of 16. The rounding is half a unit in the last place of the sum as accumulated.
    """
    return _round_off(exact, (k / 16 + 4) * 2.0**-22 * magnitude, dtype)


def finish_exactly(
    entry: KernelEntry,
    product: torch.Tensor,
    magnitude: torch.Tensor,
    k: int,
    addend: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(what the kernel's epilogue makes of a float64 product, its largest error). An addend is one
    more of the sum, and an activation makes of an error at most its slope times as much. Gated sums
    are off as `spread_gated` says, and silu is what FUNCTION_ERROR says times the other factor."""
    exact = finish(entry.epilogue, product, addend)
    if entry.epilogue == GATED:
        sums = (k / 16 + 4) * 2.0**-22 * magnitude
        gate, up = halve(product)
        function = FUNCTION_ERROR * gate.abs() + TINY
        off = spread_gated(product, sums) + function * (up.abs() + halve(sums)[1])
        return exact, _round_off(exact, off, entry.dtype)
    if addend is None:
        return exact, rounding_slack(exact, magnitude, k, entry.dtype)
    added = addend.double().abs()
    sums = TABLE[entry.epilogue].slope * (k / 16 + 4) * 2.0**-22 * (magnitude + added)
    sums = sums + FUNCTION_ERROR * (product.abs() + added) + TINY
    return exact, _round_off(exact, sums, entry.dtype)


def _round_off(exact: torch.Tensor, sums: torch.Tensor, dtype: str) -> torch.Tensor:
    """`sums`, and half a unit in the last place of what may be that far from `exact`."""
    size = (exact.abs() + sums).clamp_min(torch.finfo(DTYPES[dtype]).smallest_normal)
    exponent = torch.frexp(size).exponent
    return sums + 1.001 * torch.exp2((exponent - SIGNIFICAND_BITS[dtype] - 1).double())
