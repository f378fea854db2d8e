"""A run made by `generate`, once."""

from __future__ import annotations

import pytest

from tests.generator.cli.made_run import Made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))
