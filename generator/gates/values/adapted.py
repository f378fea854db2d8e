"""The checks of values for kernels of batches and of groups: each case is a batch of two products,
or one weight for two groups.

Called by the gates of such kernels, which look after guards and strides themselves: here operands
and C are packed, and an element of C that two products make differently counts as unwritten.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from hgemm_packs.generator.gates import values
from hgemm_packs.generator.gates.checker import GUARD_BITS, Checker, Launch, Numeric
from hgemm_packs.pack.manifest import KernelEntry

#: Of (tokens, weights, ends, out).
GroupedLaunch = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]


def _twice(matrix: torch.Tensor, letter: str) -> torch.Tensor:
    """Two of a matrix, packed as the layout's letter says."""
    if letter == "t":
        return torch.stack((matrix.t(), matrix.t())).mT
    return torch.stack((matrix, matrix))


def of_batch(entry: KernelEntry, launch: Launch) -> Launch:
    """A batched kernel as one of single products."""

    def one(
        a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, addend: torch.Tensor | None = None
    ) -> None:
        out = c.new_full((2, *c.shape), math.nan)
        added = () if addend is None else (_twice(addend, "n"),)
        launch(_twice(a, entry.layout[0]), _twice(b, entry.layout[1]), out, *added)
        first, second = out.view(torch.int16)
        c.view(torch.int16).copy_(torch.where(first == second, first, GUARD_BITS))

    return one


def of_groups(entry: KernelEntry, launch: GroupedLaunch) -> Launch:
    """A grouped kernel as one of products: the first rows are one group, the others a second."""

    def one(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        rows = a.shape[0]
        ends = torch.tensor([rows // 3, rows], dtype=torch.int32, device=a.device)
        out = c.new_full(c.shape, math.nan)
        launch(a.contiguous(), _twice(b, entry.layout[1]), ends, out)
        c.copy_(out)

    return one


def check(
    entry: KernelEntry, launch: Launch, device: torch.device, seed: int, into: Numeric
) -> None:
    """All checks of values of such a kernel, counted in `into`. Raises NumericError for the first
    that fails."""
    run = Checker(entry, launch, device, seed)
    run.result = into
    for one in values.CHECKS:
        one(run)
        run.settle()
