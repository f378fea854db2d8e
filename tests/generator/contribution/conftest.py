"""What tests of tuning have, for a contribution begins with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cpu.conftest import bare as bare
from tests.cpu.conftest import driver_library as driver_library
from tests.cpu.tuning.conftest import pack as pack
from tests.generator.contribution.contributed import contribute


@pytest.fixture
def file(pack: object, tmp_path: Path) -> Path:
    """A contribution."""
    return contribute(tmp_path / "contribution.zip")
