"""Made-up samples."""

from __future__ import annotations


def samples(us: float, count: int = 9) -> list[float]:
    """Times about `us` that stray by a thousandth, the same way in every arm."""
    return [round(us * (1 + 0.001 * ((i % 3) - 1)), 6) for i in range(count)]
