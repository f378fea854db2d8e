"""Every estimator against the average over all subsets that it is a short form of."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from statistics import fmean

import pytest

from hgemm_packs.generator.report import metrics


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_subsets_with_a_good_sample(n: int) -> None:
    for c in range(n + 1):
        good = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(itertools.combinations(good, k))
            share = Fraction(sum(map(any, subsets)), len(subsets))
            assert metrics.pass_at_k(n, c, k) == pytest.approx(float(share), abs=1e-15)


@pytest.mark.parametrize("n", range(1, 8))
def test_best_at_k_is_the_mean_of_the_best_over_all_subsets(n: int) -> None:
    rng = random.Random(n)
    values = [rng.choice((0.0, 0.7, 1.0, rng.uniform(0.5, 2.0))) for _ in range(n)]
    for k in range(1, n + 1):
        expected = fmean(max(subset) for subset in itertools.combinations(values, k))
        assert metrics.best_at_k(values, k) == pytest.approx(expected, rel=1e-12)


def test_failures_count_as_zero_not_as_missing() -> None:
    assert metrics.best_at_k([0.0, 0.0, 0.0, 2.0], 1) == 0.5
    assert metrics.best_at_k([0.0, 0.0, 0.0, 2.0], 2) == 1.0


def test_large_counts_neither_overflow_nor_lose_the_tail() -> None:
    assert metrics.pass_at_k(5000, 1, 2500) == pytest.approx(0.5)
    assert metrics.best_at_k([1.0] * 3000, 1500) == pytest.approx(1.0)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        metrics.pass_at_k(n, c, k)
    if not 1 <= k <= n:
        with pytest.raises(ValueError, match="best of"):
            metrics.best_at_k([1.0] * n, k)


def test_mean_at_k_leaves_out_problems_with_too_few_samples() -> None:
    samples = [[0.0, 2.0], [1.0], [0.0, 0.0]]
    assert metrics.mean_at_k(samples, (1, 2, 3)) == {
        1: (pytest.approx((0.5 + 1 + 0) / 3), pytest.approx((1 + 1 + 0) / 3), 3),
        2: (0.5, 1.0, 2),
    }


def test_speedups_over_problems() -> None:
    found = metrics.speedups([2.0, 0.5, 1.0, 0.0, 1.15], [1.0, 3.0, 1.0, 9.0, 1.0])
    assert (found.problems, found.measured) == (5, 4)
    assert found.geometric_mean == pytest.approx((2.0 * 0.5 * 1.0 * 1.15) ** 0.25)
    assert found.median == pytest.approx(1.075)
    assert found.worst == 0.5
    # log2 terms 1, -3 and 0 over six units of work, and 1.15.
    assert found.flop_weighted == pytest.approx((2.0**-2 * 1.15) ** (1 / 6))
    assert found.win == {1.0: 0.4, 1.05: 0.4, 1.1: 0.4, 1.2: 0.2}
    assert found.value == pytest.approx((2.0 * 1.15) ** 0.2)
    assert found.fallback == pytest.approx(0.6)


def test_at_the_bar_is_not_above_it() -> None:
    assert metrics.win_at([1.0, 1.05, 1.1, 1.2], 1.05) == 0.5
    assert metrics.win_at([1.0], 1.0) == 0.0


def test_nothing_measured_is_not_a_number() -> None:
    none = metrics.speedups([0.0, 0.0], [1.0, 1.0])
    assert math.isnan(none.geometric_mean)
    assert math.isnan(none.worst)
    assert (none.measured, none.value, none.fallback) == (0, 1.0, 1.0)
    empty = metrics.speedups([], [])
    assert math.isnan(empty.value)
    assert math.isnan(empty.win[1.1])


def test_regret_falls_as_problems_find_their_best() -> None:
    best = {"p": 10.0, "q": 5.0}
    steps = [
        (1.0, "p", math.inf),
        (2.0, "p", 20.0),  # half of the best speed
        (3.0, "q", 5.0),
        (4.0, "q", 7.0),  # no better than what there is
        (5.0, "p", 10.0),
        (6.0, "p", 12.0),
    ]
    curve = metrics.regret_curve(steps, best)
    assert curve == [(0.0, 1.0), (2.0, 0.75), (3.0, 0.25), (5.0, 0.0), (6.0, 0.0)]
    assert metrics.budget_to(curve, 0.25) == 3.0
    assert metrics.budget_to(curve, 0.1) == 5.0
    assert metrics.budget_to(curve[:3], 0.1) == math.inf


def test_regret_against_random_histories_is_that_of_each_prefix() -> None:
    rng = random.Random(5)
    best = {name: rng.uniform(1, 10) for name in "abc"}
    steps = [(float(i), name, best[name] * rng.uniform(1, 3)) for i, name in enumerate("abcab" * 8)]
    at = dict(metrics.regret_curve(steps, best))
    for end in range(1, len(steps) + 1):
        shares = []
        for name, us in best.items():
            seen = [s[2] for s in steps[:end] if s[1] == name]
            shares.append(us / min(seen) if seen else 0.0)
        if steps[end - 1][0] in at:
            assert at[steps[end - 1][0]] == pytest.approx(1 - fmean(shares))
    assert len(at) > 5


def test_a_curve_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="beats the best"):
        metrics.regret_curve([(1.0, "p", 9.0)], {"p": 10.0})
    with pytest.raises(ValueError, match="falls"):
        metrics.regret_curve([(2.0, "p", 20.0), (1.0, "p", 10.0)], {"p": 10.0})
    assert metrics.regret_curve([], {}) == []


def test_costs_and_hacks() -> None:
    assert metrics.cost_per_accepted(600.0, 150) == 4.0
    assert metrics.cost_per_accepted(600.0, 0) == math.inf
    assert metrics.hack_rate(3, 120) == 0.025
    assert math.isnan(metrics.hack_rate(0, 0))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_fast_p_is_the_share_of_subsets_with_a_fast_sample(k: int) -> None:
    samples = [[0.0, 1.04, 1.2], [0.0, 0.0, 0.0, 0.9], [1.05, 2.0, 0.0, 1.06, 0.3], [1.5, 1.5]]
    for bar in (1.0, 1.05, 1.5):
        shares = [
            fmean(max(subset) > bar for subset in itertools.combinations(values, k))
            for values in samples
            if len(values) >= k
        ]
        assert metrics.fast_at(samples, bar, k) == pytest.approx(fmean(shares), rel=1e-12)
    assert math.isnan(metrics.fast_at(samples, 1.0, 6))


def test_win_at_p_is_fast_p_with_all_samples() -> None:
    samples = [[0.0, 1.04, 1.2], [0.0, 0.0, 0.9], [1.05, 2.0, 0.0]]
    for bar in (0.95, 1.0, 1.1, 1.2):
        wins = metrics.win_at([max(values) for values in samples], bar)
        assert metrics.fast_at(samples, bar, 3) == pytest.approx(wins)
