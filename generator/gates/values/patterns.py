"""The part of the numeric gate that asks which element of A and B goes where.

Called by `numeric`. A kernel that guesses from a few elements what the rest is like is wrong here.
"""

from __future__ import annotations

import torch

from hgemm_packs.generator.gates.checker import Checker
from hgemm_packs.generator.gates.values.drawn import picks, problem


def _zeros(run: Checker, rows: int, columns: int) -> torch.Tensor:
    return torch.zeros(rows, columns, dtype=run.dtype, device=run.device)


def check_indices(run: Checker) -> None:
    """Every element of C is one element of B or A, exactly: an identity, a random row of B for each
    row, a random column of A for each column; and products that are zero but for one element."""
    m, n, k = problem(run, 200)
    in_turn = torch.arange(m, device=run.device) % k
    for rows in (in_turn, picks(run, m, k)):
        a, b = _zeros(run, m, k), run.normal(k, n)
        a.scatter_(1, rows[:, None], 1.0)
        exact = b.double()[rows]
        run.run("indices", *run.store(a, b), *run.expect_exact(exact))
    columns = picks(run, n, k)
    a, b = run.normal(m, k), _zeros(run, k, n)
    b.scatter_(0, columns[None], 1.0)
    exact = a.double()[:, columns]
    run.run("indices", *run.store(a, b), *run.expect_exact(exact))

    i, p, j = (int(x) for x in torch.stack([picks(run, 1, size) for size in (m, k, n)]))
    a, b = _zeros(run, m, k), run.normal(k, n)
    a[i, p] = 1.0
    run.product("one in A", *run.store(a, b))
    a, b = run.normal(m, k), _zeros(run, k, n)
    b[p, j] = 1.0
    run.product("one in B", *run.store(a, b))
    a = torch.full_like(a, 0.5)
    a[i, p] = 8.0
    run.product("constant but one", *run.store(a, run.normal(k, n)))
