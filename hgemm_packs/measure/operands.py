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

#: Elements at least from the end of a row to the next one's beginning, of operands with gaps.
GAP = 8


@dataclass(frozen=True, slots=True)
class Operands:
    """One set: `a` [M, K] and `b` [K, N] as `a @ b` takes them (views when stored transposed),
    and `c` [M, N], or [M, N/2] where N is gated, row-major, filled with NaN. Addresses are at
    multiples of the problem's `base` and of no more; where it is not packed so are the strides of
    A and B."""

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
    start = int(c.storage_offset())
    shift = start % SET_ALIGN
    behind = start - shift + _padded(c.numel() + shift)
    return c.as_strided(c.shape, (c.shape[1], 1), behind)


def _padded(elements: int) -> int:
    return -(-elements // SET_ALIGN) * SET_ALIGN


def _shift(base: int) -> int:
    """Elements from an aligned address to one at a multiple of `base` bytes and of no more."""
    return base // 2 % 8


def lead_of(inner: int, base: int, packed: bool) -> int:
    """Elements from row to row of an operand whose rows have `inner`; with gaps the least stride
    that is a multiple of `base` bytes and of no more."""
    if packed:
        return inner
    step = base // 2
    lead = -(-(inner + GAP) // step) * step
    return lead + step if base < 16 and lead % (2 * step) == 0 else lead


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

    def lead(rows: int, cols: int, transposed: bool, operand: int) -> int:
        return lead_of(rows if transposed else cols, problem.base[operand], problem.packed)

    def elements(rows: int, cols: int, transposed: bool, operand: int) -> int:
        outer = cols if transposed else rows
        return outer * lead(rows, cols, transposed, operand) + _shift(problem.base[operand])

    def view(
        row: torch.Tensor, rows: int, cols: int, transposed: bool, operand: int
    ) -> torch.Tensor:
        step = lead(rows, cols, transposed, operand)
        strides = (1, step) if transposed else (step, 1)
        start = row.storage_offset() + _shift(problem.base[operand])
        return row.as_strided((rows, cols), strides, start)

    own = 1 if chained else sets
    columns = columns_of(n, problem.epilogue)
    of_a, of_b = problem.layout[0] == "t", problem.layout[1] == "t"
    a, b = arena(elements(m, k, of_a, 0), True, own), arena(elements(k, n, of_b, 1), True, sets)
    shift = _shift(problem.base[2])
    c = arena(m * columns + shift, False, own)
    if problem.epilogue == "residual":
        c = torch.cat([c, arena(m * n, True, own)], 1)
    return [
        Operands(
            view(a[i % own], m, k, of_a, 0),
            view(b[i], k, n, of_b, 1),
            c[i % own][shift : shift + m * columns].view(m, columns),
        )
        for i in range(sets)
    ]
