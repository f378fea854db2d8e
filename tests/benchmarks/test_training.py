"""The training benchmark on the CPU: equal losses, counted products, figures of pairs."""

from __future__ import annotations

import importlib
from collections import Counter
from types import ModuleType

import pytest
import torch

from hgemm_packs import nn, torch_state
from tests.benchmarks.test_language_models import TINY
from tests.fake_driver import Started

CPU = torch.device("cpu")


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(torch_state, "LEAST_RECORDED", 0)
    return importlib.import_module("benchmarks.measure.training")


def test_all_arms_learn_the_same(
    training: ModuleType, fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nn, "linear", fake.linear)
    models = training.make_models(2, CPU, **TINY, head_dim=16)
    assert isinstance(next(iter(models["ours"].model.layers)).mlp.up_proj, nn.Linear)
    trainers = training.train(models, 16, 6, CPU)
    found = training.figures(trainers)
    losses = found["losses"]
    # Nothing is served: all three are torch, bit by bit, and they learn.
    assert losses["torch"] == losses["again"] == losses["ours"]
    assert losses["torch"][-1] < losses["torch"][0]
    assert found["loss_apart"] == found["loss_apart_of_torch"] == 0.0
    assert [len(us) for us in found["us"].values()] == [6, 6, 6]
    products = 7 * 2 + 1
    assert sum(found["served"]["forward"].values()) == products


def test_figures_are_of_pairs_after_the_warm_steps(training: ModuleType) -> None:
    def trainer(us: list[float], losses: list[float]) -> object:
        made = training.Trainer.__new__(training.Trainer)
        made.us, made.losses = [1e9] * training.WARM_STEPS + us, losses
        made.served = {"forward": Counter(kernels=3)}
        return made

    found = training.figures(
        {
            "torch": trainer([2000.0, 4000.0, 6000.0], [3.0, 2.0]),
            "again": trainer([2000.0, 4000.0, 6000.0], [3.0, 2.25]),
            "ours": trainer([1000.0, 4000.0, 5000.0], [3.5, 2.0]),
        }
    )
    assert (found["step_ratio"], found["again_ratio"]) == (1.2, 1.0)
    assert (found["loss_apart"], found["loss_apart_of_torch"]) == (0.5, 0.25)
    assert found["step_ms"]["ours"] == 4.0
    assert found["served"] == {"forward": {"kernels": 3}}
