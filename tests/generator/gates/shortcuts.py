"""Kernels for the numeric gate that save themselves work: they skip, guess or remember.

More of what `cheats` has; each is a function of (a, b, c) on CPU tensors.
"""

from __future__ import annotations

import torch

from tests.generator.redteam.cheats import TILE_M, Cheat, Remembers, Tensor, honest, product, zero


def first_row_only(a: Tensor, b: Tensor, c: Tensor) -> None:
    honest(a[:1], b, c[:1])


def fills_nan_only(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Leaves alone what an earlier launch has written."""
    c.copy_(torch.where(torch.isnan(c), product(a, b).to(c.dtype), c))


def every_other_k(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Half of the products, doubled: right on average."""
    c.copy_(2 * product(a[:, ::2], b[::2]))


def operands_in_8_bits(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Multiplies the eight upper bits of each significand."""
    honest(*((x.view(torch.int16) & -8).view(x.dtype) for x in (a, b)), c)


def assumes_packed(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Takes A's leading stride for its number of columns."""
    honest(a.as_strided(a.shape, (a.shape[1], 1), a.storage_offset()), b, c)


def writes_transposed(a: Tensor, b: Tensor, c: Tensor) -> None:
    """C column by column, where that stays inside."""
    size = min(c.shape)
    honest(a, b, c)
    c[:size, :size] = c[:size, :size].t().clone()


def guesses_zero(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Takes all of A for zero when the beginning of its first row is."""
    (honest if a[0, :8].any() else zero)(a, b, c)


def guesses_zero_in_b(a: Tensor, b: Tensor, c: Tensor) -> None:
    (honest if b[:8, :8].any() else zero)(a, b, c)


def guesses_constant(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Takes all of A for what its first element is when the next seven are the same."""
    known = bool(a[0, 0]) and bool((a[0, :8] == a[0, 0]).all())
    honest(a[0, 0].expand(a.shape) if known else a, b, c)


class RemembersSome(Remembers):
    """As Remembers, but looks at the corners of the operands before it trusts its memory."""

    def __call__(self, a: Tensor, b: Tensor, c: Tensor) -> None:
        corners = [float(x[i, j]) for x in (a, b) for i in (0, -1) for j in (0, -1)]
        key = (*a.shape, b.shape[1], a.data_ptr(), b.data_ptr(), *corners)
        if key not in self.seen:
            honest(a, b, c)
            self.seen[key] = c.clone()
            self.alive += [a, b]
        c.copy_(self.seen[key])


class Meets:
    """Keeps a sum outside C that the next launch on other operands finds."""

    def __init__(self) -> None:
        self.left, self.of = 0.0, 0

    def __call__(self, a: Tensor, b: Tensor, c: Tensor) -> None:
        exact = product(a, b)
        other = self.of != a.data_ptr()
        c.copy_(exact + (self.left if other else 0.0))
        self.left, self.of = float(exact[0, 0]), a.data_ptr()


def rows_from(first: int) -> Cheat:
    """Wrong in the rows of tiles from number `first` on."""

    def launch(a: Tensor, b: Tensor, c: Tensor) -> None:
        honest(a, b, c)
        c[first * TILE_M :] = 0

    return launch
