"""The part of the numeric gate that chooses values: which element of A and B goes where, and sums
of other kinds than normal numbers.

Called by `numeric`. A kernel that guesses from a few elements what the rest is like, or that holds
its operands in fewer bits, is wrong here.
"""

from __future__ import annotations

import torch

from hgemm_packs.generator.gates.checker import Checker, size


def _problem(run: Checker, k: int) -> tuple[int, int, int]:
    """Two tiles each way, partly filled."""
    e = run.entry
    return *run.shape(e.grid.tile_m + 5, e.grid.tile_n + 8), size(e.k, k)


def _picks(run: Checker, count: int, below: int) -> torch.Tensor:
    return torch.randint(below, (count,), generator=run.generator, device=run.device)


def _zeros(run: Checker, rows: int, columns: int) -> torch.Tensor:
    return torch.zeros(rows, columns, dtype=run.dtype, device=run.device)


def check_indices(run: Checker) -> None:
    """Every element of C is one element of B or A, exactly: an identity, a random row of B for each
    row, a random column of A for each column; and products that are zero but for one element."""
    m, n, k = _problem(run, 200)
    in_turn = torch.arange(m, device=run.device) % k
    for rows in (in_turn, _picks(run, m, k)):
        a, b = _zeros(run, m, k), run.normal(k, n)
        a.scatter_(1, rows[:, None], 1.0)
        exact = b.double()[rows]
        run.run("indices", *run.store(a, b), *run.expect_exact(exact))
    columns = _picks(run, n, k)
    a, b = run.normal(m, k), _zeros(run, k, n)
    b.scatter_(0, columns[None], 1.0)
    exact = a.double()[:, columns]
    run.run("indices", *run.store(a, b), *run.expect_exact(exact))

    i, p, j = (int(x) for x in torch.stack([_picks(run, 1, size) for size in (m, k, n)]))
    a, b = _zeros(run, m, k), run.normal(k, n)
    a[i, p] = 1.0
    run.product("one in A", *run.store(a, b))
    a, b = run.normal(m, k), _zeros(run, k, n)
    b[p, j] = 1.0
    run.product("one in B", *run.store(a, b))
    a = torch.full_like(a, 0.5)
    a[i, p] = 8.0
    run.product("constant but one", *run.store(a, run.normal(k, n)))


def check_values(run: Checker) -> None:
    """Integers whose every partial sum both 16-bit types hold exactly, positive numbers, and
    numbers of very different sizes."""
    m, n, k = _problem(run, 248)
    most = 2 if run.entry.dtype == "f16" else 1
    a, b = (
        torch.randint(-most, most + 1, shape, generator=run.generator, device=run.device)
        for shape in ((m, k), (k, n))
    )
    exact = a.double() @ b.double()
    if k <= 248:  # else some sum may need a bit more
        stored = run.store(a.to(run.dtype), b.to(run.dtype))
        run.run("small integers", *stored, *run.expect_exact(exact))

    def uniform(rows: int, columns: int) -> torch.Tensor:
        return torch.rand(rows, columns, generator=run.generator, device=run.device)

    k = size(run.entry.k, 520)
    stored = run.store(uniform(m, k).to(run.dtype), uniform(k, n).to(run.dtype))
    run.product("positive", *stored)

    def draw_tailed(rows: int, columns: int) -> torch.Tensor:
        exponents = torch.floor(uniform(rows, columns) * 12) - 8
        return (run.normal(rows, columns) * torch.exp2(exponents)).to(run.dtype)

    run.product("heavy tails", *run.store(draw_tailed(m, k), draw_tailed(k, n)))
