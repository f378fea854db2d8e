"""Every way in which a Hub goes wrong that `faults` knows: refused or got over, cache intact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hgemm_packs import hub
from hgemm_packs.settings import settings
from hgemm_packs.transfer import Patience
from tests.hub import faults
from tests.hub.server import serving
from tests.hub.world import World, make_world

HASTY = Patience(
    silence_s=0.25,
    head_s=0.4,
    window_s=0.25,
    window_bytes=1000,
    attempts=2,
    wait_s=0.01,
    longest_wait_s=1.0,
)


@pytest.fixture
def world(clean_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(hub, "PATIENCE", HASTY)
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    settings.cache_clear()
    with serving() as server:
        yield make_world(server, tmp_path)


@pytest.mark.parametrize("case", faults.CASES, ids=lambda case: case.name)
def test_fault_is_refused_or_got_over(case: faults.Case, world: World) -> None:
    outcome = faults.run(case, world)
    assert outcome.handled, outcome
