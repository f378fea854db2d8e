"""The part of the report that is about searching: what was proposed, by whom, and what it cost.

Called by the report's numbers. Screened times serve to compare proposals with each other; speed-ups
that are published come from finals and confirmation.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.report import metrics
from hgemm_packs.generator.report.modes import correct
from hgemm_packs.generator.store.busy import BusySeconds
from hgemm_packs.generator.store.findings import Attempt, Findings
from hgemm_packs.problem import Problem

POINTS = 300  # of a curve
NEAR = 0.05  # a search has arrived when its regret is below this

Curve = list[tuple[float, float]]


def statuses(found: Findings) -> dict[str, dict[str, int]]:
    """proposer -> status -> attempts, with "all" first; statuses in the order of the closed list.
    What a later gate refused counts as such, not as OK."""
    counts: dict[str, Counter[Status]] = defaultdict(Counter)
    for attempt in found.attempts:
        status = found.refused.get(attempt.kernel, attempt.status)
        counts["all"][status] += 1
        counts[attempt.proposer][status] += 1
    return {
        name: {status.value: counts[name][status] for status in Status if counts[name][status]}
        for name in counts
    }


def curves(found: Findings) -> dict[str, Any]:
    """Regret against budget: of the whole search on the run's budget, and of each proposer alone on
    what its own attempts cost; and the budget at which each comes within NEAR of the best known.

    The best known is the best screened time of any proposer, so all are held to the same bar.
    """
    good = [a for a in found.attempts if correct(found, a) and math.isfinite(a.us)]
    best: dict[Hashable, float] = {}
    for a in good:
        best[a.problem] = min(a.us, best.get(a.problem, math.inf))
    by_proposer: dict[str, list[Attempt]] = defaultdict(list)
    for a in found.attempts:
        by_proposer[a.proposer].append(a)
    whole = [(a.spent, a.problem, _us(found, a)) for a in found.attempts if a.problem in best]
    result = {"all": metrics.regret_curve(whole, best)} if best else {}
    for name, attempts in sorted(by_proposer.items()):
        spent, steps = 0.0, []
        for a in attempts:
            spent += a.seconds
            if a.problem in best:
                steps.append((spent, a.problem, _us(found, a)))
        mine = {a.problem: best[a.problem] for a in attempts if a.problem in best}
        if mine:
            result[name] = metrics.regret_curve(steps, mine)
    return {
        "near": NEAR,
        "curves": {name: _thin_curve(curve) for name, curve in result.items()},
        "final": {name: curve[-1][1] for name, curve in result.items()},
        "budget_to_near": {name: metrics.budget_to(c, NEAR) for name, c in result.items()},
    }


def _us(found: Findings, attempt: Attempt) -> float:
    return attempt.us if correct(found, attempt) else math.inf


def _thin_curve(curve: Sequence[tuple[float, float]]) -> Curve:
    """At most POINTS of a curve, its first and last among them."""
    if len(curve) <= POINTS:
        return list(curve)
    picks = sorted({round(i * (len(curve) - 1) / (POINTS - 1)) for i in range(POINTS)})
    return [curve[i] for i in picks]


def operators(found: Findings) -> list[dict[str, Any]]:
    """Per proposer and operator: attempts, how many were correct, how many improved on the best
    that their problem had, and by what factor (geometric mean over the improvements). First
    attempts on a problem improve on nothing and count as neither."""
    best: dict[Problem, float] = {}
    tried: Counter[tuple[str, str]] = Counter()
    right: Counter[tuple[str, str]] = Counter()
    judged: Counter[tuple[str, str]] = Counter()
    gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    for a in found.attempts:
        name, us = (a.proposer, a.operator), _us(found, a)
        before = best.get(a.problem, math.inf)
        tried[name] += 1
        right[name] += correct(found, a)
        judged[name] += math.isfinite(before)
        if us < before:
            best[a.problem] = us
            if math.isfinite(before):
                gains[name].append(before / us)
    return [
        {
            "proposer": name[0],
            "operator": name[1],
            "attempts": tried[name],
            "correct": right[name] / tried[name],
            "improved": len(gains[name]) / judged[name] if judged[name] else math.nan,
            "factor": geometric_mean(gains[name]) if gains[name] else math.nan,
        }
        for name in sorted(tried)
    ]


def busy_shares(calls: Mapping[str, BusySeconds]) -> list[dict[str, Any]]:
    """Of each call that came to an end: its wall time in s, and the shares of it in which
    compilers, GPUs and both had work."""
    return [
        {"run": run, "wall_s": one.wall}
        | {name: round(one.share(getattr(one, name)), 4) for name in ("compilers", "gpus", "both")}
        for run, one in calls.items()
    ]


def cost(found: Findings, accepted: int, wins: int) -> dict[str, Any]:
    """GPU-seconds by kind of job and per accepted kernel and win, and the hack rate."""
    total = math.fsum(found.gpu_seconds.values())
    verdicts = [found.refused.get(a.kernel, a.status) for a in found.attempts]
    hacks = sum(status is Status.HACK for status in verdicts)
    return {
        "gpu_seconds": total,
        "by_kind": dict(found.gpu_seconds),
        "per_kernel": metrics.cost_per_accepted(total, accepted),
        "per_win": metrics.cost_per_accepted(total, wins),
        "hacks": hacks,
        "hack_rate": metrics.hack_rate(hacks, len(found.attempts)),
    }
