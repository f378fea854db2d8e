"""Searches against each other on recorded times: how near the optimum after how many measurements,
what a policy knows of shapes that it has not seen, and whether a difference is chance.

Called by the replay benchmark and tests. Everything follows from recording, factory and seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal
from hgemm_packs.generator.devices.replay import ReplayBench
from hgemm_packs.generator.search.base import Strategy
from hgemm_packs.generator.search.history import History
from hgemm_packs.generator.search.policy import Policy, PolicySearch
from hgemm_packs.generator.search.prior import rows_of
from hgemm_packs.problem import Problem

#: What a problem counts until something has worked on it.
NOTHING_WORKS = 0.01

#: Share of the optimum after each measurement.
Curve = list[float]


class Chosen:
    """The best of some measurements of one problem: chosen by what was measured, as a search must,
    judged by the true time."""

    def __init__(self, bench: ReplayBench, problem: Problem) -> None:
        self._bench, self._problem = bench, problem
        self._us = math.inf
        self.share = NOTHING_WORKS

    def add(self, outcome: Outcome) -> None:
        if outcome.us < self._us:
            self._us = outcome.us
            self.share = self._bench.share(self._problem, outcome.proposal.choice)


def run(
    strategy: Strategy,
    bench: ReplayBench,
    problems: Sequence[Problem],
    seed: int,
    *,
    budget: int,
    batch: int,
    heard: History | None = None,
) -> dict[Problem, Curve]:
    """Search all `problems` in rounds, each in an order of its own: ask `batch`, measure, tell.

    `heard` is told everything too. A strategy that has no more to propose keeps what it has.
    """
    chosen = {problem: Chosen(bench, problem) for problem in problems}
    curves: dict[Problem, Curve] = {problem: [] for problem in problems}
    order = random.Random(f"order {seed}")
    for start in range(0, budget, batch):
        size = min(batch, budget - start)
        for problem in order.sample(problems, len(problems)):
            space = bench.spaces[problem]
            outcomes = bench.measure(problem, strategy.ask(space, size))
            for outcome in outcomes:
                chosen[problem].add(outcome)
                curves[problem].append(chosen[problem].share)
            strategy.tell(space, outcomes)
            if heard is not None:
                heard.add(problem, outcomes)
            curves[problem] += [chosen[problem].share] * (start + size - len(curves[problem]))
    return curves


def geometric_mean(shares: Iterable[float]) -> float:
    return math.exp(fmean(map(math.log, shares)))


def mean_curve(curves: Iterable[Curve]) -> Curve:
    """Geometric mean over curves of one length, measurement by measurement."""
    return [geometric_mean(column) for column in zip(*curves, strict=True)]


def first_best(
    bench: ReplayBench, problem: Problem, ranked: Sequence[Choice], counts: Sequence[int]
) -> list[float]:
    """Share of the optimum of the best of the first k of a ranking, for each k of `counts`."""
    proposals = [Proposal(choice, "ranking") for choice in ranked[: max(counts)]]
    chosen, shares = Chosen(bench, problem), []
    for outcome in bench.measure(problem, proposals):
        chosen.add(outcome)
        shares.append(chosen.share)
    return [shares[count - 1] for count in counts]


def halves(
    bench: ReplayBench, seed: int, *, budget: int, batch: int, counts: Sequence[int]
) -> dict[str, list[float]]:
    """Rankings of problems never met: by the prior, by the policy as its own search on the other
    half has left it ("reinforced"), and by one fitted to what that search was told ("fitted").

    The seed draws the halves; both directions, so that each problem is judged once. Geometric means
    over problems of `first_best`.
    """
    problems = list(bench.spaces)
    random.Random(f"halves {seed}").shuffle(problems)
    middle = len(problems) // 2
    shares: dict[str, list[list[float]]] = {"prior": [], "reinforced": [], "fitted": []}
    for train, test in (
        (problems[:middle], problems[middle:]),
        (problems[middle:], problems[:middle]),
    ):
        search, heard = PolicySearch(seed), History()
        run(search, bench, train, seed, budget=budget, batch=batch, heard=heard)
        fitted = Policy()
        fitted.fit(heard, seed)
        rankers = {"prior": Policy(), "reinforced": search.policy, "fitted": fitted}
        for problem in test:
            for name, policy in rankers.items():
                ranked = _rank_choices(policy, bench, problem, max(counts))
                shares[name].append(first_best(bench, problem, ranked, counts))
    return {name: mean_curve(rows) for name, rows in shares.items()}


def _rank_choices(policy: Policy, bench: ReplayBench, problem: Problem, count: int) -> list[Choice]:
    """The likeliest choices first; with zero weights that is the prior's order."""
    rows = rows_of(bench.spaces[problem])
    order = np.argsort(-policy.logits(rows), kind="stable")[:count]
    return [rows.choices[i] for i in order]


def p_value(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Chance of pairs this much in favour of `ours` if neither side were better: Wilcoxon's signed
    rank test, one-sided, exact where no difference is zero or tied (Biometrics Bulletin 1, 1945).

    1 when all pairs are equal. Raises ValueError when the sides differ in length.
    """
    from scipy.stats import wilcoxon

    if len(ours) != len(theirs):
        raise ValueError(f"pairs must match: {len(ours)} against {len(theirs)}")
    differences: NDArray[np.float64] = np.subtract(ours, theirs)
    if not differences.any():
        return 1.0
    return float(wilcoxon(differences, alternative="greater", method="auto").pvalue)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """The p-values, corrected for there being several (Holm, Scand. J. Statist. 6, 1979)."""
    corrected: dict[str, float] = {}
    largest = 0.0
    for i, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[name] * (len(p_values) - i)))
        corrected[name] = largest
    return corrected
