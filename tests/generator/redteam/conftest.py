"""A cache that tests of the corpus share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache that all tests of the corpus share: each kernel is compiled once."""
    return str(tmp_path_factory.mktemp("cache"))
