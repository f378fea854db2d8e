"""Fits the predictor of a table, and says by folds what it is worth on problems left out.

Folds are by problem: sizes and layout of a problem are in one fold, whatever its type. Of each
problem left out the model chooses among the kernels that were timed there; the gain that it would
have given, its errors, and so the margin below which it abstains, are those of these choices. A
problem counts where its kernels were not chosen by their times. Finals judge nothing, and are
trained on as what they are: of other programs of measurement, and of the fastest alone. They weigh
little, and trees know them apart. So they know lines of torch alone: its large products are up to
5% faster there, on a GPU that other kernels have not warmed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hgemm_packs.generator.prediction import trees
from hgemm_packs.generator.prediction.abstention import (
    LEAST_MARGIN,
    Judged,
    Threshold,
    choose_thresholds,
    doubt_by_sort,
)
from hgemm_packs.generator.prediction.rows import ALONE, DRAWN, Eye, Rows
from hgemm_packs.generator.prediction.teacher import Lessons
from hgemm_packs.generator.prediction.trees import Array, Growth
from hgemm_packs.pack.predictor import Candidate, Model, Predictor
from hgemm_packs.problem import Problem

FOLDS = 5
OURS = Growth(trees=400, leaves=63, rate=0.09, features=0.25)
TORCH = Growth(trees=512, leaves=63, least=5, rate=0.12)
DOUBT = Growth(trees=80, leaves=16, least=15, rate=0.1)
#: An error above this one teaches no more than one of this.
LARGEST_ERROR = 0.5
#: Of a problem of finals beside one that was drawn.
FINALS_WEIGH = 0.15
#: Of a label of the teacher beside a time.
LABELS_WEIGH = 0.5
#: A kernel is late by this much, as a logarithm, on average of all problems and FEW on which it is
#: not; a time that is wrong by more than LATEST counts as this.
LATE, FEW, LATEST = 0.05, 8, 0.7
#: Candidates of a layout and type at most, and the gain, as a logarithm over all problems asked,
#: that one more must give.
OF_A_KIND, LEAST_SAVED = 48, 0.00001


def fold_of(problems: Sequence[Problem]) -> NDArray[np.int64]:
    """The fold of each problem, by its sizes and layout."""
    import zlib

    keys = [f"{p.m} {p.n} {p.k} {p.layout}" for p in problems]
    return np.array([zlib.crc32(key.encode()) % FOLDS for key in keys], np.int64)


def _fit_ours(rows: Rows) -> Model:
    """The model of our time on problems that are drawn."""
    weighs = np.where(rows.finals, FINALS_WEIGH, 1.0)
    weights = rows.weights * weighs[rows.of]
    return trees.grow(rows.values, rows.logs, weights, OURS, rows.sorts()[rows.of])


def late(rows: Rows) -> frozenset[int]:
    """Kernels that take longer than a model foretells that has not seen the problem: what slows
    them is nothing that a model sees. Where such a kernel's numbers promise most it loses."""
    folds = fold_of(rows.problems)
    later: Array = np.zeros(len(rows.of))
    for fold in range(FOLDS):
        out = folds[rows.of] == fold
        if out.any() and not out.all():
            foretold = trees.ask(_fit_ours(rows.part(folds != fold)), rows.values[out])
            later[out] = rows.logs[out] - foretold
    drawn = ~rows.finals[rows.of]
    counts = np.bincount(rows.kernels[drawn])
    errors = np.clip(later[drawn], -LATEST, LATEST)
    means = np.bincount(rows.kernels[drawn], errors) / (counts + FEW)
    return frozenset(np.flatnonzero(means > LATE).tolist())


def _fit_torch(rows: Rows, learned: Lessons | None) -> Model:
    """The model of torch's time on problems that are drawn."""
    places, seen = rows.of_problems()
    weighs = np.where(rows.finals, FINALS_WEIGH, 1.0)[places]
    # Values, logarithms of times, weight and sort, of what is drawn or of finals, then of the rest.
    alone = rows.alone
    parts = [
        (seen, rows.torch[places], weighs, rows.sorts()[places]),
        (alone.values, alone.torch, np.ones(len(alone.torch)), np.full(len(alone.torch), ALONE)),
    ]
    if learned is not None:
        labels = learned.labels(rows)
        weighs = np.full(len(labels), LABELS_WEIGH)
        parts.append((learned.values, labels, weighs, np.full(len(labels), DRAWN)))
    values, logs, weights, sorts = (np.concatenate(each) for each in zip(*parts, strict=True))
    return trees.grow(values, logs, weights, TORCH, sorts)


def judge(
    rows: Rows, learned: Lessons | None = None, without: frozenset[int] = frozenset()
) -> Judged:
    """Choices on every problem that was drawn, each by models, and a teacher, that have not seen
    it. Kernels `without` which the choice is made teach nothing, but may be the best."""
    may = ~np.isin(rows.kernels, [*without])
    folds, folds_alone = fold_of(rows.problems), fold_of(rows.alone.problems)
    chosen: dict[int, tuple[float, float, float, Array]] = {}
    for fold in range(FOLDS):
        out = rows.part((folds == fold) & ~rows.finals)
        if not len(out.of):
            continue
        ours = _fit_ours(rows.where(may & (folds != fold)[rows.of]))
        known = replace(rows.part(folds != fold), alone=rows.alone.part(folds_alone != fold))
        torch = _fit_torch(known, learned)
        places, seen = out.of_problems()
        of_torch = dict(zip(places.tolist(), trees.ask(torch, seen).tolist(), strict=True))
        of_ours = trees.ask(ours, out.values)
        of_ours[np.isin(out.kernels, [*without])] = math.inf
        for place in places.tolist():
            mine = np.flatnonzero(out.of == place)
            pick = mine[np.argmin(of_ours[mine])]
            if of_ours[pick] == math.inf:
                continue
            actual = rows.torch[place]
            chosen[place] = (
                of_torch[place] - of_ours[pick],
                actual - out.logs[pick],
                actual - out.logs[mine].min(),
                out.values[pick],
            )
    order = sorted(chosen)
    predicted, measured, best = (np.array([chosen[p][i] for p in order]) for i in range(3))
    values = np.array([chosen[p][3] for p in order])
    problems = tuple(rows.problems[p] for p in order)
    doubt = np.zeros(len(order))
    wrong = _errors(predicted, measured)
    for fold in range(FOLDS):
        out_of = folds[order] == fold
        if out_of.any() and not out_of.all():
            model = fit_doubt(values[~out_of], wrong[~out_of])
            doubt[out_of] = trees.ask(model, values[out_of])
    return Judged(problems, predicted, measured, best, values, doubt)


def _errors(predicted: Array, measured: Array) -> Array:
    wrong: Array = np.minimum(np.abs(predicted - measured), LARGEST_ERROR)
    return wrong


def fit_doubt(values: Array, wrong: Array) -> Model:
    """The model of what a predicted gain is wrong by."""
    return trees.grow(values, wrong, np.ones(len(values)), DOUBT)


def pick_candidates(
    ours: Model, torch: Model, eye: Eye, asked: Sequence[Problem], most: int = OF_A_KIND
) -> tuple[Candidate, ...]:
    """Of each layout and type the kernels that together save most of torch's time, by what the
    models say of the problems `asked`; one after the other the one that helps most, while that is
    worth a look."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for problem in asked:
        kinds.setdefault((problem.layout, problem.dtype), []).append(problem)
    found: list[Candidate] = []
    for listed in kinds.values():
        logs: Array = np.full((len(listed), len(eye.kernels)), math.inf)
        now: Array = np.zeros(len(listed))
        for row, problem in enumerate(listed):
            taking = eye.taking(problem)
            if taking:
                seen = np.array([*taking.values()])
                logs[row, [*taking]] = trees.ask(ours, seen)
                now[row] = trees.ask(torch, seen[:1])[0]
        places = np.flatnonzero(np.isfinite(logs).any(axis=0))
        logs = logs[:, places]
        for _ in range(min(most, len(places))):
            better = np.minimum(logs, now[:, None])
            saved = (now[:, None] - better).mean(axis=0)
            pick = int(np.argmax(saved))
            if saved[pick] < LEAST_SAVED:
                break
            now = better[:, pick]
            found.append(eye.kernels[places[pick]])
    return tuple(found)


def fit(
    rows: Rows,
    eye: Eye,
    asked: Sequence[Problem],
    profile: str,
    families: tuple[str, ...],
    learned: Lessons | None = None,
    without: frozenset[int] = frozenset(),
) -> tuple[Predictor, Judged, tuple[Threshold, ...]]:
    """The predictor of all rows but of kernels `without` which it is fitted, and of what a teacher
    makes of `learned`, with candidates among the kernels that `eye` sees. Raises ValueError where
    there is too little to judge by."""
    judged = judge(rows, learned, without)
    if len(judged.problems) < 2 * FOLDS:
        raise ValueError(f"{len(judged.problems)} problems are too few to judge by")
    thresholds = choose_thresholds(judged)
    ours = _fit_ours(rows.where(~np.isin(rows.kernels, [*without])))
    torch = _fit_torch(rows, learned)
    doubt = fit_doubt(judged.values, _errors(judged.predicted, judged.measured))
    found = Predictor(
        profile,
        families,
        LEAST_MARGIN,
        pick_candidates(ours, torch, eye, asked),
        ours,
        torch,
        doubt_by_sort(doubt, thresholds),
    )
    return found, judged, thresholds
