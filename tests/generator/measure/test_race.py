"""The race on made-up times: the best stays, losers leave early, ties run to the end."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from hgemm_packs.generator.measure.race import (
    ERROR,
    MAX_BLOCKS,
    MIN_BLOCKS,
    Block,
    RaceStandings,
    race,
    slower_evidence,
)

Noise = Callable[[random.Random], float]

NOISES: dict[str, Noise] = {
    "normal": lambda r: r.gauss(0, 0.005),
    "coarse": lambda r: r.gauss(0, 0.02),
    "outliers": lambda r: r.gauss(0, 0.005) + (r.random() < 0.05) * abs(r.gauss(0, 0.1)),
    "laplace": lambda r: 0.007 * r.expovariate(1) * r.choice((-1, 1)),
}


class Course:
    """Arms `gaps` slower than a time of 1 us (hot) and 2 us (cold), on a machine that drifts."""

    def __init__(self, gaps: Sequence[float], noise: Noise, seed: int) -> None:
        self._random, self._noise = random.Random(seed), noise
        self.gaps = {f"k{i}": gap for i, gap in enumerate(gaps)}
        self.timed: list[tuple[str, ...]] = []

    def block(self, alive: Sequence[str]) -> Block:
        self.timed.append(tuple(alive))
        drift = self._random.gauss(0, 0.02)

        def us(name: str) -> float:
            return (1 + self.gaps[name]) * math.exp(drift + self._noise(self._random))

        return {p: {n: base * us(n) for n in alive} for p, base in (("hot", 1.0), ("cold", 2.0))}

    def run(self) -> RaceStandings:
        return race(list(self.gaps), self.block)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    "gaps",
    [
        (0.0, 0.0005),  # one rival, nearly level
        (0.0, *[0.0005] * 11),  # many, any of which may look best for a while
        (0.0, *[0.003 * i for i in range(1, 12)]),
    ],
)
def test_the_best_is_dropped_in_fewer_races_than_stated(
    noise: str, gaps: tuple[float, ...]
) -> None:
    races = 150
    lost = sum("k0" not in Course(gaps, NOISES[noise], seed).run().alive for seed in range(races))
    assert lost / races < ERROR


def test_losers_leave_early_and_the_winner_ends_the_race() -> None:
    gaps = (0.05, 0.0, *[0.04 * i for i in range(2, 22)])
    course = Course(gaps, NOISES["normal"], seed=1)
    tally = course.run()
    assert tally.alive == ["k1"]
    assert sum(map(len, course.timed)) < 0.4 * MAX_BLOCKS * len(gaps)
    assert [len(alive) for alive in course.timed[:MIN_BLOCKS]] == [len(gaps)] * MIN_BLOCKS
    # Times of arms that left are kept, one per block that they ran in, hot beside cold.
    for name in course.gaps:
        ran = sum(name in alive for alive in course.timed)
        assert len(tally.samples["hot"][name]) == len(tally.samples["cold"][name]) == ran
        assert 1.9 < tally.samples["cold"][name][0] / tally.samples["hot"][name][0] < 2.1


def test_a_tie_runs_to_the_end_and_nobody_leaves() -> None:
    course = Course((0.0, 0.0, 0.0), NOISES["normal"], seed=2)
    retired: list[str] = []
    tally = race(list(course.gaps), course.block, retired.extend)
    assert tally.alive == ["k0", "k1", "k2"] and retired == []
    assert len(course.timed) == MAX_BLOCKS


def test_a_faster_cold_time_makes_up_for_a_slower_hot_one() -> None:
    noise = random.Random(3)
    us = {"hot": {"a": 1.0, "b": 1.1, "c": 1.2}, "cold": {"a": 1.5, "b": 1.2, "c": 1.25}}
    retired: list[str] = []

    def block(alive: Sequence[str]) -> Block:
        return {p: {n: times[n] * noise.gauss(1, 0.003) for n in alive} for p, times in us.items()}

    assert race(["a", "b", "c"], block, retired.extend).alive == ["b"]
    assert sorted(retired) == ["a", "c"]


def test_evidence_is_that_of_a_t_test() -> None:
    """Bayes factor of Student's t, n = 4, effects of N(0, 100) deviations, against values from
    numeric integration over the effect."""
    differences = [0.02, 0.03, 0.025, 0.035]
    mean, n = 0.0275, 4
    deviation = math.sqrt(sum((d - mean) ** 2 for d in differences) / 3 + 0.001**2)
    t = mean / (deviation / math.sqrt(n))

    def likelihood(effect: float) -> float:
        """Density of t, up to a constant, given the effect in deviations: noncentral t as an
        integral over the deviation, by the midpoint rule."""
        steps, total = 400, 0.0
        for i in range(steps):
            s = (i + 0.5) / steps * 4.0  # sample deviation over the true one
            total += s**3 * math.exp(-1.5 * s * s - 0.5 * (t * s - effect * 2.0) ** 2)
        return total

    width = 0.05
    prior = [(i * width, math.exp(-0.5 * (i * width / 10) ** 2)) for i in range(-800, 801)]
    mixed = sum(p * likelihood(e) for e, p in prior) * width / (10 * math.sqrt(2 * math.pi))
    assert slower_evidence(differences) == pytest.approx(mixed / likelihood(0.0), rel=0.01)


def test_evidence_needs_a_slower_arm_and_more_than_the_resolution() -> None:
    assert slower_evidence([0.05]) == 0.0
    assert slower_evidence([-0.05, -0.04, -0.06, -0.05]) == 0.0
    assert slower_evidence([0.0] * 8) == 0.0
    assert slower_evidence([0.0001] * 8) < 1.0  # exactly equal times, but below the resolution
    assert slower_evidence([0.05] * 8) > 1e6
    assert slower_evidence([0.05, 0.06] * 4) > slower_evidence([0.05, 0.06] * 2)


def test_one_arm_needs_one_block_and_none_is_an_error() -> None:
    course = Course((0.0,), NOISES["normal"], seed=4)
    assert course.run().alive == ["k0"] and len(course.timed) == 1
    with pytest.raises(ValueError, match="needs arms"):
        race([], course.block)
