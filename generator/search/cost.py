"""The learnt cost model: boosted trees over all problems told so far, with the prior to start from.
As a strategy it proposes what it believes fastest.

Used by the portfolio, which screens by it what is built and measured. It never sees a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import ThreadpoolController

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal
from hgemm_packs.generator.search.analytic.features import FIELDS, Array, Places
from hgemm_packs.generator.search.history import History, Told
from hgemm_packs.generator.search.kriging import Kriging, closeness
from hgemm_packs.generator.search.prior import Rows, rows_of

LEAST_TIMES = 300  # fewer say less than the prior
GROWTH = 1.5  # times as many as at the last fit call for the next
MOST_TIMES = 4000  # keeps a fit at some 0.3 s
SCREENED = 600  # of a core, the prior's best that are judged further: some ten for one measured
#: How far the prior and the trees are off from row to row, in doublings of time.
PRIOR_OFF = 0.15
TREES_OFF = 0.12
BOLDNESS = 2.0  # standard deviations of benefit of the doubt


def features(rows: Rows, at: Places) -> Array:
    """A row a choice: quantities (NaN for other families'), shares of the estimate, sizes."""
    of, problem = rows.terms, rows.problem
    parts = list(rows.table.parts(at))
    columns: list[Array] = []
    for name, fields in FIELDS.items():
        block = np.full((len(at), len(fields)), np.nan)
        for part in parts:
            if part.family == name:
                block[part.rows] = np.stack([part.columns[f] for f in fields], axis=1)
        columns.append(block)
    shares = [of.serial, of.math, of.load, of.dram, of.tail]
    columns.append(np.stack([share[at] / of.total[at] for share in shares], axis=1))
    sizes = [math.log2(problem.m), math.log2(problem.n), math.log2(problem.k)]
    sizes.append(float(problem.layout == "nn"))
    columns.append(np.tile(sizes, (len(at), 1)))
    columns.append(rows.prior[at, None])
    return np.hstack(columns)


class CostModel:
    """log2 of us as prior and trees have it, up to a constant of the problem."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._trees: HistGradientBoostingRegressor | None = None
        self._fitted = 0
        self._known: WeakKeyDictionary[Rows, Array] = WeakKeyDictionary()
        self._threads = ThreadpoolController()

    @property
    def off(self) -> float:
        """How far `predict_log_us` is off from row to row, in doublings."""
        return PRIOR_OFF if self._trees is None else TREES_OFF

    def refit(self, history: History) -> None:
        """Fit again if much was told since the last time."""
        if history.timed < max(LEAST_TIMES, GROWTH * self._fitted):
            return
        self._fitted = history.timed
        lessons = [lesson(told) for told in history.sample(MOST_TIMES, self._seed)]
        x, y, weight = (np.concatenate(column) for column in zip(*lessons, strict=True))
        # Some versions of scikit-learn cannot bin a column of NaN: genes of a family not yet told.
        x[:, np.isnan(x).all(axis=0)] = 0.0
        trees = HistGradientBoostingRegressor(
            max_iter=60,
            learning_rate=0.05,
            max_leaf_nodes=8,
            min_samples_leaf=20,
            l2_regularization=1.0,
            early_stopping=False,
            random_state=self._seed,
        )
        # One thread: threads that wait for a busy machine's other cores cost seconds.
        with self._threads.limit(limits=1):
            self._trees = trees.fit(x, y, sample_weight=weight)
        self._known = WeakKeyDictionary()

    def predict_log_us(self, rows: Rows, at: Places) -> Array:
        """log2 of us at some rows."""
        if self._trees is None:
            return rows.prior[at]
        known = self._known.setdefault(rows, np.full(len(rows.choices), np.nan))
        new = at[np.isnan(known[at])]
        if len(new):
            with self._threads.limit(limits=1):
                known[new] = rows.prior[new] + self._trees.predict(features(rows, new))
        return known[at]


def lesson(told: Told) -> tuple[Array, Array, Array]:
    """Features, log2 of us over the prior less the problem's mean, and weights."""
    choices, log_us = told.front()
    rows = Rows(choices, told.problem)
    weights = closeness(log_us)
    surprise = log_us - rows.prior
    surprise -= np.average(surprise, weights=weights)
    return features(rows, np.arange(len(choices))), surprise, weights


class ChoicePool:
    """What may be measured next on a problem, and what is believed of it in log2 of us: the rows of
    the core that the prior does not rule out, and `others`. Taking one lowers the doubt of its
    like, so that what is taken together differs."""

    def __init__(
        self, model: CostModel, history: History, space: Space, others: Sequence[Choice] = ()
    ) -> None:
        told = history.of(space.problem)
        core = rows_of(space)
        score = core.prior + history.penalty(core.table)
        named = [core.row[c] for c in others if c in core.row and c not in told.us]
        at = np.union1d(_select_rows(score, core.open(told)), np.array(named, dtype=np.intp))
        new = [c for c in dict.fromkeys(others) if c not in core.row and c not in told.us]
        timed, log_us = told.front()
        rest = Rows([*new, *(c for c in timed if c not in core.row)], space.problem)
        self.choices: tuple[Choice, ...] = (*(core.choices[i] for i in at), *new)
        self.free = np.ones(len(self.choices), dtype=bool)
        self._place = {choice: i for i, choice in enumerate(self.choices)}

        def of(core_at: Places, rest_at: Places) -> tuple[Array, Array]:
            """Gene values and what is believed of rows of both."""
            believed = [
                model.predict_log_us(core, core_at) + history.penalty(core.table)[core_at],
                model.predict_log_us(rest, rest_at) + history.penalty(rest.table)[rest_at],
            ]
            hot = [core.table.hot(core_at), rest.table.hot(rest_at)]
            return np.concatenate(hot), np.concatenate(believed)

        self._kriging = Kriging(*of(at, np.arange(len(new))), model.off)
        if timed:
            inside = np.array([choice in core.row for choice in timed])
            timed_at = np.array([core.row[c] for c in timed if c in core.row], dtype=np.intp)
            order = np.argsort(~inside, kind="stable")
            known = of(timed_at, np.arange(len(new), len(rest.choices)))
            self._kriging.learn(*known, log_us[order])

    @property
    def mean(self) -> Array:
        return self._kriging.mean

    def __contains__(self, choice: Choice) -> bool:
        """Whether it can still be taken."""
        place = self._place.get(choice)
        return place is not None and bool(self.free[place])

    def pick_promising(self, among: Sequence[Choice] = ()) -> Choice | None:
        """The free choice, of `among` if given, that looks fastest given the benefit of doubt."""
        free = self.free
        if among:
            free = np.zeros_like(free)
            free[[self._place[choice] for choice in among if choice in self]] = True
        if not free.any():
            return None
        score: Array = np.where(free, self._kriging.mean - BOLDNESS * self._kriging.sd, np.inf)
        return self.choices[int(np.argmin(score))]

    def take(self, choice: Choice) -> None:
        """Count it as about to be measured. Raises KeyError for a choice outside the field."""
        place = self._place[choice]
        self.free[place] = False
        self._kriging.believe(place)


def _select_rows(score: Array, open_rows: NDArray[np.bool_]) -> Places:
    """The SCREENED open rows with the least score, in order of rows."""
    at = np.flatnonzero(open_rows)
    if len(at) > SCREENED:
        at = np.sort(at[np.argpartition(score[at], SCREENED)[:SCREENED]])
    return at


class CostSearch:
    """Measures what the model finds most promising, and nothing else."""

    name = "cost"

    def __init__(self, seed: int) -> None:
        self._model = CostModel(seed)
        self._history = History()

    def ask(self, space: Space, n: int) -> list[Proposal]:
        self._model.refit(self._history)
        field = ChoicePool(self._model, self._history, space)
        found: list[Proposal] = []
        while len(found) < n and (choice := field.pick_promising()) is not None:
            field.take(choice)
            found.append(Proposal(choice, self.name, "cost"))
        return found

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        self._history.add(space.problem, outcomes)


def make(seed: int) -> CostSearch:
    """A search by the cost model alone."""
    return CostSearch(seed)
