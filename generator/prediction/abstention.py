"""When a predicted gain is sure enough for a kernel to serve: margins by sort of problem.

A gain serves where it exceeds a margin by some times its doubt. Both numbers are chosen for each
sort, on problems that the models have not seen. A pack has one margin, so that what tells sorts
apart becomes part of the doubt's trees.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgemm_packs.generator.prediction.trees import Array, round_number
from hgemm_packs.pack.features import FEATURES
from hgemm_packs.pack.predictor import Model
from hgemm_packs.problem import Problem

#: Of all problems of a sort so many may be below LOSS of torch.
LOSS, MOST_BELOW = 0.98, 0.006
#: One below WORST takes away what so many problems of its sort could gain.
WORST, PRICE = 0.95, 100
#: A doubt that is less counts as this, where errors are compared with doubts.
LEAST_DOUBT = 0.02
#: What the doubt is taken times, and the least gain that is worth a kernel.
DOUBTS, LEAST_MARGIN = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0), 1.01
#: Sorts are what these features are, at most the number or above: unaligned rows or not, N that 64
#: divides, as all but a few layers have it, or not.
SPLITS = ((FEATURES.index("log2_row_bytes"), 3.5), (FEATURES.index("fill_n_64"), 0.9999))
SORTS = 2 ** len(SPLITS)


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

    def sorts(self) -> NDArray[np.int64]:
        """The sort of each problem, by what the first split says first."""
        above = [self.values[:, feature] > number for feature, number in SPLITS]
        places = [2**place for place in reversed(range(len(SPLITS)))]
        sorts: NDArray[np.int64] = np.stack(above, axis=1).astype(np.int64) @ np.array(places)
        return sorts

    def part(self, wanted: NDArray[np.bool_]) -> Judged:
        """The choices for which `wanted` is true."""
        problems = tuple(itertools.compress(self.problems, wanted))
        rest = (self.predicted, self.measured, self.best, self.values, self.doubt)
        return Judged(problems, *(each[wanted] for each in rest))


@dataclass(frozen=True)
class Threshold:
    """When a prediction serves: its gain less `doubts` times the doubt is at least log `margin`."""

    margin: float
    doubts: float


#: Of a sort of which nothing serves; no gain reaches it.
NEVER = Threshold(100.0, 0.0)


def chances_below(judged: Judged, least: float) -> Array:
    """Of each choice how likely it is below `least` of torch: what share of the choices that
    promise a gain miss it by as many doubts. Losers are few; all errors together say more of the
    next one than where the few happened to be."""
    doubt = np.maximum(judged.doubt, LEAST_DOUBT)
    missed = ((judged.measured - judged.predicted) / doubt)[judged.predicted > 0.0]
    far = (math.log(least) - judged.predicted) / doubt
    chances: Array = np.searchsorted(np.sort(missed), far) / max(1, len(missed))
    return chances


def choose_threshold(judged: Judged) -> Threshold:
    """The one that keeps most of the gain, less PRICE for what is likely below WORST, of those that
    lose no more than is allowed. NEVER where none keeps any."""
    best, found = 0.0, NEVER
    possible = np.maximum(judged.best, 0.0)
    price = PRICE * possible.sum() / max(1, len(possible))
    likely = chances_below(judged, LOSS)
    worse = chances_below(judged, WORST)
    for doubts in DOUBTS:
        sure = judged.predicted - doubts * judged.doubt
        order = np.argsort(-sure)
        gains = judged.measured[order]
        below = np.maximum(np.cumsum(gains < math.log(LOSS)), np.cumsum(likely[order]))
        allowed = below <= MOST_BELOW * len(order)
        allowed &= sure[order] >= math.log(LEAST_MARGIN)
        kept = np.where(allowed, np.cumsum(gains - price * worse[order]), -math.inf)
        if len(kept) and kept.max() > best:
            last = int(np.argmax(kept))
            best = float(kept[last])
            # Between the last that serves and the first that does not.
            ends = sure[order[last]]
            behind = sure[order[last + 1]] if last + 1 < len(order) else ends
            margin = math.exp((ends + max(behind, math.log(LEAST_MARGIN))) / 2)
            found = Threshold(max(margin, LEAST_MARGIN), doubts)
    return found


def choose_thresholds(judged: Judged) -> tuple[Threshold, ...]:
    """One for each sort, by its own problems."""
    sorts = judged.sorts()
    return tuple(choose_threshold(judged.part(sorts == sort)) for sort in range(SORTS))


def sure_gains(judged: Judged, thresholds: Sequence[Threshold]) -> Array:
    """Logarithms of gains less what the doubt takes off, counted from LEAST_MARGIN: those that
    serve are at least log LEAST_MARGIN."""
    sorts = judged.sorts()
    margins = np.array([math.log(each.margin / LEAST_MARGIN) for each in thresholds])
    doubts = np.array([each.doubts for each in thresholds])
    sure: Array = judged.predicted - doubts[sorts] * judged.doubt - margins[sorts]
    return sure


def doubt_by_sort(doubt: Model, thresholds: Sequence[Threshold]) -> Model:
    """What is taken off a gain, in one model, for a margin of LEAST_MARGIN: each tree once for each
    sort, below nodes that tell sorts apart, and a first tree of what does not depend on others."""
    feature: list[int] = []
    number: list[float] = []
    right: list[int] = []
    roots: list[int] = []

    def put(nodes: Sequence[Sequence[tuple[int, float, int]]], level: int = 0) -> None:
        if level < len(SPLITS):
            mine, half = len(feature), len(nodes) // 2
            feature.append(SPLITS[level][0])
            number.append(round_number(SPLITS[level][1]))
            right.append(0)
            put(nodes[:half], level + 1)
            right[mine] = len(feature)
            put(nodes[half:], level + 1)
            return
        start = len(feature)
        for what, value, behind in nodes[0]:
            feature.append(what)
            number.append(round_number(value))
            right.append(behind and behind + start)

    def plant(nodes: Sequence[Sequence[tuple[int, float, int]]]) -> None:
        roots.append(len(feature))
        put(nodes)

    alone = [math.log(t.margin / LEAST_MARGIN) + t.doubts * doubt.base for t in thresholds]
    plant([[(-1, value, 0)] for value in alone])
    for root, end in zip(doubt.roots, (*doubt.roots[1:], len(doubt.feature)), strict=True):
        each = list(zip(doubt.feature, doubt.number, doubt.right, strict=True))[root:end]
        plant(
            [
                [
                    (f, x * t.doubts if f < 0 else x, behind and behind - root)
                    for f, x, behind in each
                ]
                for t in thresholds
            ]
        )
    return Model(0.0, tuple(roots), tuple(feature), tuple(number), tuple(right))


def figures(judged: Judged, thresholds: Sequence[Threshold]) -> dict[str, Any]:
    """What the choices on problems left out are worth, torch's where it is not sure."""
    serves = sure_gains(judged, thresholds) >= math.log(LEAST_MARGIN)
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
