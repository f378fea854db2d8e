"""What the tests of the Hub start from, with little patience, and those of the cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hgemm_packs.distribution import remote
from hgemm_packs.distribution.transfer import Patience
from hgemm_packs.pack.folder import Pack
from hgemm_packs.settings import settings
from tests.distribution.cache.cached import written
from tests.distribution.hub.server import serving
from tests.distribution.world import World, make_world

#: Enough for a busy machine: only the faults that are slow themselves take so long.
HASTY = Patience(
    silence_s=1.0,
    head_s=2.0,
    window_s=1.0,
    window_bytes=1000,
    attempts=2,
    wait_s=0.01,
    longest_wait_s=1.0,
)


@pytest.fixture
def world(clean_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A server with a signed pack, a cache with another one."""
    monkeypatch.setattr(remote, "PATIENCE", HASTY)
    # hf_xet would ask its own servers; a plain upload is the same to the repository.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    settings.cache_clear()
    with serving() as server:
        yield make_world(server, tmp_path)


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return written(tmp_path / "source", "1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"
