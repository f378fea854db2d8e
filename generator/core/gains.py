"""What a kernel gained on torch in one job, hot and cold, and means of that.

A run ranks by it while it goes on; what a table says follows from paired samples (`judge`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from hgemm_packs.generator.core.spec import FALLBACK, PROTOCOLS, Reply, Result


def ratios(reply: Reply, result: Result) -> tuple[float, float]:
    """The table's fallback over ours, medians, hot and cold; 0 where either is missing."""
    found = []
    for protocol in PROTOCOLS:
        ours = result.samples.get(protocol)
        theirs = reply.baselines.get(FALLBACK, {}).get(protocol)
        found.append(median(theirs) / median(ours) if ours and theirs else 0.0)
    return found[0], found[1]


def wins(gains: tuple[float, float]) -> bool:
    """Whether ours is ahead hot and cold."""
    return min(gains) > 1.0


def mean(gains: tuple[float, float]) -> float:
    return math.sqrt(gains[0] * gains[1])


def geometric(values: Mapping[object, float] | Sequence[float]) -> float:
    """Geometric mean; 1 of nothing."""
    listed = list(values.values()) if isinstance(values, Mapping) else list(values)
    return math.exp(sum(map(math.log, listed)) / len(listed)) if listed else 1.0
