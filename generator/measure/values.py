"""Whether C is A @ B, on the very operands that a kernel is timed with.

Called by every measuring step; a screen of values that any right kernel passes, not the numeric
gate. The reference is computed once for a set of operands and compared on the device, so that a
verdict costs a few launches and one read. Runs on any torch device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from hgemm_packs.generator.gates.rounding import SIGNIFICAND_BITS
from hgemm_packs.measure.epilogue import finish, spread_gated
from hgemm_packs.measure.operands import Operands, addend_of
from hgemm_packs.problem import WITHOUT_ADDEND, Problem

SAMPLE_ROWS = 64
#: Relative error of the whole that a right kernel may have, over that of rounding alone.
ALLOWED = 1.25


@dataclass(frozen=True, slots=True)
class Finding:
    """What a comparison found: the relative error of all elements together, the elements that are
    wrong or not finite, and the relative error that is allowed."""

    error: float
    wrong: int
    allowed: float

    @property
    def detail(self) -> str:
        """Empty when the values are right."""
        if self.wrong == 0 and self.error <= self.allowed:
            return ""
        return f"{self.wrong} elements wrong, relative error {self.error:.2e}"


class Reference:
    """The product of one set of operands: all of it in float32, or some rows in float64."""

    def __init__(self, problem: Problem, one: Operands, rows: torch.Tensor | None = None) -> None:
        wide = torch.float32 if rows is None else torch.float64
        a = one.a if rows is None else one.a[rows]
        self._rows = rows
        plain = problem.epilogue == "none"
        added = None if problem.epilogue in WITHOUT_ADDEND else addend_of(problem.epilogue, one.c)
        if added is not None and added.ndim == 2 and rows is not None:
            added = added[rows]
        sums = a.to(wide) @ one.b.to(wide)
        self.exact = finish(problem.epilogue, sums, added)
        bits = SIGNIFICAND_BITS[problem.out_dtype]
        # Half a unit in the last place, and what fp32 sums in any order may differ by where the
        # terms are normal: |A| @ |B| is about 0.64 K.
        self._relative = 2.0**-bits
        self._slack: torch.Tensor | float = (problem.k / 16 + 4) * 2.0**-22 * problem.k
        if problem.epilogue == "gated_silu":
            self._slack = spread_gated(sums, 1.2 * self._slack + 2.0**-18)
        elif not plain:  # one addend more, and functions that are steeper than 1 and inexact
            self._slack = 1.2 * self._slack + 2.0**-18
        self._scale = self.exact.norm().clamp_min(1e-30)
        rounded = self.exact.to(one.c.dtype)
        ideal = float((rounded - self.exact).norm() / self._scale)
        self.allowed = ALLOWED * ideal + 2.0**-20

    @property
    def bytes(self) -> int:
        """Device memory that it holds."""
        slack = self._slack if isinstance(self._slack, torch.Tensor) else None
        return sum(t.numel() * t.element_size() for t in (self.exact, slack) if t is not None)

    def compare(self, c: torch.Tensor) -> torch.Tensor:
        """Queue the comparison of a whole C; `read` makes a finding of it."""
        got = c if self._rows is None else c[self._rows]
        error = (got - self.exact).abs_()
        wrong = (error > self._relative * self.exact.abs() + self._slack).sum()
        unwritten = (~torch.isfinite(c)).sum()
        return torch.stack([(error.norm() / self._scale).double(), wrong + unwritten])

    def read(self, queued: torch.Tensor) -> Finding:
        """Wait for a comparison."""
        error, wrong = queued.tolist()
        return Finding(error if math.isfinite(error) else math.inf, int(wrong), self.allowed)

    def check(self, c: torch.Tensor) -> Finding:
        """Compare and wait."""
        return self.read(self.compare(c))


def sample_reference(problem: Problem, one: Operands, seed: int) -> Reference:
    """A reference of some rows in float64, drawn by `seed`."""
    generator = torch.Generator(one.a.device).manual_seed(seed)
    count = min(SAMPLE_ROWS, problem.m)
    rows = torch.randperm(problem.m, generator=generator, device=one.a.device)[:count]
    return Reference(problem, one, rows)
