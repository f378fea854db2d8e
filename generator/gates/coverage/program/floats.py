"""Arithmetic on floats of 32 bits as a card has it: rounded once, and reciprocals that are not the
nearest.

Called by `arithmetic`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

#: Bits of a number, mixed, say by which unit its reciprocal is off.
_MIXER: Final = np.uint32(2654435761)


def add_towards_zero(a: Array, b: Array) -> Array:
    """A sum without the digits that a float does not hold."""
    exact = _sum_to_odd(a.astype(np.float64), b.astype(np.float64))
    with np.errstate(over="ignore"):
        near = exact.astype(np.float32)
    over = np.abs(near.astype(np.float64)) > np.abs(exact)
    return np.where(over, np.nextafter(near, np.float32(0)), near)


def multiply_and_add(a: Array, b: Array, c: Array) -> Array:
    """A product, which 53 bits hold, and an addend, rounded once."""
    product = a.astype(np.float64) * b.astype(np.float64)
    with np.errstate(over="ignore"):
        return _sum_to_odd(product, c.astype(np.float64)).astype(np.float32)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """A sum of 53 bits whose last one is set where it is not exact: rounded to fewer bits it is
    what the exact one is."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = a + b
        of_b = near - a
        rest = (a - (near - of_b)) + (b - of_b)
        even = near.view(np.int64) & 1 == 0
        beside = np.nextafter(near, np.copysign(np.inf, rest))
    found: Array = np.where(np.isfinite(rest) & (rest != 0) & even, beside, near)
    return found


def reciprocal(a: Array) -> Array:
    """The nearest float."""
    with np.errstate(divide="ignore", over="ignore"):
        found: Array = np.float32(1) / a
    return found


def estimate(a: Array, flushes: bool) -> Array:
    """A reciprocal that is off by a unit at most, which follows from the number alone; that of a
    power of two is exact."""
    a = _flushed(a) if flushes else a
    near = reciprocal(a)
    mixed = a.view(np.uint32) * _MIXER >> np.uint32(16)
    off = (mixed % np.uint32(3)).astype(np.int32) - 1
    fixed = (a.view(np.int32) & 0x7FFFFF == 0) | ~np.isfinite(near) | (near == 0)
    found = np.where(fixed, near, (near.view(np.int32) + off).view(np.float32))
    return _flushed(found) if flushes else found


def _flushed(a: Array) -> Array:
    found: Array = np.where(np.abs(a) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), a), a)
    return found
