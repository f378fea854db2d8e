"""Operands for measuring: random-normal A and B, poisoned C, in the layout of a problem.

Called by `timing` and by the kernel checks. Sets are slices of one arena per operand, so that
thousands of small sets cost three allocations. Nothing here knows what a kernel is.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch

from ..problem import Problem, columns_of, set_bytes

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}

#: Elements between the starts of two sets are a multiple of this (512 bytes), so that every set
#: has the same pointer alignment and therefore the same problem key.
SET_ALIGN = 256


@dataclass(frozen=True, slots=True)
class Operands:
    """One set: `a` [M, K] and `b` [K, N] as `a @ b` takes them (views when stored transposed),
    and `c` [M, N], or [M, N/2] where N is gated, row-major, filled with NaN."""

    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor


@functools.lru_cache(maxsize=64)
def bias_of(n: int, dtype: torch.dtype, place: torch.device) -> torch.Tensor:
    """The bias [N] that every arm of a problem with an epilogue adds, and its reference: random
    normal, the same in every process on one device kind."""
    generator = torch.Generator(place).manual_seed(n)
    return torch.randn(n, generator=generator, dtype=dtype, device=place)


def addend_of(epilogue: str, c: torch.Tensor) -> torch.Tensor:
    """What every arm of a problem with an epilogue that adds, and its reference, adds to the
    product in `c` [M, N]: `bias_of`, or the residual [M, N] of the same set of `operands`."""
    if epilogue != "residual":
        return bias_of(c.shape[1], c.dtype, c.device)
    behind = c.storage_offset() + _padded(c.numel())
    return c.as_strided(c.shape, (c.shape[1], 1), behind)


def _padded(elements: int) -> int:
    return -(-elements // SET_ALIGN) * SET_ALIGN


def cold_sets(problem: Problem, l2_bytes: int) -> int:
    """Sets whose rotation makes every call start outside an L2 of `l2_bytes`.

    One set is enough, and hot and cold are the same figure, once it exceeds three times the L2.
    """
    needed = math.ceil(3 * l2_bytes / max(1, set_bytes(problem)))
    return 1 if needed <= 1 else needed + 1


def overlap_sets(problem: Problem, l2_bytes: int) -> int:
    """Sets that calls take in turn where one may begin while the one before still runs: two, unless
    an L2 of `l2_bytes` holds both. On one set memory would be read once for two calls."""
    return 1 if 2 * set_bytes(problem) <= l2_bytes else 2


def operands(
    problem: Problem,
    device: torch.device | str | int = "cuda",
    *,
    seed: int = 0,
    sets: int = 1,
    chained: bool = False,
) -> list[Operands]:
    """`sets` distinct operand sets for `problem`, reproducible from `seed` on one device kind.

    `chained` sets are layers of a model: each has its own B, all have the same A and C. A residual
    lies behind C, where `addend_of` finds it.
    """
    place = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    generator = torch.Generator(place).manual_seed(seed)
    dtype = DTYPES[problem.dtype]
    m, n, k = problem.m, problem.n, problem.k

    def arena(elements: int, normal: bool, rows: int) -> torch.Tensor:
        shape = (rows, _padded(elements))
        if normal:
            return torch.randn(shape, generator=generator, dtype=dtype, device=place)
        return torch.full(shape, math.nan, dtype=DTYPES[problem.out_dtype], device=place)

    def view(row: torch.Tensor, rows: int, cols: int, transposed: bool) -> torch.Tensor:
        flat = row[: rows * cols]
        return flat.view(cols, rows).t() if transposed else flat.view(rows, cols)

    own = 1 if chained else sets
    columns = columns_of(n, problem.epilogue)
    a, b, c = arena(m * k, True, own), arena(k * n, True, sets), arena(m * columns, False, own)
    if problem.epilogue == "residual":
        c = torch.cat([c, arena(m * n, True, own)], 1)
    return [
        Operands(
            view(a[i % own], m, k, problem.layout[0] == "t"),
            view(b[i], k, n, problem.layout[1] == "t"),
            view(c[i % own], m, columns, False),
        )
        for i in range(sets)
    ]
