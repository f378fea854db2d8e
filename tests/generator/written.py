"""An honest kernel of free source, small enough to build in any test: the one of
docs/candidate.md."""

from __future__ import annotations

from typing import Any

from tests.house import REPOSITORY

_PAGE = (REPOSITORY / "docs" / "candidate.md").read_text(encoding="utf-8")
TINY = _PAGE.split("```cuda\n")[1].split("```")[0]
RECORD: dict[str, Any] = {
    "layout": "nt",
    "block": 32,
    "grid": {"tile_m": 16, "tile_n": 8},
    "dims": {
        "m": {"min": 16, "max": 65536, "multiple_of": 16},
        "n": {"min": 8, "max": 65536, "multiple_of": 8},
        "k": {"min": 16, "max": 65536, "multiple_of": 16},
    },
}
