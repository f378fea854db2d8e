"""Fixtures for every test folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hgemm_packs import discover, select
from hgemm_packs.settings import settings


@pytest.fixture
def clean_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No HGEMM_PACKS_* variable, an empty cache, nothing remembered; the same again afterwards."""

    def forget() -> None:
        settings.cache_clear()
        discover._warned.clear()
        select.reset()

    for name in ("PATH", "LOG", "STRICT", "POLICY", "SELFTEST"):
        monkeypatch.delenv(f"HGEMM_PACKS_{name}", raising=False)
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "no-cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    forget()
    yield
    forget()
