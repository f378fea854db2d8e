"""Tree-structured Parzen estimators by optuna: a rival for the comparison of searches.

One study a problem, since a study cannot carry what it learnt to another shape. Never used to make
a table.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import Trial, TrialState

from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.search.rivals.by_problem import ByProblem
from hgemm_packs.generator.search.rivals.lattice import Grid, Lattice

#: Choices drawn uniformly before the estimators propose: optuna's own default number, and the best
#: of 8 to 24 on the recorded problems. Left to itself it starts from random points, of which one in
#: forty is a choice, and their neighbours are a poor sample of the space.
STARTUP = 10
#: A failure counts as this much slower, in log time, than the slowest kernel that worked.
FAILED = math.log(2.0)

FAMILY = "family"


class _Study:
    """One problem's study. It knows a gene by its place among the values of its axis."""

    def __init__(self, lattice: Lattice, rng: np.random.Generator) -> None:
        self.lattice = lattice
        self.free = np.ones(len(lattice.choices), dtype=bool)
        self.rng = rng
        self.running: dict[Choice, Trial] = {}
        self.worst = -math.inf
        self.known: dict[str, dict[str, BaseDistribution]] = {
            name: _distributions(grid) for name, grid in lattice.grids.items()
        }
        self.families = CategoricalDistribution(list(lattice.grids))
        seed = int(rng.integers(2**31))
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
        self.study = optuna.create_study(sampler=sampler)

    def ask(self, n: int) -> list[Choice]:
        """At most `n` choices that were not asked before."""
        asked = [self._ask_one() for _ in range(n)]
        return [choice for choice in asked if choice is not None]

    def learn(self) -> None:
        """Nothing is left to do: the study has learnt of each value as it was told."""

    def _ask_one(self) -> Choice | None:
        """A choice that was not asked before; None when there is none left.

        A suggestion that is no free choice is told as failed, which the estimators ignore, and its
        nearest free neighbour runs in its place as a trial with the neighbour's own genes. So the
        study learns of nothing that was not measured, and each measurement teaches it.
        """
        there = np.flatnonzero(self.free)
        if not len(there):
            return None
        if len(self.lattice.choices) - len(there) < STARTUP:
            number = int(self.rng.choice(there))
            trial = self._start_trial(number)
        else:
            trial = self.study.ask()
            name, place = self._suggest(trial)
            nearest = self.lattice.nearest(name, place, self.free, self.rng)
            number = int(self.rng.choice(there)) if nearest is None else nearest
            if trial.params != self._params(number):
                self.study.tell(trial, state=TrialState.FAIL)
                trial = self._start_trial(number)
        self.free[number] = False
        choice = self.lattice.choices[number]
        self.running[choice] = trial
        return choice

    def tell(self, choice: Choice, log_us: float | None) -> None:
        """The value of a choice, None for a failure; one that was not asked here is learnt too."""
        number = self.lattice.number.get(choice)
        if number is None:
            return
        self.free[number] = False
        value = self.worst + FAILED if log_us is None else log_us
        self.worst = max(self.worst, -math.inf if log_us is None else log_us)
        trial = self.running.pop(choice, None) or self._start_trial(number)
        if math.isfinite(value):
            self.study.tell(trial, value)
        else:  # nothing to compare a failure with yet
            self.study.tell(trial, state=TrialState.FAIL)

    def _suggest(self, trial: Trial) -> tuple[str, list[int]]:
        """The family and places that a trial has."""
        name = str(trial.suggest_categorical(FAMILY, self.families.choices))
        place: list[Any] = []
        for key, distribution in self.known[name].items():
            if isinstance(distribution, IntDistribution):
                place.append(trial.suggest_int(key, distribution.low, distribution.high))
            else:
                assert isinstance(distribution, CategoricalDistribution)
                place.append(trial.suggest_categorical(key, distribution.choices))
        return name, place

    def _start_trial(self, number: int) -> Trial:
        """A running trial with the genes of a choice."""
        self.study.enqueue_trial(self._params(number))
        trial = self.study.ask()
        self._suggest(trial)
        return trial

    def _params(self, number: int) -> dict[str, Any]:
        name = self.lattice.choices[number].family
        grid = self.lattice.grids[name]
        place = grid.places[number - grid.first].tolist()
        return {FAMILY: name, **dict(zip(self.known[name], place, strict=True))}


def _distributions(grid: Grid) -> dict[str, BaseDistribution]:
    return {
        f"{grid.family}.{axis.gene}": IntDistribution(0, len(axis.values) - 1)
        if axis.ordered
        else CategoricalDistribution(list(range(len(axis.values))))
        for axis in grid.axes
    }


def make(seed: int) -> ByProblem:
    """A search by TPE; the same seed and the same answers give the same proposals. The family is a
    categorical; a family's genes are suggested only where it is chosen."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return ByProblem("tpe", seed, _Study)
