"""A cache for each file of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of this file's own: each kernel is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGEMM_PACKS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
