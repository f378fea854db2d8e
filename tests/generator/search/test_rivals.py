"""Random search, TPE and CMA-ES: no choice twice, none left out, and they search."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from statistics import fmean

import numpy as np
import pytest

from hgemm_packs.generator.core.space import FITTED, Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal, Status
from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.search.base import Strategy
from hgemm_packs.generator.search.rivals import cma, random_search, tpe
from hgemm_packs.generator.search.rivals.lattice import Lattice, lattice_of
from hgemm_packs.problem import Problem
from tests.generator.kernels import WGMMA

PROBLEM = Problem(256, 512, 1024, "nt", "f16")
OTHER = Problem(2048, 512, 1024, "nt", "f16")
FULL = Space(PROBLEM)
#: Fifty choices of both families.
SMALL = Space(PROBLEM, only=random.Random(0).sample(FULL.core, 50))
RIVALS = {"random": random_search.make, "tpe": tpe.make, "cma": cma.make}
SIM = SimDevice(11)

rivals = pytest.mark.parametrize("make", RIVALS.values(), ids=RIVALS)
Make = Callable[[int], Strategy]


def told(proposal: Proposal, us: float | None) -> Outcome:
    if us is None:
        return Outcome(proposal, Status.BUILD, math.inf)
    return Outcome(proposal, Status.OK, us)


def search(
    strategy: Strategy, space: Space, budget: int, time: Callable[[Choice], float | None]
) -> list[Choice]:
    """The choices measured, eight at a time, in order."""
    seen: list[Choice] = []
    while len(seen) < budget:
        proposals = strategy.ask(space, min(8, budget - len(seen)))
        if not proposals:
            break
        strategy.tell(space, [told(p, time(p.choice)) for p in proposals])
        seen += [p.choice for p in proposals]
    return seen


@rivals
def test_a_small_space_is_exhausted_without_repeats_even_if_half_of_it_fails(make: Make) -> None:
    def time(choice: Choice) -> float | None:
        return None if int(choice.key, 16) % 2 else SIM.true_us(choice, PROBLEM)

    strategy = make(1)
    seen = search(strategy, SMALL, 1000, time)
    assert len(seen) == len(set(seen)) == 50
    assert set(seen) == set(SMALL.core)
    assert strategy.ask(SMALL, 8) == []


@rivals
def test_a_space_in_which_nothing_works_is_exhausted_too(make: Make) -> None:
    assert set(search(make(1), SMALL, 1000, lambda _: None)) == set(SMALL.core)


@rivals
def test_one_seed_one_search(make: Make) -> None:
    def run(seed: int) -> list[Choice]:
        return search(make(seed), FULL, 40, lambda choice: SIM.true_us(choice, PROBLEM))

    np.random.seed(1)
    first = run(5)
    np.random.seed(2)
    assert run(5) == first
    assert run(6) != first


@rivals
def test_the_shared_random_state_is_left_alone(make: Make) -> None:
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    search(make(1), FULL, 24, lambda choice: SIM.true_us(choice, PROBLEM))
    assert np.random.random() == expected


@rivals
def test_problems_do_not_share_their_answers(make: Make) -> None:
    strategy = make(2)
    other = Space(OTHER)
    alone = search(make(2), FULL, 24, lambda choice: SIM.true_us(choice, PROBLEM))
    woven: list[Choice] = []
    for _ in range(3):
        search(strategy, other, 8, lambda choice: SIM.true_us(choice, OTHER))
        woven += search(strategy, FULL, 8, lambda choice: SIM.true_us(choice, PROBLEM))
    assert woven == alone


@rivals
def test_what_others_measured_is_not_measured_again(make: Make) -> None:
    foreign = SMALL.core[:45]
    strategy = make(1)
    outcomes = [told(Proposal(c, "elsewhere"), SIM.true_us(c, PROBLEM)) for c in foreign]
    strategy.tell(SMALL, outcomes)
    assert {p.choice for p in strategy.ask(SMALL, 50)} == set(SMALL.core[45:])


@rivals
def test_a_foreign_choice_outside_the_space_does_no_harm(make: Make) -> None:
    strategy = make(1)
    beyond = next(choice for choice in FULL.core if choice not in SMALL.core)
    strategy.tell(SMALL, [told(Proposal(beyond, "elsewhere"), 1.0)])
    assert len(search(strategy, SMALL, 1000, lambda c: SIM.true_us(c, PROBLEM))) == 50


def mean_log_regret(make: Make, budget: int) -> float:
    regrets = []
    for problem in (PROBLEM, OTHER):
        # What is fitted to a problem is good from the first: among it chance does well.
        listed = [choice for choice in Space(problem).core if choice.family not in FITTED]
        space, optimum = Space(problem, only=listed), SIM.optimum(problem)[1]
        for seed in range(4):
            time = partial(SIM.true_us, problem=problem)
            seen = search(make(seed), space, budget, time)
            regrets.append(math.log(min(map(time, seen)) / optimum))
    return fmean(regrets)


def test_with_64_measurements_both_learners_are_ahead_of_random_search() -> None:
    by_chance = mean_log_regret(random_search.make, 64)
    assert 0.0 < mean_log_regret(tpe.make, 64) < 0.9 * by_chance
    assert 0.0 < mean_log_regret(cma.make, 64) < 0.9 * by_chance


def test_random_search_is_uniform() -> None:
    counts = dict.fromkeys(SMALL.core, 0)
    for seed in range(500):
        for proposal in random_search.make(seed).ask(SMALL, 5):
            counts[proposal.choice] += 1
    assert sum(counts.values()) == 2500
    # chi-squared of 49 degrees of freedom: beyond 85 by chance once in a thousand
    assert sum((count - 50) ** 2 / 50 for count in counts.values()) < 85


def test_a_lattice_finds_the_nearest_free_choice() -> None:
    lattice = lattice_of(FULL)
    rng = np.random.default_rng(0)
    free = np.ones(len(lattice.choices), dtype=bool)
    grid = lattice.grids["sm90_wgmma"]
    last = len(grid.places) - 1
    for number in (grid.first, grid.first + last // 2, grid.first + last):
        place = grid.places[number - grid.first].tolist()
        assert lattice.nearest("sm90_wgmma", place, free, rng) == number
        free[number] = False
        neighbour = lattice.nearest("sm90_wgmma", place, free, rng)
        assert neighbour is not None and neighbour != number
        distances = grid.distances(place)
        others = np.delete(distances, number - grid.first)
        assert distances[neighbour - grid.first] == pytest.approx(others.min())
    free[:] = False
    assert lattice.nearest("sm90_wgmma", place, free, rng) is None


def test_lattice_distances_by_hand() -> None:
    def choice(tile_n: int, stages: int, epilogue: str) -> Choice:
        genes = {"tile_n": tile_n, "stages": stages, "epilogue": epilogue}
        return Choice.of("sm90_wgmma", {**WGMMA, **genes})

    lattice = Lattice([choice(32, 4, "staged"), choice(64, 4, "bulk"), choice(128, 3, "grouped")])
    grid = lattice.grids["sm90_wgmma"]
    assert [axis.gene for axis in grid.axes] == ["tile_n", "stages", "epilogue"]
    assert grid.places.tolist() == [[0, 1, 0], [1, 1, 2], [2, 0, 1]]
    # from (64, 4, staged): half of tile_n; only the epilogue; half of tile_n, all of stages, it
    assert grid.distances([1, 1, 0.4]).tolist() == [0.5, 1.0, 2.5]
