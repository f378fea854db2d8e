"""Statistics of paired samples: the median ratio with its confidence interval, the noise floor of
a harness, and the figures of a row.

Called by `timing`, `tuning` and the generator. `manifest.WinPolicy` says which ratio is a win: its
lower bound is above one plus the noise floor of the same harness.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ..pack.manifest import Timing

#: The words of `WinPolicy.clears`, which is the rule: change both.
RULE = "hot and cold lcb above 1 + noise_floor against torch, which runs otherwise"
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
    import torch  # not before: who only reads figures does not need it

    here = torch.device("cpu")  # whatever device the program has made the default
    pairs = torch.tensor(base, dtype=torch.float64, device=here)
    pairs = pairs / torch.tensor(ours, dtype=torch.float64, device=here)
    generator = torch.Generator(here).manual_seed(seed)
    picks = torch.randint(len(pairs), (RESAMPLES, len(pairs)), generator=generator, device=here)
    medians = torch.quantile(pairs[picks], 0.5, dim=1)
    tail = torch.tensor([1.0 - CONFIDENCE, CONFIDENCE], dtype=torch.float64, device=here)
    low, high = torch.quantile(medians, tail).tolist()
    return Ratio(median(pairs.tolist()), low, high, len(pairs))


def noise_floor(bounds: Iterable[Mapping[str, Sequence[float]]], share: float = 0.99) -> float:
    """The quantile `share`, over problems and protocols, of how far torch strays from itself.

    `bounds` has, per problem, protocol -> (ratio, lower, upper). Not the 95th: long power-limited
    problems stray by 1.5%, most others by 0.3%, and never slower is promised for all of them.
    Raises ValueError without any.
    """
    deviations = sorted(stray(each[protocol]) for each in bounds for protocol in ("hot", "cold"))
    if not deviations:
        raise ValueError("no noise records: confirm writes them")
    return round(deviations[min(len(deviations) - 1, math.floor(share * len(deviations)))], 4)


def stray(bounds: Sequence[float]) -> float:
    """How far a ratio, given with its lower and upper bound, strays from 1."""
    return max(abs(bound - 1.0) for bound in bounds[1:])


def summarise_times(samples: Mapping[str, Sequence[float]], ours: str) -> Timing:
    """Medians in us; the paired ratio of the fallback over `ours` and its lower bound. Where
    cuBLASLt has no algorithm, torch's median stands for its own."""
    r = ratio(samples["torch"], samples[ours])
    tuned = samples.get("cublaslt", samples["torch"])
    us = [median(samples[ours]), median(samples["torch"]), median(tuned)]
    return Timing(*(round(v, 4) for v in (*us, r.value, r.lcb)))
