"""The figures that a run is judged by, each defined once: per problem over its samples, then over
problems.

Called by the report and the search comparison. n samples of a problem are n kernels proposed for
it, c of them correct (every gate passed); s is the speed-up over torch, which runs where no kernel
does, 0 for a failure; e is the share of the roofline. Nothing here measures or reads a file.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)

#: win@p is given for these.
WIN_BARS = (1.0, 1.05, 1.1, 1.2)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that k of n samples, drawn without replacement, hold one of the c good ones.

    1 - C(n-c, k) / C(n, k), the unbiased estimator of Chen et al. 2021 (arXiv:2107.03374). With
    "compiled" as good it is compile@k. Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} of {c} good in {n} samples")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def best_at_k(values: Sequence[float], k: int) -> float:
    """Expected best of k samples drawn without replacement; failures belong in `values` as 0.

    Sum over i of C(i-1, k-1) / C(n, k) times the i-th smallest value: exact over all subsets, hence
    unbiased. Of speed-ups it is speedup@k, of roofline shares efficiency@k. Raises ValueError
    unless 1 <= k <= n.
    """
    n = len(values)
    if not 1 <= k <= n:
        raise ValueError(f"the best of {k} among {n} samples")
    subsets = math.comb(n, k)
    return math.fsum(
        math.comb(i, k - 1) / subsets * value for i, value in enumerate(sorted(values))
    )


def win_at(speedups: Sequence[float], bar: float) -> float:
    """win@p: share of problems faster than `bar` times the baseline; 0 stands for a problem without
    a correct kernel. NaN without problems."""
    return sum(s > bar for s in speedups) / len(speedups) if speedups else math.nan


def fast_at(samples: Iterable[Sequence[float]], bar: float, k: int = 1) -> float:
    """fast_p: the share of problems on which one of k samples, drawn without replacement, is
    correct and faster than `bar` times the baseline; with all samples of each it is win@p. Failures
    are 0. The unbiased mean over the problems with at least k samples; NaN without any."""
    enough = [values for values in samples if len(values) >= k]
    shares = (pass_at_k(len(v), sum(x > bar for x in v), k) for v in enough)
    return fmean(shares) if enough else math.nan


def fallback_value(speedups: Sequence[float]) -> float:
    """Pack value: geometric mean of max(s, 1), what a user gets who falls back to the baseline
    wherever no kernel is faster. NaN without problems."""
    return geometric_mean([max(s, 1.0) for s in speedups]) if speedups else math.nan


def flop_weighted_mean(speedups: Sequence[float], work: Sequence[float]) -> float:
    """Geometric mean in which a problem counts by its floating-point operations. NaN without
    problems; raises ValueError for a speed-up that is not positive or lists that do not match."""
    if not speedups:
        return math.nan
    logs = (w * math.log(s) for s, w in zip(speedups, work, strict=True))
    return math.exp(math.fsum(logs) / math.fsum(work))


@dataclass(frozen=True, slots=True)
class Speedups:
    """Speed-ups over problems. The first four are over the problems with a correct kernel and
    before any fallback; `win` and `value` are over all, `fallback` is the share of all that the
    baseline serves. An arithmetic mean of ratios is not among them: it rewards spread."""

    problems: int
    measured: int
    geometric_mean: float
    median: float
    worst: float
    flop_weighted: float
    win: Mapping[float, float]
    value: float
    fallback: float


def speedups(values: Sequence[float], work: Sequence[float]) -> Speedups:
    """Every figure of `Speedups`; `values` has 0 for a problem without a correct kernel, `work`
    the operations of each. Means are NaN where nothing was measured."""
    pairs = [(s, f) for s, f in zip(values, work, strict=True) if s > 0]
    found = [s for s, _ in pairs]
    return Speedups(
        problems=len(values),
        measured=len(found),
        geometric_mean=geometric_mean(found) if found else math.nan,
        median=median(found) if found else math.nan,
        worst=min(found, default=math.nan),
        flop_weighted=flop_weighted_mean(found, [f for _, f in pairs]),
        win={bar: win_at(values, bar) for bar in WIN_BARS},
        value=fallback_value(values),
        fallback=1.0 - win_at(values, 1.0),
    )


def mean_at_k(
    samples: Iterable[Sequence[float]], ks: Sequence[int]
) -> dict[int, tuple[float, float, int]]:
    """k -> (pass@k, best@k, problems), each the mean over the problems with at least k samples;
    positive values are the good ones. A k that no problem reaches is left out."""
    listed = [list(values) for values in samples]
    result = {}
    for k in ks:
        enough = [values for values in listed if len(values) >= k]
        if enough:
            passed = fmean(pass_at_k(len(v), sum(x > 0 for x in v), k) for v in enough)
            result[k] = (passed, fmean(best_at_k(v, k) for v in enough), len(enough))
    return result


def regret_curve(
    steps: Iterable[tuple[float, Key, float]], best_us: Mapping[Key, float]
) -> list[tuple[float, float]]:
    """(budget spent, mean regret) at every change, from (budget spent, problem, us) in the order of
    spending; failures have infinite us.

    The regret of a problem is the share of the best known speed that its best kernel so far does
    not reach: 1 - best_us / us, and 1 while it has none. The mean is over all of `best_us`, reached
    or not. Raises ValueError when a step beats `best_us` or spending falls.
    """
    reached = dict.fromkeys(best_us, 0.0)
    curve = [(0.0, 1.0)] if reached else []
    spent = total = 0.0
    for cost, problem, us in steps:
        if cost < spent:
            raise ValueError(f"spending falls from {spent} to {cost}")
        spent = cost
        share = best_us[problem] / us
        if share > 1.0:
            raise ValueError(f"{problem}: {us} us beats the best known, {best_us[problem]} us")
        if share > reached[problem]:
            total += share - reached[problem]
            reached[problem] = share
            curve.append((spent, max(0.0, 1.0 - total / len(reached))))
    if curve and spent > curve[-1][0]:
        curve.append((spent, curve[-1][1]))
    return curve


def budget_to(curve: Sequence[tuple[float, float]], regret: float) -> float:
    """Budget at which a curve first comes down to `regret`; infinite when it never does."""
    return next((cost for cost, value in curve if value <= regret), math.inf)


def cost_per_accepted(cost: float, accepted: int) -> float:
    """Cost (GPU-seconds, compile-seconds, tokens) of one accepted kernel; infinite when none is."""
    return cost / accepted if accepted else math.inf


def hack_rate(quarantined: int, proposed: int) -> float:
    """Share of what was proposed that was quarantined; NaN when nothing was."""
    return quarantined / proposed if proposed else math.nan
