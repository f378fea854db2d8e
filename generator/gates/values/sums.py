"""Sums of other kinds than those of normal numbers."""

from __future__ import annotations

import torch

from hgemm_packs.generator.gates.checker import Checker, size
from hgemm_packs.generator.gates.values.drawn import integers, problem, uniform


def check_values(run: Checker) -> None:
    """Integers whose every partial sum both 16-bit types hold exactly, positive numbers, and
    numbers of very different sizes."""
    m, n, k = problem(run, 248)
    most = 2 if run.entry.dtype == "f16" else 1
    a, b = integers(run, most, m, k), integers(run, most, k, n)
    exact = a.double() @ b.double()
    if k <= 248:  # else some sum may need a bit more
        stored = run.store(a.to(run.dtype), b.to(run.dtype))
        run.run("small integers", *stored, *run.expect_exact(exact))

    k = size(run.entry.k, 520)
    stored = run.store(uniform(run, m, k).to(run.dtype), uniform(run, k, n).to(run.dtype))
    run.product("positive", *stored)

    def draw_tailed(rows: int, columns: int) -> torch.Tensor:
        exponents = torch.floor(uniform(run, rows, columns) * 12) - 8
        return (run.normal(rows, columns) * torch.exp2(exponents)).to(run.dtype)

    run.product("heavy tails", *run.store(draw_tailed(m, k), draw_tailed(k, n)))
