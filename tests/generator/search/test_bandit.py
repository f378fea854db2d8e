"""The bandit: posteriors by hand, and that it finds the better arm in each context."""

from __future__ import annotations

import random

import pytest

from hgemm_packs.generator.search.bandit import Bandit

ARMS = {"tile": (1.0, 1.0), "split": (1.0, 1.0), "depth": (2.0, 6.0)}


def test_posteriors_count_wins_and_losses_and_a_quarter_of_those_elsewhere() -> None:
    bandit = Bandit(ARMS)
    for won in (True, True, False):
        bandit.reward("tensor", "tile", won)
    bandit.reward("latency", "tile", False)
    assert bandit.posterior("tensor", "tile") == (3.0, 2.25)
    assert bandit.posterior("latency", "tile") == (1.5, 2.25)
    assert bandit.posterior("bandwidth", "tile") == (1.5, 1.5)
    assert bandit.posterior("tensor", "depth") == (2.0, 6.0)
    assert bandit.mean("tensor", "depth") == 0.25


def test_it_settles_on_the_arm_that_wins_most_in_each_context() -> None:
    odds = {
        "tensor": {"tile": 0.5, "split": 0.1, "depth": 0.2},
        "latency": {"tile": 0.1, "split": 0.5, "depth": 0.2},
    }
    bandit, rng = Bandit(ARMS), random.Random(1)
    late: dict[str, list[str]] = {context: [] for context in odds}
    for trial in range(1200):
        for context, by_arm in odds.items():
            arm = bandit.choose(context, rng)
            bandit.reward(context, arm, rng.random() < by_arm[arm])
            if trial >= 800:
                late[context].append(arm)
    assert late["tensor"].count("tile") > 340
    assert late["latency"].count("split") > 340
    assert bandit.mean("tensor", "tile") == pytest.approx(0.5, abs=0.06)


def test_it_chooses_among_what_is_offered() -> None:
    bandit, rng = Bandit(ARMS), random.Random(0)
    for _ in range(200):
        bandit.reward("", "tile", True)
    assert {bandit.choose("", rng, ("split", "depth")) for _ in range(50)} <= {"split", "depth"}


def test_an_unknown_arm_is_refused() -> None:
    bandit = Bandit(ARMS)
    with pytest.raises(KeyError, match="paint"):
        bandit.reward("", "paint", True)
    with pytest.raises(KeyError, match="paint"):
        bandit.mean("", "paint")
