"""A predictor of simulated times chooses well, says how well, and is silent where it cannot know
(see simulated.py)."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

from hgemm_packs import launcher
from hgemm_packs.generator.prediction import fit, plot
from hgemm_packs.generator.prediction.rows import make_rows
from hgemm_packs.generator.prediction.times import Times
from hgemm_packs.generator.prediction.trees import Growth
from hgemm_packs.pack.predictor import check_predictor
from hgemm_packs.problem import Problem
from tests.generator.prediction import simulated
from tests.generator.prediction.simulated import FAMILIES, H200


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
    found, judged, threshold = fit.fit(rows, eye, listed, H200.name, FAMILIES)
    check_predictor(found)
    said = fit.figures(judged, threshold)
    assert said["problems"] == 400 and 0.2 < said["served"] < 1.0
    assert said["share_of_gain"] > 0.8 and said["worst"] >= 0.95
    assert said["below_098"] * said["served"] <= fit.MOST_BELOW
    assert said["gmean"] <= said["gmean_of_best"]

    # On fresh problems, by C, as a process would ask it.
    ready = launcher.predictor(found, H200)
    had = possible = 0.0
    served = []
    fresh = simulated.problems(2, 200)
    for p, each in simulated.times(fresh, lumpy).items():
        answer = launcher.predict(ready, p)
        assert answer is not None
        index, ours, torch, doubt = answer
        m, n = found.candidates[index].numbers[1:3]
        gain = math.log(each.torch / each.kernels[f"tile{m}x{n}"])
        possible += max(0.0, math.log(each.torch / min(each.kernels.values())))
        if math.exp(torch - ours - doubt) >= found.margin:
            had += gain
            served.append(gain)
    assert had > 0.75 * possible and len(served) > 40
    assert sum(gain < math.log(0.98) for gain in served) <= 0.03 * len(served)
    plot.draw(judged, threshold, tmp_path / "fit.png")
    assert (tmp_path / "fit.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_where_torch_is_faster_nothing_serves() -> None:
    listed = simulated.problems(3, 150)
    eye, rows, _ = simulated.make(
        listed, lambda p: 0.9 * min(simulated.tiled_us(p, m, n) for m, n in simulated.TILES)
    )
    found, judged, threshold = fit.fit(rows, eye, listed, H200.name, FAMILIES)
    assert threshold == fit.Threshold(100.0, 0.0) and found.margin == 100.0
    assert fit.figures(judged, threshold) == {
        **fit.figures(judged, threshold),
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
    _, judged, threshold = fit.fit(rows, eye, listed, H200.name, FAMILIES)
    said = fit.figures(judged, threshold)
    assert said["below_098"] <= 0.005 and said["worst"] >= 0.95
    assert fit.figures(judged, fit.Threshold(1.0, 0.0))["worst"] < 0.8


def test_a_threshold_is_the_one_that_keeps_most_within_what_may_be_lost() -> None:
    predicted = np.log(np.array([2.0, 1.5, 1.3, 1.2, 1.1]))
    measured = np.log(np.array([1.9, 1.4, 1.2, 0.9, 1.3]))
    zero = np.zeros(5)
    judged = fit.Judged(
        tuple(simulated.problems(5, 5)), predicted, measured, measured, np.zeros((5, 1)), zero
    )
    found = fit.choose_threshold(judged)
    assert 1.2 < found.margin < 1.3 and found.doubts == 0.0
    said = fit.figures(judged, found)
    assert said["served"] == 0.6 and said["worst"] == 1.2
    # The doubt knows the loser: now all others may serve.
    doubted = fit.Judged(
        judged.problems, predicted, measured, measured, judged.values, np.array([0, 0, 0, 0.4, 0.0])
    )
    found = fit.choose_threshold(doubted)
    assert found.doubts > 0 and fit.figures(doubted, found)["served"] == 0.8


def test_one_shape_is_in_one_fold_whatever_its_type() -> None:
    # f16 and bf16 of one shape take the same time: in two folds a model would know the answer.
    listed = simulated.problems(6, 40)
    _, rows, _ = simulated.make(listed, lumpy)
    twins = tuple(Problem(p.m, p.n, p.k, p.layout, "bf16") for p in listed)
    folds = fit.fold_of(rows)
    other = fit.fold_of(type(rows)(**{**vars(rows), "problems": twins}))
    assert folds.tolist() == other.tolist() and set(folds) == set(range(fit.FOLDS))


def test_candidates_are_those_that_help_most() -> None:
    listed = simulated.problems(7, 150)
    eye, rows, known = simulated.make(listed, lumpy)
    ours, _ = fit._fit_times(rows)
    best = dict.fromkeys(simulated.candidates(), 0.0)
    for each in known.values():
        for name, us in each.kernels.items():
            best[name] += math.log(us)
    (first,) = fit.pick_candidates(ours, eye, listed, 1)
    assert f"tile{first.numbers[1]}x{first.numbers[2]}" == min(best, key=best.__getitem__)
    assert len(fit.pick_candidates(ours, eye, listed)) == len(simulated.TILES)


def test_finals_teach_their_own_times_and_judge_nothing() -> None:
    """Finals are of other programs, in which all takes longer: models that took them for
    what is drawn were between both."""
    listed = simulated.problems(9, 300)
    eye, rows, known = simulated.make(listed, lumpy)
    slower = {
        p: Times(1.5 * each.torch, {name: 1.2 * us for name, us in each.kernels.items()})
        for p, each in simulated.times(simulated.problems(10, 300), lumpy).items()
    }
    both = make_rows(eye, list(simulated.candidates()), known, slower)
    judged = fit.judge(both)
    assert set(judged.problems) == set(listed)
    wrong, alone = (np.abs(each.predicted - each.measured) for each in (judged, fit.judge(rows)))
    assert wrong.mean() < 1.1 * alone.mean() < 0.1


def test_too_few_problems_are_an_error() -> None:
    listed = simulated.problems(8, 4)
    eye, rows, _ = simulated.make(listed, lumpy)
    with pytest.raises(ValueError, match="4 problems are too few"):
        fit.fit(rows, eye, listed, H200.name, FAMILIES)
