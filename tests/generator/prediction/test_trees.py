"""Trees of scikit-learn as a pack has them: the same values, and nothing that a reader refuses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from hgemm_packs.generator.prediction import trees
from hgemm_packs.pack.features import FEATURES
from hgemm_packs.pack.manifest import DimRange
from hgemm_packs.pack.predictor import Candidate, Dims, Model, Predictor, check_predictor
from tests import predictions


def made(seed: int = 0, rows: int = 600) -> tuple[trees.Array, trees.Array]:
    dice = np.random.default_rng(seed)
    values = dice.uniform(0, 10, (rows, len(FEATURES)))
    return values, np.where(values[:, 0] > 5, values[:, 20], -values[:, 3]) + values[:, 1] * 0.1


def test_a_model_says_what_the_trees_of_scikit_learn_say() -> None:
    values, wanted = made()
    how = trees.Growth(trees=30, leaves=12)
    model = trees.grow(values, wanted, np.ones(len(values)), how)
    theirs = HistGradientBoostingRegressor(
        max_iter=30,
        max_leaf_nodes=12,
        max_depth=how.depth,
        min_samples_leaf=how.least,
        learning_rate=how.rate,
        l2_regularization=how.penalty,
        early_stopping=False,
        random_state=0,
    ).fit(values, wanted, sample_weight=np.ones(len(values)))
    fresh, truth = made(1)
    said = trees.ask(model, fresh)
    assert said == pytest.approx(theirs.predict(fresh), abs=1e-4)
    assert np.abs(said - truth).mean() < 0.6 < np.abs(truth - truth.mean()).mean()


def one(model: Model) -> Predictor:
    """A predictor of one candidate."""
    wide = DimRange(1, 1 << 20, 1)
    numbers = (0, 64, 64, 64, 4, 1, 1, 1, 1, 0, 128, 1024, 16, 16, 16, 0, 0, 0, 1)
    candidate = Candidate("a" * 64, "nn", "f16", Dims(wide, wide, wide), numbers)
    zero = predictions.leaf(0.0)
    return Predictor("NVIDIA H200", ("sm90_a",), 1.1, (candidate,), model, zero, zero)


def test_a_pack_takes_the_model() -> None:
    values, wanted = made()
    model = trees.grow(values, wanted, np.ones(len(values)), trees.Growth(trees=20))
    check_predictor(one(model))
    assert len(model.roots) == 20 and max(model.feature) >= 20


def test_of_two_sorts_of_rows_the_model_that_is_left_is_that_of_sort_0() -> None:
    """Finals have times of their own; without a sort what was drawn got a model between both."""
    values, wanted = made()
    sort = np.arange(len(values)) % 2
    shifted = wanted + 3.0 * sort
    how, alike = trees.Growth(trees=60, leaves=24), np.ones(len(values))
    fresh, truth = made(1)
    known = trees.grow(values, shifted, alike, how, sort.astype(float))
    check_predictor(one(known))
    assert np.abs(trees.ask(known, fresh) - truth).mean() < 0.7
    mixed = trees.ask(trees.grow(values, shifted, alike, how), fresh) - truth
    assert np.mean(mixed) == pytest.approx(1.5, abs=0.3)
