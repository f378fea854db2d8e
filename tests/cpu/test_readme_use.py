"""The code of README's section on use, run as it stands there but for the device."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from hgemm_packs import launcher, nn

pytestmark = pytest.mark.usefixtures("clean_process")

README = Path(__file__).parents[2] / "README.md"


def blocks() -> tuple[str, str]:
    """The code for two tensors and the code for a model."""
    text = README.read_text(encoding="utf-8")
    section = text[text.index("## Use\n") : text.index("## What is supported\n")]
    tensors, model = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return tensors.replace('device="cuda"', 'device="cpu"').replace("4096", "128"), model


def test_two_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(blocks()[0], names)
    x, weight, y = (names[name].double() for name in ("x", "weight", "y"))
    assert x.shape == (64, 128)
    torch.testing.assert_close(y, x @ weight.t(), rtol=1e-3, atol=1e-2)
    assert "fallback: device" in capsys.readouterr().out


def test_a_model() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32, bias=False), torch.nn.SiLU(), torch.nn.Linear(32, 16)
    ).bfloat16()
    x = torch.randn(8, 64).bfloat16()
    exact = copy.deepcopy(model).double()(x.double())
    before = launcher.counters()["fallbacks"]
    names: dict[str, Any] = {"torch": torch, "model": model, "x": x}
    exec(blocks()[1], names)
    torch.testing.assert_close(names["y"].double(), exact, rtol=2e-2, atol=2e-2)
    # On a CPU each layer's product is a fallback, which shows that it was asked for.
    assert launcher.counters()["fallbacks"] == before + 2
    assert not names["y"].requires_grad


def test_newcomer_01_a_model_gets_torchs_layers_back_as_readme_says() -> None:
    text = README.read_text(encoding="utf-8")
    (undo,) = re.findall(r"\| give a model torch's layers back \| `(.*?)` \|", text)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False)).half()
    names: dict[str, Any] = {"torch": torch, "model": model, "x": torch.ones(2, 8).half()}
    exec(blocks()[1], names)
    assert type(model[0]) is nn.Linear
    exec(undo, names)
    assert type(model[0]) is torch.nn.Linear
    before = launcher.counters()["fallbacks"]
    model(names["x"])
    assert launcher.counters()["fallbacks"] == before
