"""A launcher whose packs have grouped kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgemm_packs import select
from tests.cpu.call.served_packs import install
from tests.cpu.grouped.made import (
    DTYPES,
    kernel,
    row,
    write,
)
from tests.fake_driver import Started


@pytest.fixture
def served(bare: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    """Rows of one weight, for every layout and type, at T = 32."""
    kinds = [(layout, dtype) for layout in ("nn", "nt") for dtype in DTYPES]
    kernels = [kernel(*kind, name="grouped_" + "_".join(kind)) for kind in kinds]
    write(tmp_path / "pack", kernels, [row(32, each) for each in kernels]).close()
    install(monkeypatch, tmp_path / "pack")
    select.reset()
    return bare
