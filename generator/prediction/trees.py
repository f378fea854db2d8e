"""Regression trees by scikit-learn, as arrays that a pack can hold.

What is judged is what a pack has: numbers are rounded before a model is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgemm_packs.pack.predictor import Model

Array = NDArray[np.float64]

#: Digits of a number in a pack.
DIGITS = 7


@dataclass(frozen=True)
class Growth:
    """How trees grow: how many, leaves of each, samples a leaf must have, how much of its error
    each tree takes away, how deep they are (C takes as many steps for the shortest walk as for the
    longest), and among what share of the features, drawn anew, each node chooses."""

    trees: int = 120
    leaves: int = 31
    least: int = 8
    rate: float = 0.12
    penalty: float = 1.0
    depth: int = 9
    features: float = 1.0


def grow(
    values: Array, wanted: Array, weights: Array, how: Growth, sort: Array | None = None
) -> Model:
    """Fit trees to `wanted`, a row of `values` each. `sort` is one more value of each row, which
    trees may split by; the model that is left is that of the sort 0."""
    seen = values if sort is None else np.column_stack([values, sort])
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    # One thread: the same trees everywhere, and none that wait for each other on a busy host.
    with threadpool_limits(limits=1):
        trained: Any = HistGradientBoostingRegressor(
            max_iter=how.trees,
            max_leaf_nodes=how.leaves,
            max_depth=how.depth,
            min_samples_leaf=how.least,
            learning_rate=how.rate,
            l2_regularization=how.penalty,
            max_features=how.features,
            early_stopping=False,
            random_state=0,
        ).fit(seen, wanted, sample_weight=weights)
    nodes = [each[0].nodes for each in trained._predictors]
    return _as_model(float(trained._baseline_prediction.item()), nodes, values.shape[1])


def round_number(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _as_model(base: float, trees: Sequence[Any], sees: int) -> Model:
    roots: list[int] = []
    feature: list[int] = []
    number: list[float] = []
    right: list[int] = []

    def put(nodes: Any, at: int) -> None:
        node, mine = nodes[at], len(feature)
        leaf = bool(node["is_leaf"])
        if not leaf and int(node["feature_idx"]) >= sees:  # of the sort, which is 0
            put(nodes, int(node["left"]))
            return
        feature.append(-1 if leaf else int(node["feature_idx"]))
        number.append(round_number(float(node["value" if leaf else "num_threshold"])))
        right.append(0)
        if not leaf:
            put(nodes, int(node["left"]))
            right[mine] = len(feature)
            put(nodes, int(node["right"]))

    for nodes in trees:
        roots.append(len(feature))
        put(nodes, 0)
    return Model(round_number(base), tuple(roots), tuple(feature), tuple(number), tuple(right))


def ask(model: Model, values: Array) -> Array:
    """The model's value for each row of `values`; numbers count as float32."""
    feature, right = np.array(model.feature), np.array(model.right)
    number = np.array(model.number, np.float32).astype(np.float64)
    total = np.full(len(values), model.base)
    rows = np.arange(len(values))
    for root in model.roots:
        at = np.full(len(values), root)
        inner = feature[at] >= 0
        while inner.any():
            here = at[inner]
            low = values[rows[inner], feature[here]] <= number[here]
            at[inner] = np.where(low, here + 1, right[here])
            inner = feature[at] >= 0
        total += number[at]
    return total
