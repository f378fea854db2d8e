"""The errors that the field quotes of a solution: the largest of single elements, against torch.

Called by `generate trace export --errors`, on the GPU that the table is of. The gates judge a
kernel otherwise, against float64 and by its error as a whole: these two are for a reader of traces.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from hgemm_packs import matmul, select
from hgemm_packs.measure.operands import operands
from hgemm_packs.problem import Problem

#: Keeps a relative error finite where torch's element is zero, as flashinfer-bench does.
SMALL = 1e-8
SEED = 0


class Errors(NamedTuple):
    """Of the element of C that is furthest from torch's, in units and relative to it; where."""

    absolute: float
    relative: float
    device: str


def largest_errors(ours: torch.Tensor, theirs: torch.Tensor) -> tuple[float, float]:
    """The largest absolute and relative error of [M, N] against [M, N], in float32.

    >>> largest_errors(torch.tensor([[2.0, 3.0]]), torch.tensor([[2.0, 4.0]]))
    (1.0, 0.25)
    """
    exact = theirs.float()
    off = (ours.float() - exact).abs()
    return float(off.max()), float((off / (exact.abs() + SMALL)).max())


def measure_errors(problem: Problem, kernel: str, device: int = 0) -> Errors | None:
    """The errors of `matmul` on N(0, 1) on that GPU, if the kernel of that name runs it there; None
    where another kernel or torch would. The driver's errors come through."""
    chosen = select.resolve(problem, device).kernel
    if chosen is None or chosen.name != kernel:
        return None
    (one,) = operands(problem, device, seed=SEED)
    found = largest_errors(matmul(one.a, one.b), torch.matmul(one.a, one.b))
    return Errors(*found, torch.cuda.get_device_name(device))
