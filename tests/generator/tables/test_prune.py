"""Pruning against every subset of small instances."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable

import pytest

from hgemm_packs.generator.tables.prune import Gains, prune


def gain(gains: Gains, kernels: Iterable[str]) -> float:
    """G of a set, by its definition."""
    kernels = set(kernels)
    return sum(
        max([0.0, *(math.log(s) for name, s in row.items() if name in kernels)])
        for row in gains.values()
    )


def instance(seed: int) -> dict[str, dict[str, float]]:
    """Up to nine kernels over up to fourteen problems, most pairs not measured."""
    rng = random.Random(seed)
    names = [f"k{i}" for i in range(rng.randint(1, 9))]
    return {
        f"p{i}": {name: rng.uniform(0.8, 1.6) for name in names if rng.random() < 0.4}
        for i in range(rng.randint(1, 14))
    }


@pytest.mark.parametrize("seed", range(40))
def test_against_every_subset(seed: int) -> None:
    gains = instance(seed)
    names = sorted({name for row in gains.values() for name in row})
    full = gain(gains, names)
    best = [
        max(gain(gains, some) for some in itertools.combinations(names, j))
        for j in range(len(names) + 1)
    ]
    for keep in (0.5, 0.9, 0.99, 1.0):
        pruned = prune(gains, keep)
        kept = gain(gains, pruned.kernels)
        assert kept >= keep * full - 1e-12
        assert pruned.share == pytest.approx(kept / full if full else 1.0)
        assert pruned.full_value == pytest.approx(math.exp(full / len(gains)))
        assert pruned.value == pytest.approx(math.exp(kept / len(gains)))
        for name in pruned.kernels:
            rest = gain(gains, set(pruned.kernels) - {name})
            assert rest < keep * full + 1e-12, "a kernel that could have gone was kept"
        smallest = next(j for j, g in enumerate(best) if g >= keep * full - 1e-12)
        assert smallest <= len(pruned.kernels) <= smallest + 1
    for i, share in prune(gains).curve:
        assert share * full <= best[min(i, len(names))] + 1e-12
        for j in range(1, len(names) + 1):
            assert share * full >= (1 - (1 - 1 / j) ** i) * best[j] - 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_the_curve_rises_to_all_and_bends_down(seed: int) -> None:
    curve = prune(instance(seed)).curve
    assert [i for i, _ in curve] == list(range(len(curve)))
    shares = [share for _, share in curve]
    steps = [b - a for a, b in itertools.pairwise(shares)]
    assert all(step > 0 for step in steps)
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(steps))
    assert shares[-1] == 1.0


def test_the_share_is_of_the_log_gain_not_of_the_mean() -> None:
    """One kernel holds 1.5 on one problem, another 1.02 on the other: without the second the
    geometric mean keeps 0.990 of itself, the log gain only 0.953."""
    gains = {"p": {"a": 1.5}, "q": {"b": 1.02}}
    alone = prune(gains, 0.95)
    assert alone.kernels == ("a",)
    assert alone.value / alone.full_value == pytest.approx(0.990, abs=5e-4)
    assert alone.share == pytest.approx(0.953, abs=5e-4)
    assert prune(gains, 0.99).kernels == ("a", "b")


def test_a_problem_falls_to_its_next_kernel() -> None:
    """`b` serves all three problems nearly as well as the specialists."""
    gains = {f"p{i}": {f"a{i}": 1.200, "b": 1.199} for i in range(3)}
    pruned = prune(gains)
    assert pruned.kernels == ("b",)
    assert pruned.share == pytest.approx(math.log(1.199) / math.log(1.2))


def test_a_greedy_first_kernel_that_others_replace_is_dropped() -> None:
    """`x` gains most alone, but `a` and `b`, which the rest needs anyway, cover it."""
    gains = {
        "p": {"x": 1.2, "a": 1.2},
        "q": {"x": 1.2, "b": 1.2},
        "r": {"a": 1.15},
        "s": {"b": 1.15},
    }
    pruned = prune(gains, 1.0)
    assert pruned.curve[1][1] == pytest.approx(2 * math.log(1.2) / gain(gains, "xab"))
    assert pruned.kernels == ("a", "b")
    assert pruned.share == 1.0


def test_kernels_that_never_win_are_not_kept() -> None:
    pruned = prune({"p": {"a": 0.9, "b": 1.0}, "q": {}})
    assert (pruned.kernels, pruned.share, pruned.curve) == ((), 1.0, ((0, 1.0),))
    assert (pruned.full_value, pruned.value) == (1.0, 1.0)
    assert prune({}).kernels == ()


def test_ties_do_not_depend_on_the_order_of_the_input() -> None:
    gains = {"p": {"b": 1.1, "a": 1.1}, "q": {"c": 1.1, "a": 1.1, "b": 1.1}}
    mirrored = {p: dict(reversed(row.items())) for p, row in reversed(gains.items())}
    assert prune(gains).kernels == prune(mirrored).kernels == ("a",)


@pytest.mark.parametrize("keep", [0.0, -1.0, 1.01, math.nan])
def test_an_impossible_share_is_refused(keep: float) -> None:
    with pytest.raises(ValueError, match="cannot be kept"):
        prune({}, keep)
