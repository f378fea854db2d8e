"""The launcher on the stand-in driver: see tests/fake_driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgemm_packs import select

from .. import fake_driver


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_driver.compile_driver(tmp_path_factory.mktemp("driver") / "libfake.so")


@pytest.fixture
def bare(
    clean_process: None, monkeypatch: pytest.MonkeyPatch, driver_library: Path
) -> fake_driver.Started:
    """A started launcher that asks the real select."""
    return fake_driver.start(monkeypatch, driver_library)


@pytest.fixture
def fake(bare: fake_driver.Started, monkeypatch: pytest.MonkeyPatch) -> fake_driver.Started:
    """A started launcher whose policy is the test's: `fake.serve(...)`."""
    monkeypatch.setattr(select, "resolve", bare.resolve)
    return bare
