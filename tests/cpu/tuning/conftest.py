"""A started launcher on the stand-in driver, a pack on its path, and a cache of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgemm_packs.pack.folder import Pack
from tests import fake_driver
from tests.cpu.call.served_packs import install
from tests.cpu.tuning import world


@pytest.fixture
def pack(bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pack:
    """The pack that there is to tune with; the cache is `tmp_path / "cache"`."""
    made = world.write(tmp_path / "pack")
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    install(monkeypatch, made.path)
    return made
