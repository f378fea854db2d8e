"""Layers that ask the launcher on the stand-in driver."""

from __future__ import annotations

import pytest

from hgemm_packs import nn
from tests.fake_driver import Started


@pytest.fixture
def served(fake: Started, monkeypatch: pytest.MonkeyPatch) -> Started:
    """A started launcher that `hgemm_packs.nn.Linear` calls; it has a kernel for layers of fp16."""
    monkeypatch.setattr(nn, "linear", fake.linear)
    fake.serve("ptr_v1", "nt")
    return fake
