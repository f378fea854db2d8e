"""Statistics of paired samples: the median ratio with its confidence interval.

Called by `timing` and the generator. `manifest.WinPolicy` says which ratio is a win: its lower
bound is above one plus the noise floor of the same harness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of paired ratios base/ours (above 1: ours is faster) with its bootstrap interval.

    `lcb` and `ucb` are the two ends of the 90% interval, hence each a one-sided 95% bound.
    """

    value: float
    lcb: float
    ucb: float
    pairs: int


def ratio(base: Sequence[float], ours: Sequence[float], *, seed: int = 0) -> Ratio:
    """Ratio of paired samples, block by block: sample i of both sides ran next to each other.

    Raises ValueError when the sides differ in length, are empty, or hold a non-positive time.
    """
    if len(base) != len(ours) or not base:
        raise ValueError(f"paired samples must match: {len(base)} against {len(ours)}")
    if min(*base, *ours) <= 0:
        raise ValueError("a time of zero or less was measured")
    pairs = torch.tensor(base, dtype=torch.float64) / torch.tensor(ours, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(pairs), (RESAMPLES, len(pairs)), generator=generator)
    medians = torch.quantile(pairs[picks], 0.5, dim=1)
    tail = torch.tensor([1.0 - CONFIDENCE, CONFIDENCE], dtype=torch.float64)
    low, high = torch.quantile(medians, tail).tolist()
    return Ratio(median(pairs.tolist()), low, high, len(pairs))
