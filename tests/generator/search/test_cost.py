"""The cost model: kriging against closed forms, trees that know more than the prior, the field from
which the portfolio takes."""

from __future__ import annotations

import numpy as np
import pytest

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.search import cost
from hgemm_packs.generator.search.cost import ChoicePool, CostModel, lesson
from hgemm_packs.generator.search.history import History
from hgemm_packs.generator.search.kriging import NOISE, REACH, Kriging, alike, closeness
from hgemm_packs.generator.search.prior import Rows, rows_of
from hgemm_packs.problem import Problem
from tests.generator.searched import PROBLEMS, outcome, spaces

HOT = np.array([[1.0, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 1, 0], [0, 1, 0, 0, 1]])


def test_likeness_falls_with_the_genes_that_differ() -> None:
    differ = np.array([[0, 1, 2, 2], [1, 0, 1, 2], [2, 1, 0, 1], [2, 2, 1, 0]])
    np.testing.assert_allclose(alike(HOT, HOT), np.exp(-differ / REACH))


def test_closeness_is_one_at_the_front_and_a_half_at_near() -> None:
    np.testing.assert_allclose(
        closeness(np.log2([2.0, 2.7, 8.0])), [1.0, 0.5, 1 / (1 + 9 / 0.1225)]
    )


def test_kriging_is_the_gaussian_posterior() -> None:
    """Two measured of four rows, against the textbook's matrices with a flat constant mean."""
    believed = np.array([1.0, 1.5, 0.8, 2.0])
    log_us, off, at = np.array([1.4, 1.6]), 0.2, [0, 2]
    field = Kriging(HOT, believed, off)
    field.learn(HOT[at], believed[at], log_us)
    covariance = off**2 * alike(HOT, HOT)
    inverse = np.linalg.inv(covariance[np.ix_(at, at)] + np.diag(NOISE**2 / closeness(log_us)))
    surprise, ones = log_us - believed[at], np.ones(2)
    level = ones @ inverse @ surprise / (ones @ inverse @ ones)
    weights = covariance[:, at] @ inverse
    np.testing.assert_allclose(field.mean, believed + level + weights @ (surprise - level))
    variance = off**2 - np.diag(weights @ covariance[at])
    np.testing.assert_allclose(field.sd, np.sqrt(variance))


def test_believing_lowers_doubt_as_learning_would() -> None:
    believed = np.zeros(4)
    measured, expected = Kriging(HOT, believed, 0.2), Kriging(HOT, believed, 0.2)
    measured.learn(HOT[[1, 3]], believed[[1, 3]], np.zeros(2))
    expected.believe(1)
    expected.believe(3)
    np.testing.assert_allclose(expected.sd, measured.sd)
    assert expected.sd[2] < 0.2
    np.testing.assert_array_equal(expected.mean, believed)


def learnt(each: int) -> tuple[History, list[Space]]:
    """Half of the spaces, with the prior's best told."""
    history = History()
    over = spaces(every=4)
    for space in over[::2]:
        best = np.argsort(rows_of(space).prior)[: each * 4 : 4]
        history.add(space.problem, [outcome(space.core[i], space.problem) for i in best])
    return history, over


def test_trees_explain_what_the_prior_does_not_on_problems_never_told() -> None:
    history, over = learnt(each=100)
    model = CostModel(0)
    assert model.off == cost.PRIOR_OFF
    model.refit(history)
    assert model.off == cost.TREES_OFF
    left = []
    for space in over[1::2]:
        rows = rows_of(space)
        at = np.argsort(rows.prior)[:200]
        log_us = np.log2([outcome(space.core[i], space.problem).us for i in at])
        left.append(
            [np.var(log_us - rows.prior[at]), np.var(log_us - model.predict_log_us(rows, at))]
        )
    by_prior, by_trees = np.mean(left, axis=0)
    assert by_trees < 0.7 * by_prior


def test_a_model_is_refitted_when_much_is_new() -> None:
    history, over = learnt(each=80)
    model, rows = CostModel(0), rows_of(over[1])
    few = np.arange(40)
    np.testing.assert_array_equal(model.predict_log_us(rows, few), rows.prior[few])
    model.refit(history)
    first = model.predict_log_us(rows, few)
    assert np.abs(first - rows.prior[few]).max() > 0.01
    history.add(over[1].problem, [outcome(c, over[1].problem) for c in over[1].core[:30]])
    model.refit(history)
    np.testing.assert_array_equal(model.predict_log_us(rows, few), first)
    history.add(over[3].problem, [outcome(c, over[3].problem) for c in over[3].core[:200]])
    model.refit(history)
    assert np.abs(model.predict_log_us(rows, few) - first).max() > 0.001


def test_a_lesson_is_the_surprise_without_the_problems_level() -> None:
    history, over = learnt(each=10)
    told = history.of(over[0].problem)
    x, surprise, weight = lesson(told)
    choices, log_us = told.front()
    off = log_us - Rows(choices, told.problem).prior
    assert x.shape[0] == 10
    np.testing.assert_allclose(weight, closeness(log_us))
    np.testing.assert_allclose(np.diff(surprise), np.diff(off))
    assert float(weight @ surprise) == pytest.approx(0.0, abs=1e-9)


def test_the_field_takes_the_prior_best_first_and_spreads_out() -> None:
    (space,) = spaces(PROBLEMS[3:4], every=3)
    field = ChoicePool(CostModel(0), History(), space)
    rows = rows_of(space)
    assert len(field.choices) == cost.SCREENED
    assert set(field.choices) == {space.core[i] for i in np.argsort(rows.prior)[: cost.SCREENED]}
    taken: list[Choice] = []
    for _ in range(8):
        choice = field.pick_promising()
        assert choice is not None and choice in field
        field.take(choice)
        assert choice not in field
        taken.append(choice)
    assert taken[0] == space.core[int(np.argmin(rows.prior))]

    def likeness(choices: list[Choice]) -> float:
        hot = Rows(choices, space.problem).table.hot()
        return float(alike(hot, hot).mean())

    assert likeness(taken) < likeness([space.core[i] for i in np.argsort(rows.prior)[:8]])


def test_the_field_learns_from_choices_outside_the_core() -> None:
    problem = Problem(256, 512, 1024, "nt", "f16")
    space = Space(problem)
    inside = next(c for c in space.core if c.family == "sm90_wgmma")
    outside = Choice.of(inside.family, {**inside.genome, "raster": "n"})
    other = Choice.of(inside.family, {**inside.genome, "raster": "n", "group": 16})
    history = History()
    best = space.core[int(np.argmin(rows_of(space).prior))]
    history.add(problem, [outcome(best, problem), outcome(outside, problem)])
    field = ChoicePool(CostModel(0), history, space, [other, outside, best])
    assert outside not in field and best not in field
    assert other in field and field.pick_promising([other]) == other
    assert field.choices.count(other) == 1
    assert len(field.mean) == len(field.choices) == cost.SCREENED + 1


def test_nothing_left_is_none() -> None:
    problem = Problem(256, 512, 1024, "nt", "f16")
    space = Space(problem, only=Space(problem).core[:3])
    history = History()
    history.add(problem, [outcome(choice, problem) for choice in space.core])
    assert ChoicePool(CostModel(0), history, space).pick_promising() is None
