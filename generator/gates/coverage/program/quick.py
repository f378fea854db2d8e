"""Arithmetic of large arrays that numpy is slow at.

Called by `bounds` and by what reads tiles, for each access of each thread.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array

_EXACT: Final = 1 << 52  # numbers below have exact floats


def numbers_in(place: Array) -> list[int]:
    """The different numbers in an array, in their order."""
    low, high = int(place.min()), int(place.max())
    return [low] if low == high else [int(each) for each in np.unique(place)]


def divided(numbers: Array, by: Array) -> Array:
    """Quotients rounded down, by numbers above zero. Floats are much faster than integers."""
    if np.abs(numbers).max(initial=0) >= _EXACT:
        found: Array = numbers // by
        return found
    near = (numbers / by).astype(np.int64)
    rest = numbers - near * by
    near += rest >= by
    near -= rest < 0
    return near
