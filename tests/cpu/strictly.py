"""Operands that a kernel is for, and STRICT switched on."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.settings import settings
from tests import reference


def operands(m: int = 32, layout: str = "nn") -> tuple[torch.Tensor, torch.Tensor]:
    return reference.cancelling(m, 32, 32, layout, torch.float16, seed=m)


def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HGEMM_PACKS_STRICT", "1")
    settings.cache_clear()
    launcher.reset_table()
