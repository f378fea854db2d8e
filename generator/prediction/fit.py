"""Fits the predictor of a table, and says by folds what it is worth on problems left out.

Folds are by problem: sizes and layout of a problem are in one fold, whatever its type. Of each
problem left out the model chooses among the kernels that were timed there; the gain that it would
have given, its errors, and so the margin below which it abstains, are those of these choices. A
problem counts where its kernels were not chosen by their times. Finals judge nothing, and are
trained on as what they are: of other programs of measurement, and of the fastest alone. They weigh
little, and trees know them apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgemm_packs.generator.prediction import trees
from hgemm_packs.generator.prediction.rows import Eye, Rows
from hgemm_packs.generator.prediction.trees import Array, Growth
from hgemm_packs.pack.predictor import Candidate, Model, Predictor
from hgemm_packs.problem import Problem

FOLDS = 5
#: Of all problems left out, so many may be below LOSS of torch, and so many below WORST.
LOSS, MOST_BELOW = 0.98, 0.006
WORST, MOST_WORSE = 0.95, 0.001
#: What the doubt is taken times, and the least gain that is worth a kernel.
DOUBTS, LEAST_MARGIN = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0), 1.01
OURS = Growth(trees=200, leaves=63, rate=0.085)
TORCH = Growth(trees=300, leaves=31, rate=0.06)
DOUBT = Growth(trees=80, leaves=16, least=15, rate=0.1)
#: An error above this one teaches no more than one of this.
LARGEST_ERROR = 0.5
#: Of a problem of finals beside one that was drawn.
FINALS_WEIGH = 0.15
#: Candidates of a layout and type.
OF_A_KIND = 20


@dataclass(frozen=True)
class Judged:
    """Choices on problems left out, a place each: logarithms of torch over the choice as
    `predicted` and as `measured`, and over the `best` kernel that was timed; `doubt` of the
    choice."""

    problems: tuple[Problem, ...]
    predicted: Array
    measured: Array
    best: Array
    values: Array
    doubt: Array


def fold_of(rows: Rows) -> NDArray[np.int64]:
    """The fold of each problem, by its sizes and layout."""
    import zlib

    keys = [f"{p.m} {p.n} {p.k} {p.layout}" for p in rows.problems]
    return np.array([zlib.crc32(key.encode()) % FOLDS for key in keys])


def _fit_times(rows: Rows) -> tuple[Model, Model]:
    """The models of our time and of torch's on problems that are drawn."""
    places, seen = rows.of_problems()
    finals = rows.finals.astype(float)
    weighs = np.where(rows.finals, FINALS_WEIGH, 1.0)
    ours = trees.grow(rows.values, rows.logs, rows.weights * weighs[rows.of], OURS, finals[rows.of])
    return ours, trees.grow(seen, rows.torch[places], weighs[places], TORCH, finals[places])


def judge(rows: Rows) -> Judged:
    """Choices on every problem that was drawn, each by models that have not seen it."""
    folds = fold_of(rows)
    chosen: dict[int, tuple[float, float, float, Array]] = {}
    for fold in range(FOLDS):
        out = rows.part((folds == fold) & ~rows.finals)
        if not len(out.of):
            continue
        ours, torch = _fit_times(rows.part(folds != fold))
        places, seen = out.of_problems()
        of_torch = dict(zip(places.tolist(), trees.ask(torch, seen).tolist(), strict=True))
        of_ours = trees.ask(ours, out.values)
        for place in places.tolist():
            mine = np.flatnonzero(out.of == place)
            pick = mine[np.argmin(of_ours[mine])]
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


@dataclass(frozen=True)
class Threshold:
    """When a prediction serves: its gain less `doubts` times the doubt is at least log `margin`."""

    margin: float
    doubts: float


def choose_threshold(judged: Judged) -> Threshold:
    """The one that keeps most of the gain of those that lose no more than is allowed. A margin of
    100, which nothing reaches, where none does."""
    best, found = 0.0, Threshold(100.0, 0.0)
    for doubts in DOUBTS:
        sure = judged.predicted - doubts * judged.doubt
        order = np.argsort(-sure)
        gains = judged.measured[order]
        below, worse = (np.cumsum(gains < math.log(each)) for each in (LOSS, WORST))
        allowed = (below <= MOST_BELOW * len(order)) & (worse <= MOST_WORSE * len(order))
        allowed &= sure[order] >= math.log(LEAST_MARGIN)
        kept = np.where(allowed, np.cumsum(gains), -math.inf)
        if len(kept) and kept.max() > best:
            last = int(np.argmax(kept))
            best = float(kept[last])
            # Between the last that serves and the first that does not.
            ends = sure[order[last]]
            behind = sure[order[last + 1]] if last + 1 < len(order) else ends
            margin = math.exp((ends + max(behind, math.log(LEAST_MARGIN))) / 2)
            found = Threshold(max(margin, LEAST_MARGIN), doubts)
    return found


def figures(judged: Judged, threshold: Threshold) -> dict[str, Any]:
    """What the choices on problems left out are worth, torch's where it is not sure."""
    serves = judged.predicted - threshold.doubts * judged.doubt >= math.log(threshold.margin)
    got = np.where(serves, judged.measured, 0.0)
    possible = np.maximum(judged.best, 0.0).sum()
    served = judged.measured[serves]
    spread = np.exp(judged.predicted - judged.measured)
    return {
        "problems": len(judged.problems),
        "served": round(float(serves.mean()), 4),
        "gmean": round(float(np.exp(got.mean())), 4),
        "gmean_of_best": round(float(np.exp(np.maximum(judged.best, 0.0).mean())), 4),
        "share_of_gain": round(float(got.sum() / possible), 4) if possible else 1.0,
        "below_098": round(float((served < math.log(LOSS)).mean()), 4) if len(served) else 0.0,
        "worst": round(float(np.exp(served.min())), 4) if len(served) else 1.0,
        "choice_of_best": round(float(np.exp((judged.measured - judged.best).mean())), 4),
        "predicted_over_measured": [
            round(float(each), 4) for each in np.quantile(spread, (0.05, 0.5, 0.95))
        ],
    }


def pick_candidates(
    ours: Model, eye: Eye, asked: Sequence[Problem], most: int = OF_A_KIND
) -> tuple[Candidate, ...]:
    """Of each layout and type the kernels that together come nearest to the best of all, by what
    the model says of the problems `asked`; one after the other the one that helps most."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for problem in asked:
        kinds.setdefault((problem.layout, problem.dtype), []).append(problem)
    found: list[Candidate] = []
    for listed in kinds.values():
        places = sorted({place for p in listed for place in eye.taking(p)})
        column = {place: at for at, place in enumerate(places)}
        logs = np.full((len(listed), len(places)), 5.0)  # far from any best
        for row, problem in enumerate(listed):
            taking = eye.taking(problem)
            if taking:
                logs[row, [column[p] for p in taking]] = trees.ask(ours, eye.see(problem, taking))
        now = np.full(len(listed), 5.0)
        for _ in range(min(most, len(places))):
            better = np.minimum(logs, now[:, None]).sum(axis=0)
            pick = int(np.argmin(better))
            if better[pick] >= now.sum() - 1e-9:
                break
            now = np.minimum(now, logs[:, pick])
            found.append(eye.kernels[places[pick]])
    return tuple(found)


def _scale(model: Model, by: float) -> Model:
    number = tuple(
        value * by if feature < 0 else value
        for feature, value in zip(model.feature, model.number, strict=True)
    )
    return model._replace(base=model.base * by, number=number)


def fit(
    rows: Rows,
    eye: Eye,
    asked: Sequence[Problem],
    profile: str,
    families: tuple[str, ...],
) -> tuple[Predictor, Judged, Threshold]:
    """The predictor of all rows, with candidates among the kernels that `eye` sees. Raises
    ValueError where there is too little to judge by."""
    judged = judge(rows)
    if len(judged.problems) < 2 * FOLDS:
        raise ValueError(f"{len(judged.problems)} problems are too few to judge by")
    threshold = choose_threshold(judged)
    ours, torch = _fit_times(rows)
    doubt = fit_doubt(judged.values, _errors(judged.predicted, judged.measured))
    found = Predictor(
        profile,
        families,
        round(threshold.margin, 6),
        pick_candidates(ours, eye, asked),
        ours,
        torch,
        _scale(doubt, threshold.doubts),
    )
    return found, judged, threshold
