"""The launcher on the stand-in driver, with a kernel for every layout, where no product is too
small for its gradients to be recorded as products of ours."""

from __future__ import annotations

import pytest

from hgemm_packs import nn, torch_state
from tests.fake_driver import Started


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_state, "LEAST_RECORDED", 0.0)


@pytest.fixture
def ours(small: None, fake: Started, monkeypatch: pytest.MonkeyPatch) -> Started:
    monkeypatch.setattr(nn, "linear", fake.linear)
    for dtype in ("f16", "bf16"):
        for layout in ("nn", "nt", "tn", "tt"):
            fake.serve("ptr_v1", layout, dtype)
    return fake
