"""The tree: who is paid, who is closed, what is remembered."""

from __future__ import annotations

import random
from collections import Counter

from hgemm_packs.generator.agents.tree import Tree
from hgemm_packs.generator.agents.words import Hypothesis, best

from .grounds import attempt

THREE = [Hypothesis(name) for name in ("a", "b", "c")]


def tree(patience: int = 4) -> Tree:
    made = Tree(patience)
    made.grow(THREE)
    return made


def test_only_what_passed_every_gate_is_the_best() -> None:
    fast = [
        attempt(1, status="HACK", speedup=9.0),
        attempt(2, status="NUMERIC", speedup=8.0),
        attempt(3, status="UNMEASURED", speedup=None),
        attempt(4, status="SLOWER", speedup=0.9),
        attempt(5, status="NOISE", speedup=1.01),
    ]
    found = best(fast)
    assert found is not None and found.key == "key5"
    assert best(fast[:3]) is None


def test_a_step_is_won_by_what_makes_the_best_of_all_faster() -> None:
    made = tree()
    made.add(0, [attempt(1, speedup=1.2)])
    made.add(1, [attempt(2, speedup=1.201)])
    made.add(2, [attempt(3, speedup=1.5), attempt(4, speedup=1.0)])
    made.add(0, [attempt(5, speedup=1.4)])
    assert [(branch.wins, branch.losses) for branch in made.branches] == [(1, 1), (0, 1), (1, 0)]
    assert made.branches[0].barren == 0  # a gain of its own
    assert made.best is not None and made.best.key == "key3"


def test_a_branch_closes_after_its_patience_and_says_what_it_came_to() -> None:
    made = tree(patience=2)
    made.add(0, [attempt(1, speedup=1.2)])
    made.add(0, [attempt(2, speedup=1.1)])
    assert not made.branches[0].closed
    made.add(0, [attempt(3, status="BUILD", gate="build", speedup=None)])
    made.add(1, [])
    for number in (4, 5):
        made.add(2, [attempt(number, status="BUILD", gate="build", speedup=None)])
    assert made.dead_ends == [
        (THREE[0], "2 steps without a gain; at best 1.200x torch"),
        (THREE[1], "it has nothing left to propose; nothing passed"),
        (THREE[2], "2 steps without a gain; nothing passed (build)"),
    ]
    assert made.live == []


def test_branches_without_a_step_come_first_and_none_twice() -> None:
    made = tree()
    assert [b.number for b in made.choose(2, random.Random(1))] == [0, 1]
    made.add(0, [attempt(1)])
    made.add(1, [attempt(2)])
    for seed in range(20):
        picked = [b.number for b in made.choose(3, random.Random(seed))]
        assert picked[0] == 2 and sorted(picked) == [0, 1, 2]


def test_a_branch_that_pays_is_paid_more_often() -> None:
    made = tree(patience=100)
    for number, branch in enumerate(made.branches):
        made.add(number, [attempt(number, speedup=0.1)])
        branch.wins, branch.losses = (8, 2) if number == 1 else (1, 9)
    picks = Counter(made.choose(1, random.Random(seed))[0].number for seed in range(200))
    assert picks[1] > 190


def test_the_same_seed_picks_the_same() -> None:
    made = tree()
    for number in range(3):
        made.add(number, [attempt(number)])
    picks = [[b.number for b in made.choose(2, random.Random("7 round 3"))] for _ in range(2)]
    assert picks[0] == picks[1]
