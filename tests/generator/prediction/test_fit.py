"""A predictor of simulated times chooses well, says how well, and is silent where it cannot know
(see simulated.py)."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hgemm_packs import launcher
from hgemm_packs.generator.prediction import abstention, fit, plot, trees
from hgemm_packs.generator.prediction import rows as rows_of
from hgemm_packs.generator.prediction.abstention import Judged, Threshold, figures
from hgemm_packs.generator.prediction.rows import Eye, make_rows
from hgemm_packs.generator.prediction.times import Times
from hgemm_packs.generator.prediction.trees import Growth
from hgemm_packs.pack.features import FEATURES, NUMBERS, OF_PROBLEM
from hgemm_packs.pack.predictor import check_predictor
from hgemm_packs.problem import Problem
from tests.generator.prediction import simulated
from tests.generator.prediction.simulated import FAMILIES, H200

ALL = [Threshold(1.0, 0.0)] * abstention.SORTS


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that are grown in a second."""
    monkeypatch.setattr(fit, "OURS", Growth(trees=60, leaves=24))
    monkeypatch.setattr(fit, "TORCH", Growth(trees=60, leaves=16))
    monkeypatch.setattr(fit, "DOUBT", Growth(trees=15, leaves=6, least=10))


def lumpy(p: Problem) -> float:
    """A torch of one tile, which many problems suit badly."""
    return 1.02 * simulated.tiled_us(p, 128, 128)


def test_it_chooses_well_and_says_so(tmp_path: Path) -> None:
    listed = simulated.problems(1, 400)
    eye, rows, _ = simulated.make(listed, lumpy)
    found, judged, thresholds = fit.fit(rows, eye, listed, H200.name, FAMILIES)
    check_predictor(found)
    said = figures(judged, thresholds)
    assert said["problems"] == 400 and 0.2 < said["served"] < 1.0
    assert said["share_of_gain"] > 0.8 and said["worst"] >= 0.95
    assert said["below_098"] * said["served"] <= abstention.MOST_BELOW
    assert said["gmean"] <= said["gmean_of_best"]

    # On fresh problems, by C, as a process would ask it.
    ready = launcher.predictor(found, H200)
    had = possible = 0.0
    served = []
    fresh = simulated.problems(2, 200)
    for p, each in simulated.times(fresh, lumpy).items():
        answer = launcher.predict(ready, p)
        assert answer is not None
        index, ours, torch, doubt, _ = answer
        m, n = found.candidates[index].numbers[1:3]
        gain = math.log(each.torch / each.kernels[f"tile{m}x{n}"])
        possible += max(0.0, math.log(each.torch / min(each.kernels.values())))
        if math.exp(torch - ours - doubt) >= found.margin:
            had += gain
            served.append(gain)
    assert had > 0.75 * possible and len(served) > 40
    assert sum(gain < math.log(0.98) for gain in served) <= 0.03 * len(served)
    plot.draw(judged, thresholds, tmp_path / "fit.png")
    assert (tmp_path / "fit.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_where_torch_is_faster_nothing_serves() -> None:
    listed = simulated.problems(3, 150)
    eye, rows, _ = simulated.make(
        listed, lambda p: 0.9 * min(simulated.tiled_us(p, m, n) for m, n in simulated.TILES)
    )
    _, judged, thresholds = fit.fit(rows, eye, listed, H200.name, FAMILIES)
    assert thresholds == (abstention.NEVER,) * abstention.SORTS
    assert figures(judged, thresholds) == {
        **figures(judged, thresholds),
        "served": 0.0,
        "gmean": 1.0,
        "below_098": 0.0,
        "worst": 1.0,
    }


def test_a_torch_that_nobody_can_foretell_is_left_alone_or_beaten_surely() -> None:
    dice = random.Random(4)
    listed = simulated.problems(4, 200)
    noise = {p: dice.choice((0.6, 1.5)) for p in listed}
    eye, rows, _ = simulated.make(listed, lambda p: noise[p] * simulated.tiled_us(p, 64, 64))
    _, judged, thresholds = fit.fit(rows, eye, listed, H200.name, FAMILIES)
    said = figures(judged, thresholds)
    assert said["below_098"] <= 0.005 and said["worst"] >= 0.95
    assert figures(judged, ALL)["worst"] < 0.8


def test_a_threshold_is_the_one_that_keeps_most_within_what_may_be_lost() -> None:
    predicted = np.log(np.array([2.0, 1.5, 1.3, 1.2, 1.1]))
    measured = np.log(np.array([1.9, 1.4, 1.2, 0.93, 1.3]))
    zero = np.zeros(5)
    judged = Judged(
        tuple(simulated.problems(5, 5)),
        predicted,
        measured,
        measured,
        np.zeros((5, len(FEATURES))),
        zero,
    )
    found = abstention.choose_threshold(judged)
    assert 1.2 < found.margin < 1.3 and found.doubts == 0.0
    said = figures(judged, [found] * abstention.SORTS)
    assert said["served"] == 0.6 and said["worst"] == 1.2
    # The doubt knows the loser: now all others may serve.
    doubted = Judged(
        judged.problems, predicted, measured, measured, judged.values, np.array([0, 0, 0, 0.4, 0.0])
    )
    found = abstention.choose_threshold(doubted)
    assert found.doubts > 0
    assert figures(doubted, [found] * abstention.SORTS)["served"] == 0.8


def one_loser(count: int) -> Judged:
    """Gains from 1.0 to 0.3, foretold well, but for one of 0.8 that is 0.9 of torch."""
    predicted = np.linspace(1.0, 0.3, count)
    measured = predicted.copy()
    measured[np.argmin(np.abs(predicted - 0.8))] = math.log(0.9)
    problems = tuple(simulated.problems(6, count))
    values = np.zeros((count, len(FEATURES)))
    return Judged(problems, predicted, measured, np.full(count, 0.6), values, np.zeros(count))


def test_a_chance_to_lose_is_that_of_all_choices_that_miss_by_as_many_doubts() -> None:
    judged = one_loser(200)
    chances = abstention.chances_below(judged, 0.95)
    # The loser missed by log 0.9 - 0.8: whoever promises less may lose like it, one in 200.
    missed = judged.predicted - math.log(0.95) <= 0.8 - math.log(0.9)
    assert chances == pytest.approx(np.where(missed, 1 / 200, 0.0), abs=1e-12)
    # Doubts of all but the loser are half of its own: it missed by fewer doubts.
    doubt = np.full(200, 0.1)
    doubt[np.argmin(judged.measured)] = 0.2
    doubted = replace(judged, doubt=doubt)
    missed = (judged.predicted - math.log(0.95)) / 0.1 < (0.8 - math.log(0.9)) / 0.2 - 0.02
    missed[np.argmin(judged.measured)] = True
    assert abstention.chances_below(doubted, 0.95) == pytest.approx(
        np.where(missed, 1 / 200, 0.0), abs=1e-12
    )
    nothing = replace(judged, predicted=-judged.predicted)
    assert abstention.chances_below(nothing, 0.95).tolist() == [0.0] * 200


@pytest.mark.parametrize(("price", "least"), [(100, 0.6), (60, 0.36), (40, 0.3)])
def test_a_problem_serves_where_its_gain_is_above_the_price_of_its_chance(
    monkeypatch: pytest.MonkeyPatch, price: float, least: float
) -> None:
    """One of 100 choices loses, which takes away what so many problems could gain, 0.6 each."""
    monkeypatch.setattr(abstention, "MOST_BELOW", 1.0)
    monkeypatch.setattr(abstention, "PRICE", price)
    judged = one_loser(100)
    found = abstention.choose_threshold(judged)
    assert found.doubts == 0.0
    serves = judged.predicted >= math.log(found.margin) - 1e-12
    assert serves.sum() == (judged.predicted >= least).sum()


def test_each_sort_has_a_threshold_of_its_own() -> None:
    """A pack has one margin: the doubt's trees say the rest, of each sort what its threshold is."""
    dice = np.random.default_rng(8)
    values = np.zeros((400, len(FEATURES)))
    for feature, number in abstention.SPLITS:
        # C compares with float32.
        values[:, feature] = float(np.float32(number)) + dice.choice((-0.4, 0.0, 0.4), 400)
    values[:, 0] = dice.uniform(0.0, 10.0, 400)
    predicted, doubt = dice.uniform(0.0, 1.0, 400), 0.01 * values[:, 0]
    measured = predicted - dice.uniform(0.0, 0.2, 400)
    problems = tuple(simulated.problems(8, 400))
    model = trees.grow(values, doubt, np.ones(400), Growth(trees=12, leaves=6, least=10))
    known = trees.ask(model, values)
    judged = Judged(problems, predicted, measured, measured, values, known)
    sorts = judged.sorts()
    assert set(sorts.tolist()) == set(range(abstention.SORTS))
    low = [values[:, feature] <= number for feature, number in abstention.SPLITS]
    assert all((sorts == 0) == np.all(low, axis=0))
    assert all((sorts == 1) == (low[0] & ~low[1]))
    thresholds = [Threshold(1.1 + 0.1 * sort, 0.5 * sort) for sort in range(abstention.SORTS - 1)]
    thresholds.append(abstention.NEVER)
    serves = np.array(
        [
            gain - thresholds[sort].doubts * off >= math.log(thresholds[sort].margin)
            for gain, off, sort in zip(predicted, known, sorts, strict=True)
        ]
    )
    assert 20 < serves.sum() < 300 and not serves[sorts == abstention.SORTS - 1].any()
    taken_off = trees.ask(abstention.doubt_by_sort(model, thresholds), values)
    assert ((predicted - taken_off >= math.log(abstention.LEAST_MARGIN)) == serves).all()
    sure = abstention.sure_gains(judged, thresholds)
    assert np.allclose(sure, predicted - taken_off, rtol=0, atol=1e-5)
    assert figures(judged, thresholds)["served"] == round(float(serves.mean()), 4)
    chosen = abstention.choose_thresholds(judged)
    assert chosen == tuple(
        abstention.choose_threshold(judged.part(sorts == sort)) for sort in range(abstention.SORTS)
    )


def test_one_shape_is_in_one_fold_whatever_its_type() -> None:
    # f16 and bf16 of one shape take the same time: in two folds a model would know the answer.
    listed = simulated.problems(6, 40)
    twins = tuple(Problem(p.m, p.n, p.k, p.layout, "bf16") for p in listed)
    folds, other = fit.fold_of(listed), fit.fold_of(twins)
    assert folds.tolist() == other.tolist() and set(folds) == set(range(fit.FOLDS))


def test_candidates_are_those_that_help_most() -> None:
    listed = simulated.problems(7, 150)
    eye, rows, known = simulated.make(listed, lumpy)
    ours, torch = fit._fit_ours(rows), fit._fit_torch(rows, None)
    best = dict.fromkeys(simulated.candidates(), 0.0)
    for each in known.values():
        for name, us in each.kernels.items():
            best[name] += math.log(us)
    slow = torch._replace(base=torch.base + 5.0)  # every kernel saves time
    (first,) = fit.pick_candidates(ours, slow, eye, listed, 1)
    assert f"tile{first.numbers[1]}x{first.numbers[2]}" == min(best, key=best.__getitem__)
    assert 1 < len(fit.pick_candidates(ours, slow, eye, listed)) <= len(simulated.TILES)
    fast = torch._replace(base=torch.base - 5.0)
    assert fit.pick_candidates(ours, fast, eye, listed) == (), "what saves nothing is not looked at"


def test_finals_teach_their_own_times_and_judge_nothing() -> None:
    """Finals are of other programs, in which all takes longer: models that took them for
    what is drawn were between both."""
    listed = simulated.problems(9, 300)
    eye, rows, known = simulated.make(listed, lumpy)
    slower = {
        p: Times(1.5 * each.torch, {name: 1.2 * us for name, us in each.kernels.items()})
        for p, each in simulated.times(simulated.problems(10, 300), lumpy).items()
    }
    both = make_rows(eye, list(simulated.candidates()), known, slower, {})
    judged = fit.judge(both)
    assert set(judged.problems) == set(listed)
    wrong, alone = (np.abs(each.predicted - each.measured) for each in (judged, fit.judge(rows)))
    assert wrong.mean() < 1.1 * alone.mean() < 0.1


def test_too_few_problems_are_an_error() -> None:
    listed = simulated.problems(8, 4)
    eye, rows, _ = simulated.make(listed, lumpy)
    with pytest.raises(ValueError, match="4 problems are too few"):
        fit.fit(rows, eye, listed, H200.name, FAMILIES)


def test_kernels_that_c_refuses_are_no_candidates() -> None:
    """CTAs that share K in slices run all at once or not at all. The fit took such a kernel for
    one that serves every problem of its sizes."""
    listed = simulated.candidates()
    sliced = listed["tile64x64"]
    numbers = tuple(
        4 if name == "slices" else x for name, x in zip(NUMBERS, sliced.numbers, strict=True)
    )
    eye = Eye([sliced._replace(numbers=numbers), listed["tile128x256"]], FAMILIES, H200)
    small, large = Problem(64, 2112, 512, "nn", "f16"), Problem(72, 2112, 512, "nn", "f16")
    assert [*eye.taking(small)] == [0, 1], "33 tiles in 4 slices are 132 CTAs"
    assert [*eye.taking(large)] == [1]
    with pytest.raises(ValueError, match="candidate 0 does not take 72x2112x512 nn f16"):
        eye.see(large, [0])


def test_problems_of_torch_alone_teach_its_times() -> None:
    """torch's time costs a fraction of what all kernels' times do, and is foretold worst."""
    listed, more = simulated.problems(12, 120), simulated.problems(13, 1500)
    eye, rows, known = simulated.make(listed, lumpy)
    alone = {p: lumpy(p) for p in more}
    taught = make_rows(eye, list(simulated.candidates()), known, {}, alone)
    assert taught.alone.values.tolist() == [
        list(eye.see(p, [0])[0, : len(OF_PROBLEM)]) for p in more
    ]
    wrong = []
    for each in (rows, taught):
        judged = fit.judge(each)
        assert judged.problems == tuple(listed), "what torch alone was timed on judges nothing"
        wrong.append(float(np.abs(judged.predicted - judged.measured).mean()))
    assert wrong[1] < 0.8 * wrong[0]


def test_of_a_shape_that_is_judged_torch_alone_teaches_nothing() -> None:
    dice = random.Random(15)
    listed = simulated.problems(15, 200)
    noise = {p: dice.choice((0.6, 1.5)) for p in listed}
    eye, _, known = simulated.make(listed, lambda p: noise[p] * simulated.tiled_us(p, 64, 64))
    twins = {replace(p, dtype="bf16", out_dtype="bf16"): known[p].torch for p in listed}
    judged = fit.judge(make_rows(eye, list(simulated.candidates()), known, {}, twins))
    wrong = np.abs(judged.predicted - judged.measured)
    assert float(wrong.mean()) > 0.3, "a model that has seen the shape knows the answer"


def slow_twin() -> tuple[Eye, rows_of.Rows, dict[Problem, Times]]:
    """Times of three tiles, and, before these, of a kernel that takes 1.4 times as long as one of
    the same numbers."""
    listed, known = simulated.problems(16, 300), {}
    for p, each in simulated.times(listed, lumpy).items():
        known[p] = Times(each.torch, {"slow": 1.4 * each.kernels["tile64x64"], **each.kernels})
    kernels = simulated.candidates()
    every = {"slow": kernels["tile64x64"]._replace(kernel="f" * 64), **kernels}
    eye = Eye(list(every.values()), FAMILIES, H200)
    return eye, make_rows(eye, list(every), known, {}, {}), known


def test_kernels_that_are_late_for_what_no_model_sees_are_known() -> None:
    """Some kernels of sm90_oneshot copy without cp.async, which no number of a kernel says: chosen
    by the times of those that do, one took 0.82 of torch's speed where 1.4 was foretold."""
    _, rows, _ = slow_twin()
    assert fit.late(rows) == {0}
    _, rows, _ = simulated.make(simulated.problems(16, 300), lumpy)
    assert fit.late(rows) == frozenset(), "no kernel is late where numbers tell all"


def test_a_kernel_that_is_late_is_not_chosen_and_teaches_nothing() -> None:
    _, rows, known = slow_twin()
    before, judged = fit.judge(rows), fit.judge(rows, without=frozenset({0}))
    assert before.problems == judged.problems == tuple(known)
    gains = [np.log([known[p].torch / us for us in known[p].kernels.values()]) for p in known]
    by_slow = [np.isclose(x, each[0]) for x, each in zip(before.measured, gains, strict=True)]
    assert sum(by_slow) > 50, "of equal numbers the first is taken"
    lost = sum(np.isclose(x, each[0]) for x, each in zip(judged.measured, gains, strict=True))
    assert lost == 0 and judged.measured.sum() > before.measured.sum() + 0.3 * sum(by_slow)
    # What is late is not chosen, but counts as a gain that was to be had.
    assert np.allclose(judged.best, [each.max() for each in gains], rtol=0, atol=1e-12)
    rest = fit.judge(rows, without=frozenset({1}))
    assert np.allclose(rest.best, judged.best, rtol=0, atol=1e-12)
    assert all(
        np.isclose(x, np.delete(each, 1)).any()
        for x, each in zip(rest.measured, gains, strict=True)
    )


def test_a_problem_of_late_kernels_alone_is_not_judged() -> None:
    eye, rows, known = simulated.make(simulated.problems(17, 60), lumpy)
    only = known | {
        p: Times(each.torch, {"tile64x64": each.kernels["tile64x64"]})
        for p, each in [*known.items()][:10]
    }
    rows = make_rows(eye, list(simulated.candidates()), only, {}, {})
    assert fit.judge(rows, without=frozenset({0})).problems == tuple(known)[10:]
