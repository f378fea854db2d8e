"""Infinities and NaN in every place of a tile: each row, each column, positions all over K.

A special operand makes a whole row or column of C what it is. One launch has one of them in every
other row of A and one in every other column of B, so that each element of C meets none, one or two.
A tenth of the other elements is zero: an infinity that meets one makes NaN.
"""

from __future__ import annotations

import torch

from hgemm_packs.generator.gates.checker import Checker, size
from hgemm_packs.generator.gates.values.drawn import picks, problem, spread, uniform
from hgemm_packs.generator.gates.values.ring import ring_depth

#: Infinities, and NaN of every kind: quiet, signalling, negative, and with every bit.
SPECIALS = {
    "f16": (0x7C00, 0xFC00, 0x7E00, 0x7C00, 0xFC00, 0x7C01, 0xFE00, 0xFFFF),
    "bf16": (0x7F80, 0xFF80, 0x7FC0, 0x7F80, 0xFF80, 0x7F81, 0xFFC0, 0xFFFF),
}
SHARE_OF_ZEROS = 0.1
#: Launches at a depth of few k-tiles, and as deep as all that shares K goes.
SHALLOW, DEEP = 4, 2


def _specials(run: Checker, count: int) -> torch.Tensor:
    """Bits of so many specials, in random order."""
    bits = torch.tensor(SPECIALS[run.entry.dtype], device=run.device)
    bits = torch.where(bits >= 1 << 15, bits - (1 << 16), bits).to(torch.int16)
    return bits[picks(run, count, len(bits))]


def _with_zeros(run: Checker, rows: int, columns: int) -> torch.Tensor:
    zero = uniform(run, rows, columns) < SHARE_OF_ZEROS
    return run.normal(rows, columns).masked_fill(zero, 0.0)


def check_specials(run: Checker) -> None:
    """NaN, Inf and overflow stay in their own row, column or element; two runs agree bit for bit.

    The special values are written over operands that the kernel has seen before, so that a result
    kept from an earlier launch shows.
    """
    m, n, k = problem(run, 200)
    a, b = run.store(run.normal(m, k), run.normal(k, n))
    run.product("repeat", a, b, runs=2)
    a[max(0, m - 2), k - 1], b[0, max(0, n - 3)] = float("nan"), float("inf")
    a[0, :], b[:, min(1, n - 1)] = 256.0, 256.0  # 65536 K: above fp16's largest
    run.keep(a, b)
    run.product("specials", a, b)


def _place(run: Checker, m: int, n: int, k: int, turn: int) -> None:
    """One launch: specials in the rows and columns whose number is odd or even, as `turn` is, at
    places that go through K from launch to launch."""
    a, b = _with_zeros(run, m, k), _with_zeros(run, k, n)
    rows = torch.arange(turn % 2, m, 2, device=run.device)
    columns = torch.arange((turn + turn // 2) % 2, n, 2, device=run.device)
    a.view(torch.int16)[rows, spread(run, len(rows), k)] = _specials(run, len(rows))
    b.view(torch.int16)[spread(run, len(columns), k), columns] = _specials(run, len(columns))
    run.product("places", *run.store(a, b))


def check_places(run: Checker) -> None:
    """Specials all over a tile, in A, in B and in what is added; the result of each element is of
    the class that float64 gives it."""
    m, n, k = problem(run, 200)
    for turn in range(SHALLOW):
        _place(run, m, n, k, turn)
    deep = size(run.entry.k, ring_depth(run.entry) + 72)
    for turn in range(DEEP):
        _place(run, m, n, deep, turn)
    addend = run.addend(m, n)
    if addend is None:
        return
    a, b = run.store(run.normal(m, k), run.normal(k, n))
    flat = addend.reshape(-1)
    flat.view(torch.int16)[::3] = _specials(run, len(flat[::3]))
    run.keep(a, b)
    run.product("places of the addend", a, b)
    run.rewrite_addend()
