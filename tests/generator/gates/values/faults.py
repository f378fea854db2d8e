"""Kernels that are wrong on some values alone, each a function of (a, b, c) on CPU tensors.

More of what `tests/generator/redteam/cheats.py` has; right on normal numbers, or nearly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from tests.generator.redteam.cheats import Cheat, Tensor, honest, product

Change = Callable[[Tensor], Tensor]


def on_operands(change: Change, which: str = "ab") -> Cheat:
    """Right, of changed operands."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(change(a) if "a" in which else a, change(b) if "b" in which else b, c)

    return launch


def on_sums(change: Callable[[Tensor, torch.dtype], Tensor]) -> Cheat:
    """Right sums, rounded or stored otherwise."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        c.copy_(change(product(a, b), c.dtype))

    return launch


def clip(most: float) -> Change:
    return lambda x: torch.where(x.isfinite(), x.clamp(-most, most), x)


def flush_below(least: float) -> Change:
    return lambda x: torch.where(x.abs() < least, torch.zeros_like(x), x)


def without_nan(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), torch.zeros_like(x), x)


def without_signalling_nan(x: Tensor) -> Tensor:
    """NaN whose first bit of the significand is not set becomes zero."""
    quiet = {torch.float16: 0x0200, torch.bfloat16: 0x0040}[x.dtype]
    signals = x.isnan() & (x.view(torch.int16) & quiet == 0)
    return torch.where(signals, torch.zeros_like(x), x)


def infinity_as_largest(x: Tensor) -> Tensor:
    largest = torch.finfo(x.dtype).max
    return torch.where(x.isinf(), x.clamp(-largest, largest), x)


def without_minus_infinity(x: Tensor) -> Tensor:
    return torch.where(x == -math.inf, torch.zeros_like(x), x)


def of_the_last_k(change: Change) -> Cheat:
    """Operands are changed in the last eight of K alone."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        k = max(0, a.shape[1] - 8)
        honest(torch.cat([a[:, :k], change(a[:, k:])], dim=1), b, c)

    return launch


def in_one_column(change: Change) -> Cheat:
    """Column 3 of each eight of B is changed."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        other = b.clone()
        other[:, 3::8] = change(b[:, 3::8])
        honest(a, other, c)

    return launch


def saturate(low: bool, high: bool) -> Cheat:
    def change(sums: Tensor, dtype: torch.dtype) -> Tensor:
        most = torch.finfo(dtype).max
        held = sums.clamp(-most if low else -math.inf, most if high else math.inf)
        return torch.where(sums.isfinite(), held, sums)

    return on_sums(change)


def overflow_late(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """What is nearer to the largest number than to twice it becomes the largest: no infinity at the
    tie."""
    most = torch.finfo(dtype).max
    near = (sums.abs() > most) & (sums.abs() <= {torch.float16: 65520.0}.get(dtype, 3.3961775e38))
    return torch.where(near, sums.sign() * most, sums)


def nan_for_overflow(sums: Tensor, dtype: torch.dtype) -> Tensor:
    over = sums.to(dtype).isinf() & sums.isfinite()
    return torch.where(over, torch.full_like(sums, math.nan), sums)


def _spacing(sums: Tensor, dtype: torch.dtype) -> Tensor:
    bits = {torch.float16: 11, torch.bfloat16: 8}[dtype]
    least = math.log2(torch.finfo(dtype).smallest_normal) + 1
    exponent = torch.frexp(sums).exponent.clamp_min(int(least))
    return torch.exp2((exponent - bits).double())


def ties(how: Callable[[Tensor], Tensor]) -> Cheat:
    """Sums in units in the last place, rounded by `how`."""

    def change(sums: Tensor, dtype: torch.dtype) -> Tensor:
        unit = _spacing(sums, dtype)
        return torch.where(sums.isfinite(), how(sums.double() / unit) * unit, sums.double())

    return on_sums(change)


def away_from_zero(x: Tensor) -> Tensor:
    return x.sign() * (x.abs() + 0.5).floor()


def towards_zero(x: Tensor) -> Tensor:
    return x.sign() * (x.abs() - 0.5).ceil()


def upwards(x: Tensor) -> Tensor:
    return (x + 0.5).floor()


def minus_zero(sums: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.where(sums == 0, torch.full_like(sums, -0.0), sums)


def no_minus_zero(sums: Tensor, dtype: torch.dtype) -> Tensor:
    return sums.to(dtype).float() + 0.0


def skip_zero_blocks(which: str) -> Cheat:
    """Leaves out sixteen of K where a block of sixteen rows of A, or columns of B, is zero."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        if which == "b":
            return launch_b(a, b, c)
        for row in range(0, a.shape[0], 16):
            part = a[row : row + 16]
            kept = [k for k in range(0, a.shape[1], 16) if part[:, k : k + 16].any()]
            picked = [k for first in kept for k in range(first, min(first + 16, a.shape[1]))]
            honest(part[:, picked], b[picked], c[row : row + 16])

    def launch_b(a: Tensor, b: Tensor, c: Tensor) -> None:
        for column in range(0, b.shape[1], 16):
            part = b[:, column : column + 16]
            kept = [k for k in range(0, a.shape[1], 16) if part[k : k + 16].any()]
            picked = [k for first in kept for k in range(first, min(first + 16, a.shape[1]))]
            honest(a[:, picked], part[picked], c[:, column : column + 16])

    return launch


def constant_blocks(x: Tensor) -> Tensor:
    """Blocks of 16 x 16 are taken for constant where their corners are alike."""
    x = x.clone()
    for i in range(0, x.shape[0], 16):
        for j in range(0, x.shape[1], 16):
            block = x[i : i + 16, j : j + 16]
            corners = block[[0, 0, -1, -1], [0, -1, 0, -1]]
            if bool((corners == corners[0]).all()):
                block.fill_(float(corners[0]))
    return x


def zero_blocks(x: Tensor) -> Tensor:
    """Blocks of 16 x 16 are taken for zero where their diagonal is."""
    x = x.clone()
    for i in range(0, x.shape[0], 16):
        for j in range(0, x.shape[1], 16):
            if not x[i : i + 16, j : j + 16].diagonal().any():
                x[i : i + 16, j : j + 16] = 0
    return x


def blocks_of_ones(x: Tensor) -> Tensor:
    """Blocks of 16 x 16 are taken for ones where their first row is."""
    x = x.clone()
    for i in range(0, x.shape[0], 16):
        for j in range(0, x.shape[1], 16):
            if bool((x[i, j : j + 16] == 1).all()):
                x[i : i + 16, j : j + 16] = 1
    return x


def rows_as_the_first(x: Tensor) -> Tensor:
    """A row that begins as the first one does is taken for it."""
    alike = (x[:, :4] == x[:1, :4]).all(1)
    return torch.where(alike[:, None], x[:1], x)


def columns_as_the_first(x: Tensor) -> Tensor:
    return rows_as_the_first(x.t()).t()


def mirrored(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Takes the product for symmetric where A and B begin at one address."""
    honest(a, b, c)
    if a.data_ptr() == b.data_ptr():
        size = min(c.shape)
        c[:size, :size] = c[:size, :size].triu() + c[:size, :size].triu(1).t()


def once_read(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Takes B for A turned round where they begin at one address."""
    same = a.data_ptr() == b.data_ptr()
    if same and a.shape[0] >= b.shape[1]:
        b = a[: b.shape[1]].t()
    elif same:
        b = torch.zeros_like(b)
    honest(a, b, c)


def in_half(x: Tensor) -> Tensor:
    return x.to(torch.float16).float()


def in_eleven_bits(x: Tensor) -> Tensor:
    """Of any exponent, as fp16 has them."""
    unit = torch.exp2((torch.frexp(x).exponent - 11).float())
    return torch.where(x.isfinite() & (x != 0), torch.round(x / unit) * unit, x)


def unless_it_shows(narrow: Change) -> Change:
    """Integers and large numbers stay as they are."""
    return lambda x: torch.where((x.abs() < 512) & (x != x.trunc()), narrow(x), x)


def first_part(share: float, narrow: Change, from_k: int = 0) -> Cheat:
    """The sum over the first `share` of K loses digits."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        k = int(a.shape[1] * share) if a.shape[1] >= from_k else 0
        c.copy_(narrow(product(a[:, :k], b[:k])) + product(a[:, k:], b[k:]))

    return launch


def parts(size: int, narrow: Change, from_k: int = 0) -> Cheat:
    """Sums over `size` of K each lose digits, and are added in fp32."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        if a.shape[1] < from_k:
            return honest(a, b, c)
        pairs = zip(a.split(size, 1), b.split(size, 0), strict=True)
        c.copy_(sum(narrow(product(x, y)) for x, y in pairs))  # type: ignore[arg-type]

    return launch
