"""A launcher with kernels for whatever is aligned and packed, and nothing enabled afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hgemm_packs
from hgemm_packs.torch_hooks import program
from tests.campaign.sides import serve_all
from tests.cpu.program.common import SUMS
from tests.fake_driver import Started


@pytest.fixture
def served(fake: Started) -> Started:
    serve_all(fake, *SUMS)
    return fake


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    hgemm_packs.restore_torch()
    hgemm_packs.resume()
    assert program._blocks == 0
