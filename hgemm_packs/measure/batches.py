"""Operands of batches, packed or not, random-normal, beside a C of NaN.

Called by the self-test and the benchmark. Where a batch is not packed, rows of its matrices stand
in turn, the first of each and then the second, as those of attention's heads do: whatever the
strides are, a kernel gets them from tensor maps.
"""

from __future__ import annotations

import math

import torch

from ..problem import Problem
from .operands import DTYPES, Operands


def batch(problem: Problem, source: torch.Generator) -> Operands:
    """One set for `problem`, drawn from `source`, on its device."""
    dtype, batches = DTYPES[problem.dtype], problem.batches
    m, n, k = problem.m, problem.n, problem.k

    def normal(rows: int, columns: int, transposed: bool) -> torch.Tensor:
        stored = (columns, rows) if transposed else (rows, columns)
        shape = (batches, *stored) if problem.packed else (stored[0], batches, stored[1])
        drawn = torch.randn(shape, generator=source, dtype=dtype, device=source.device)
        drawn = drawn if problem.packed else drawn.transpose(0, 1)
        return drawn.mT if transposed else drawn

    a = normal(m, k, problem.layout[0] == "t")
    b = normal(k, n, problem.layout[1] == "t")
    return Operands(a, b, torch.full((batches, m, n), math.nan, dtype=dtype, device=source.device))
