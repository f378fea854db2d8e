"""What a search remembers: the front, failures and their near copies, similar problems' winners."""

from __future__ import annotations

import math
import random

import numpy as np

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal, Status
from hgemm_packs.generator.search import history as module
from hgemm_packs.generator.search.analytic.features import Table
from hgemm_packs.generator.search.history import (
    BROKEN,
    MOST_NEAR,
    NEAR_BROKEN,
    History,
    adapt_choice,
    distance,
)
from hgemm_packs.problem import Problem
from tests.generator.searched import outcome, spaces

PROBLEM = Problem(256, 512, 1024, "nt", "f16")


def timed(choice: Choice, us: float) -> Outcome:
    return Outcome(Proposal(choice, "test"), Status.OK, us)


def failed(choice: Choice, status: Status) -> Outcome:
    return Outcome(Proposal(choice, "test"), status, math.inf)


def test_the_front_is_the_fastest_first_in_whatever_order_it_was_told() -> None:
    (space,) = spaces([PROBLEM], every=50)
    outcomes = [timed(c, us) for c, us in zip(space.core, (5.0, 3.0, 3.0, 9.0), strict=False)]
    outcomes.append(failed(space.core[4], Status.LAUNCH))
    fronts = []
    for seed in range(4):
        memory = History()
        for one in random.Random(seed).sample(outcomes, 5):
            memory.add(PROBLEM, [one])
        told = memory.of(PROBLEM)
        choices, log_us = told.front()
        np.testing.assert_allclose(log_us, np.log2([3.0, 3.0, 5.0, 9.0]))
        assert told.best_us == 3.0 and len(told.us) == 5 and memory.timed == 4
        fronts.append(choices)
    assert all(front == fronts[0] for front in fronts)
    assert fronts[0][2:] == [space.core[0], space.core[3]]


def test_a_choice_told_again_keeps_its_last_time() -> None:
    (space,) = spaces([PROBLEM], every=50)
    memory = History()
    memory.add(PROBLEM, [timed(space.core[0], 2.0), timed(space.core[1], 4.0)])
    memory.add(PROBLEM, [timed(space.core[0], 6.0)])
    assert memory.of(PROBLEM).best == space.core[1]
    assert memory.timed == 2
    memory.add(PROBLEM, [failed(space.core[1], Status.NUMERIC)])
    assert memory.of(PROBLEM).best == space.core[0]
    assert memory.timed == 1


def test_failures_count_on_every_problem_and_near_copies_lightly() -> None:
    space = Space(PROBLEM)
    broken = next(c for c in space.core if c.family == "sm90_wgmma")
    near = Choice.of(broken.family, {**broken.genome, "group": 16})
    far = next(c for c in space.core if c.family == "sm90_direct")
    memory = History()
    table = Table([broken, near, far])
    np.testing.assert_array_equal(memory.penalty(table), [0, 0, 0])
    memory.add(Problem(64, 64, 64, "nt", "f16"), [failed(broken, Status.BUILD)])
    np.testing.assert_allclose(memory.penalty(table), [BROKEN, NEAR_BROKEN, 0])
    assert memory.broken(broken) and not memory.broken(near)
    others = [Choice.of(near.family, {**near.genome, "group": g}) for g in (1, 2, 4, 64)]
    memory.add(PROBLEM, [failed(other, Status.BINARY) for other in others])
    assert memory.penalty(table)[1] == NEAR_BROKEN * MOST_NEAR


def test_slow_or_noisy_is_not_broken() -> None:
    (space,) = spaces([PROBLEM], every=50)
    memory = History()
    memory.add(PROBLEM, [failed(space.core[0], Status.SLOWER), failed(space.core[1], Status.NOISE)])
    np.testing.assert_array_equal(memory.penalty(Table(space.core)), 0)
    assert memory.of(PROBLEM).best is None


def test_distance_counts_doublings_and_the_layout() -> None:
    assert distance(PROBLEM, PROBLEM) == 0
    assert distance(PROBLEM, Problem(512, 512, 1024, "nt", "f16")) == 1
    assert distance(PROBLEM, Problem(256, 2048, 128, "nt", "bf16")) == math.sqrt(4 + 9)
    apart = distance(PROBLEM, Problem(256, 512, 1024, "nn", "f16"))
    assert apart == module.LAYOUT_APART


def test_winners_are_those_of_the_most_alike_problems_and_members() -> None:
    space = Space(PROBLEM)
    memory = History()
    near, far = Problem(256, 512, 2048, "nn", "bf16"), Problem(4096, 512, 1024, "nt", "f16")
    staged = [c for c in space.core if c.family == "sm90_direct" and not c.genome["exact"]]
    alien = next(
        c for c in Space(far).core if c.family == "sm90_wgmma" and c.genome["epilogue"] == "grouped"
    )
    memory.add(near, [timed(adapt_choice(staged[i], near), us) for i, us in ((0, 2.0), (1, 1.0))])
    memory.add(far, [timed(alien, 1.0), timed(staged[2], 2.0)])
    assert memory.winners(space, problems=1, each=1) == [staged[1]]
    expected = [staged[1], alien, staged[0], staged[2]]
    assert memory.winners(space, problems=2, each=2) == expected
    memory.add(PROBLEM, [outcome(staged[1], PROBLEM)])
    assert memory.winners(space, problems=1, each=2) == [staged[0]]
    nn = Space(Problem(256, 512, 1024, "nn", "f16"))
    grouped_is_for_nt = memory.winners(nn, problems=9, each=1)
    assert adapt_choice(alien, nn.problem) not in grouped_is_for_nt


def test_a_sample_is_all_or_some_whole_problems() -> None:
    memory = History()
    over = spaces(every=60)
    for space in over[::-1]:
        memory.add(space.problem, [outcome(c, space.problem) for c in space.core[:10]])
    everything = memory.sample(1000, seed=0)
    assert [t.problem for t in everything] == sorted((s.problem for s in over), key=str)
    some = memory.sample(35, seed=1)
    assert len(some) == 4
    assert [t.problem for t in some] == [t.problem for t in memory.sample(35, seed=1)]
    assert {t.problem for t in memory.sample(35, seed=2)} != {t.problem for t in some}
