"""The policy: its gradients against finite differences and exact sums, what it learns, and that it
holds for shapes that it has not seen."""

from __future__ import annotations

import itertools
import json
import math
import random

import numpy as np
import pytest

from hgemm_packs.generator.core.space import FITTED, Space
from hgemm_packs.generator.core.spec import Proposal
from hgemm_packs.generator.devices.model import kernel_us
from hgemm_packs.generator.search.analytic.features import Array
from hgemm_packs.generator.search.history import History
from hgemm_packs.generator.search.policy import Policy, PolicySearch, leave_one_out
from hgemm_packs.generator.search.prior import Rows
from hgemm_packs.problem import Problem
from tests.generator.searched import PROBLEMS, optimum, outcome, search, spaces

PROBLEM = Problem(256, 512, 1024, "nt", "f16")
STEP = 1e-5


def few(count: int) -> Rows:
    """Choices far apart in the catalogue, so that they differ in many genes, of those that the
    prior holds for the fastest fifth: one that it holds for hopeless has no slope to measure."""
    rows = Rows([c for c in Space(PROBLEM).core if c.family not in FITTED], PROBLEM)
    fast = np.sort(np.argsort(rows.prior, kind="stable")[: len(rows.choices) // 5])
    listed = [rows.choices[i] for i in fast]
    return Rows(listed[5 :: len(listed) // count][:count], PROBLEM)


def tilted(seed: int) -> Policy:
    policy = Policy()
    rng = np.random.default_rng(seed)
    policy.weights = rng.normal(size=policy.weights.shape)
    return policy


def slope(policy: Policy, value: object, places: list[tuple[int, int]]) -> Array:
    """Central differences of `value()` by some weights."""
    assert callable(value)
    found = []
    for place in places:
        kept = policy.weights[place]
        sides = []
        for step in (STEP, -STEP):
            policy.weights[place] = kept + step
            sides.append(value())
        policy.weights[place] = kept
        found.append((sides[0] - sides[1]) / (2 * STEP))
    return np.array(found)


def used(rows: Rows) -> list[tuple[int, int]]:
    """Weights that matter to the rows."""
    values = np.flatnonzero(rows.table.hot().any(axis=0))
    return [(int(v), f) for v in values[::5] for f in (0, 2, 5)]


def test_probabilities_are_a_softmax_over_what_is_allowed() -> None:
    rows, policy = few(6), tilted(0)
    allowed = np.array([True, True, False, True, False, True])
    logits = policy.logits(rows)
    expected = np.where(allowed, np.exp(logits), 0.0)
    np.testing.assert_allclose(policy.probabilities(rows, allowed), expected / expected.sum())


def test_reinforce_is_the_slope_of_the_log_likelihood_times_the_advantages() -> None:
    rows, policy = few(8), tilted(1)
    allowed = np.arange(8) != 3
    picks, rewards = [0, 5, 2, 7], np.array([-0.2, -1.4, 0.0, -0.6])
    advantages = rewards - np.array([(rewards.sum() - r) / 3 for r in rewards])

    def objective() -> float:
        logs = np.log(policy.probabilities(rows, allowed)[picks])
        return float(advantages @ logs / 4)

    places = used(rows)
    exact = policy.gradient(rows, allowed, picks, rewards)[tuple(zip(*places, strict=True))]
    np.testing.assert_allclose(exact, slope(policy, objective, places), atol=1e-8)
    assert np.abs(exact).max() > 0.01


def test_entropy_gradient_is_the_slope_of_the_entropy() -> None:
    rows, policy = few(7), tilted(2)
    allowed = np.arange(7) != 4

    def entropy() -> float:
        share = policy.probabilities(rows, allowed)
        return float(-sum(p * math.log(p) for p in share if p > 0))

    places = used(rows)
    exact = policy.entropy_gradient(rows, allowed)[tuple(zip(*places, strict=True))]
    np.testing.assert_allclose(exact, slope(policy, entropy, places), atol=1e-7)
    assert np.abs(exact).max() > 0.001


def test_leave_one_out_leaves_the_gradient_unbiased() -> None:
    """Over all groups of three draws, weighted by their probability, the estimate is the slope of
    the expected reward."""
    rows, policy = few(5), tilted(4)
    allowed = np.ones(5, dtype=bool)
    rewards = np.array([-0.1, -2.0, -0.7, 0.0, -1.2])
    share = policy.probabilities(rows, allowed)
    mean = sum(
        math.prod(share[list(group)]) * policy.gradient(rows, allowed, group, rewards[list(group)])
        for group in itertools.product(range(5), repeat=3)
    )
    places = used(rows)
    expected = slope(policy, lambda: policy.probabilities(rows, allowed) @ rewards, places)
    np.testing.assert_allclose(mean[tuple(zip(*places, strict=True))], expected, atol=1e-8)
    assert np.abs(expected).max() > 0.001


def test_the_baseline_of_a_reward_is_the_mean_of_the_others() -> None:
    np.testing.assert_allclose(leave_one_out(np.array([1.0, 4.0, 7.0])), [-4.5, 0.0, 4.5])
    np.testing.assert_array_equal(leave_one_out(np.array([3.0])), [0.0])


def test_a_step_makes_the_better_draw_likelier() -> None:
    rows, policy = few(6), Policy()
    allowed = np.ones(6, dtype=bool)
    before = policy.probabilities(rows, allowed)
    policy.reinforce(rows, allowed, [1, 4], np.array([0.0, -1.0]))
    after = policy.probabilities(rows, allowed)
    assert after[1] / before[1] > after[4] / before[4]


def test_draws_follow_the_probabilities() -> None:
    rows, policy = few(5), tilted(4)
    policy.weights *= 0.2
    allowed = np.array([True, True, True, False, True])
    rng = np.random.default_rng(0)
    firsts = [policy.sample(rows, allowed, 2, rng) for _ in range(4000)]
    assert all(len(set(draw)) == 2 and 3 not in draw for draw in firsts)
    counts = np.bincount([draw[0] for draw in firsts], minlength=5) / 4000
    np.testing.assert_allclose(counts, policy.probabilities(rows, allowed), atol=0.03)
    assert sorted(policy.sample(rows, allowed, 9, rng)) == [0, 1, 2, 4]


def told(over: list[Space], each: int, turned: int = 1) -> History:
    """Every eighth of the prior's best choices of each space; `turned` -1 tells them backwards."""
    history = History()
    for space in over[::turned]:
        rows = Rows(space.core, space.problem)
        best = np.argsort(rows.prior)[: 8 * each : 8][::turned]
        history.add(space.problem, [outcome(space.core[i], space.problem) for i in best])
    return history


def start(policy: Policy, space: Space, count: int) -> float:
    """Optimum over the best of the policy's likeliest."""
    rows = Rows(space.core, space.problem)
    likeliest = np.argsort(-policy.logits(rows), kind="stable")[:count]
    return optimum(space) / min(kernel_us(space.core[i], space.problem, 0) for i in likeliest)


def mean(shares: list[float]) -> float:
    return math.exp(sum(map(math.log, shares)) / len(shares))


@pytest.mark.parametrize("how", ("fit", "reinforce"))
def test_what_it_learns_holds_for_shapes_that_it_has_not_seen(how: str) -> None:
    """Which of seven families is for which sizes takes some thirty problems to learn."""
    sides = (64, 256, 1024, 4096)
    shapes = list(itertools.product(sides, sides, sides))
    random.Random(0).shuffle(shapes)
    over = spaces([Problem(*each, "nt", "f16") for each in shapes])
    before, after = [], []
    for half in (0, 1):
        learnt, held = over[half::2], over[1 - half :: 2]
        policy = Policy()
        if how == "fit":
            policy.fit(told(learnt, each=24))
        else:
            strategy = PolicySearch(0)
            search(strategy, learnt, rounds=4, batch=8)
            policy = strategy.policy
        before += [start(Policy(), space, 8) for space in held]
        after += [start(policy, space, 8) for space in held]
    assert mean(after) > mean(before) + 0.01


def test_a_fit_does_not_depend_on_the_order_of_telling() -> None:
    over = spaces(PROBLEMS[:3], every=10)
    forth, back = Policy(), Policy()
    forth.fit(told(over, each=8))
    back.fit(told(over, each=8, turned=-1))
    np.testing.assert_allclose(forth.weights, back.weights, atol=1e-12)
    assert np.abs(forth.weights).max() > 0.01


def test_others_outcomes_are_no_groups_of_its_own() -> None:
    (space,) = spaces(PROBLEMS[2:3])
    strategy = PolicySearch(0)
    strategy.tell(space, [outcome(choice, space.problem) for choice in space.core[:8]])
    assert not strategy.policy.weights.any()
    own = [outcome(Proposal(c, "policy", "policy"), space.problem) for c in space.core[8:16]]
    strategy.tell(space, own)
    assert strategy.policy.weights.any()


def test_a_state_is_json_and_comes_back() -> None:
    one, other = tilted(5), Policy()
    other.load(json.loads(json.dumps(one.state())))
    np.testing.assert_array_equal(one.weights, other.weights)
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        other.load({"weights": [[0.0, 1.0]]})
