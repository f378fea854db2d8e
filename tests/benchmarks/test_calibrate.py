"""The fit of the prior's constants: which times it sees, how they count, and that it finds what
made up times were made with."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.search import calibrate_prior
from benchmarks.search.calibrate_prior import Timed
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.devices.recording import load
from hgemm_packs.generator.families import FAMILIES, InvalidGenome
from hgemm_packs.generator.search.analytic import constants, roofline
from hgemm_packs.generator.search.analytic.constants import SPLITK
from hgemm_packs.generator.search.analytic.features import Table
from hgemm_packs.problem import Problem
from tests.generator.kernels import BASES

PROBLEMS = [
    Problem(256, 512, k, layout, "f16") for k in (2048, 8192, 32768) for layout in ("nt", "nn")
]


def splitk(problem: Problem) -> list[Choice]:
    return [c for c in Space(problem).core if c.family == "sm90_splitk"][::20]


def made_up(**changed: float) -> list[Timed]:
    """Times of some kernels as the formula has them with other constants."""
    times = []
    for problem in PROBLEMS:
        (part,) = Table(splitk(problem)).parts()
        us = roofline.MODELS["sm90_splitk"](part.columns, problem, {**SPLITK, **changed}).total
        times += [Timed(problem, c, float(t)) for c, t in zip(splitk(problem), us, strict=True)]
    return times


def test_the_screens_are_of_every_family_and_of_no_recorded_size() -> None:
    times = list(calibrate_prior.read_times())
    assert {t.choice.family for t in times} == set(FAMILIES) - set(constants.UNCALIBRATED)
    slices = {t.choice.genome["slices"] for t in times if t.choice.family == "sm90_splitk"}
    assert 1 in slices and len(slices) > 3
    sizes = {(t.problem.m, t.problem.n, t.problem.k) for t in times}
    for path in (calibrate_prior.RESULTS / "replay").glob("*.npz"):
        assert not sizes & {(p.m, p.n, p.k) for p in load(path, any_catalogue=True)}
    some = times[::200]
    assert all(0.5 < t.us < 1e6 for t in some)
    gone = [t.choice for t in some if not FAMILIES[t.choice.family].is_valid(t.choice.genome)]
    assert len(gone) < len(some) / 20
    for choice in gone:  # built with a reduction that held less: today's has no registers for them
        with pytest.raises(InvalidGenome, match=r"sm90_swapab: \d+ sums of \d parts a thread"):
            FAMILIES[choice.family].validate(choice.genome)


def test_weights_by_hand() -> None:
    """Twice the best counts little; so does a family that is far behind another."""
    choice = Choice.of("sm90_splitk", BASES["sm90_splitk"])
    times = [Timed(PROBLEMS[0], choice, us) for us in (10.0, 20.0)]
    near = [1 + 0.02, math.exp(-((math.log(2) / 0.15) ** 2)) + 0.02]
    alone = calibrate_prior.weights(times, {PROBLEMS[0]: 10.0})
    assert alone == pytest.approx([x * 1.05 for x in near])
    behind = calibrate_prior.weights(times, {PROBLEMS[0]: 5.0})
    over = math.exp(-((math.log(2) / 0.5) ** 2)) + 0.05
    assert behind == pytest.approx([x * over for x in near])


def test_a_fit_finds_what_made_the_times() -> None:
    times = made_up(latency=2 * SPLITK["latency"], slice=0.4 * SPLITK["slice"])
    parts = calibrate_prior.parts_of(times)
    assert sorted(part.layout for part in parts) == ["nn", "nt"]
    best = {p: min(t.us for t in times if t.problem == p) for p in PROBLEMS}
    weight = calibrate_prior.weights(times, best)
    formula = roofline.MODELS["sm90_splitk"]
    found, _ = calibrate_prior.fit(formula, SPLITK, parts, weight)
    assert found["latency"] > 1.5 * SPLITK["latency"]
    assert found["slice"] < 0.7 * SPLITK["slice"]
    held = ("fit_3", "fit_4", "fit_8")
    assert [found[name] for name in held] == [SPLITK[name] for name in held]
    for part in parts:
        fitted = np.log(formula(part.columns, part, found).total)
        before = np.log(formula(part.columns, part, SPLITK).total)
        assert np.abs(fitted - part.log_us).mean() < 0.2 * np.abs(before - part.log_us).mean()
