"""Operands that are no random numbers: outliers, blocks of zeros and of constants, repeated rows,
A and B of the same memory.

A kernel that tells from some elements what the others are like, or leaves out what seems to add
nothing, is wrong here.
"""

from __future__ import annotations

import torch

from hgemm_packs.generator.families.computed import GATED
from hgemm_packs.generator.gates.checker import Checker, operand
from hgemm_packs.generator.gates.values.drawn import picks, problem, signs, spread, uniform

SHARE_OF_OUTLIERS = 1 / 24
#: Sizes of outliers, as powers of two; what is beside them is normal.
OUTLIERS = {"f16": (5.0, 15.9), "bf16": (5.0, 60.0)}
BLOCK = 16  # rows, and columns, of blocks: what an instruction takes at a time
SHARE_OF_SPECKS = 1 / 200


def check_outliers(run: Checker) -> None:
    """Some numbers of up to the type's largest among normal ones, in A and then in B: none is
    clipped."""
    m, n, k = problem(run, 200)
    low, high = OUTLIERS[run.entry.dtype]
    if run.entry.epilogue == GATED:
        high /= 2  # two sums are multiplied

    def among(rows: int, columns: int) -> torch.Tensor:
        sizes = torch.exp2(low + (high - low) * uniform(run, rows, columns))
        outlier = uniform(run, rows, columns) < SHARE_OF_OUTLIERS
        values = torch.where(outlier, sizes * signs(run, rows, columns), run.normal(rows, columns))
        return values.to(run.dtype)

    beside = 2.0**-6 if run.entry.dtype == "f16" else 1.0
    run.product("outliers in A", *run.store(among(m, k), run.normal(k, n) * beside))
    run.product("outliers in B", *run.store(run.normal(m, k) * beside, among(k, n)))


def _blocks(run: Checker, rows: int, columns: int, values: torch.Tensor) -> torch.Tensor:
    """A matrix of blocks, each of which is all one of `values`, in random order."""
    down, across = -(-rows // BLOCK), -(-columns // BLOCK)
    each = values.to(run.device)[picks(run, down * across, len(values))].view(down, across)
    whole = each.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return whole[:rows, :columns].to(run.dtype)


def _speckle(run: Checker, matrix: torch.Tensor) -> torch.Tensor:
    """`matrix` with a few normal numbers in it."""
    speck = uniform(run, *matrix.shape) < SHARE_OF_SPECKS
    return torch.where(speck, run.normal(*matrix.shape), matrix)


def check_blocks(run: Checker) -> None:
    """Blocks of zeros and of constants with a few other elements, in A, in B and in both; and
    blocks of zeros in one that meet NaN and infinities in the other."""
    m, n, k = problem(run, 200)
    kinds = {
        "zero blocks": torch.zeros(1),
        "constant blocks": torch.tensor([0.0, 1.0, -0.5, 0.25]),
        "blocks of zeros and ones": torch.tensor([0.0, 0.0, 1.0]),
    }
    for name, values in kinds.items():
        a, b = (_speckle(run, _blocks(run, *each, values)) for each in ((m, k), (k, n)))
        run.product(f"{name} in A", *run.store(a, run.normal(k, n)))
        run.product(f"{name} in B", *run.store(run.normal(m, k), b))
    run.product(f"{name} in both", *run.store(a, b))

    halves = torch.tensor([0.0, 1.0])
    columns = torch.arange(0, n, 2, device=run.device)  # the others stay finite
    a, b = run.normal(m, k) * _blocks(run, m, k, halves), run.normal(k, n)
    b[spread(run, len(columns), k), columns] = _no_numbers(run, len(columns))
    run.product("zero blocks of A that meet specials", *run.store(a, b))
    rows = torch.arange(0, m, 2, device=run.device)
    a, b = run.normal(m, k), run.normal(k, n) * _blocks(run, k, n, halves)
    a[rows, spread(run, len(rows), k)] = _no_numbers(run, len(rows))
    run.product("zero blocks of B that meet specials", *run.store(a, b))


def _no_numbers(run: Checker, count: int) -> torch.Tensor:
    """NaN and infinities in random order."""
    return torch.where(uniform(run, count) < 0.5, torch.inf, torch.nan).to(run.dtype)


def check_repeats(run: Checker) -> None:
    """Rows of A, and columns of B, that are all alike but in one place."""
    m, n, k = problem(run, 200)
    a = run.normal(1, k).repeat(m, 1)
    rows = torch.arange(m, device=run.device)
    a[rows[1::2], picks(run, len(rows[1::2]), k)] = 3.0
    run.product("repeated rows", *run.store(a, run.normal(k, n)))
    b = run.normal(k, 1).repeat(1, n)
    columns = torch.arange(n, device=run.device)
    b[picks(run, len(columns[1::2]), k), columns[1::2]] = 3.0
    run.product("repeated columns", *run.store(run.normal(m, k), b))


def check_same_memory(run: Checker) -> None:
    """A and B in the same memory, from the same address on: a gram matrix where the layout makes
    one of that, a matrix times itself where not."""
    e = run.entry
    m, n, k = problem(run, 72)
    if e.epilogue != GATED:  # C has fewer columns, and nothing is symmetric
        m = n = max(m, n) if run.shape(max(m, n), max(m, n)) == (max(m, n),) * 2 else min(m, n)
        m, n = run.shape(m, n)
    of_a = (k, m) if e.layout[0] == "t" else (m, k)
    of_b = (n, k) if e.layout[1] == "t" else (k, n)
    rows, columns = max(of_a[0], of_b[0]), max(of_a[1], of_b[1])
    align = max(e.align[0], e.align[1])
    whole = operand(run.normal(rows, columns), False, align)
    a, b = (whole[: size[0], : size[1]] for size in (of_a, of_b))
    a, b = (x.t() if letter == "t" else x for x, letter in zip((a, b), e.layout, strict=True))
    run.keep(a, b)
    run.product("A and B in the same memory", a, b)
