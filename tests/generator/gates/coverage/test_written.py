"""What each CTA writes of C is its tile, and each CTA that has a tile writes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hgemm_packs.generator.gates.coverage import written
from hgemm_packs.generator.redteam.mutation import bases

ALONE = bases.draw(1, 0, "sm90_wgmma").fields | {
    "cluster": [1, 1, 1],
    "grid": {"tile_m": 16, "tile_n": 32, "persistent": False},
    "epilogue": "none",
}
ONE, BESIDE, NOTHING = ((0, 15), (0, 31)), ((16, 20), (32, 39)), ((1 << 62, -1), (1 << 62, -1))


@pytest.mark.parametrize(
    ("ctas", "changed", "words"),
    [
        ([ONE, BESIDE], {}, ""),
        ([ONE, ((8, 23), (0, 31))], {}, "tile: a CTA writes rows 8 to 23, declared are 16"),
        ([ONE, ((0, 15), (0, 63))], {}, "tile: a CTA writes columns 0 to 63, declared are 32"),
        ([NOTHING, NOTHING], {}, "tile: no CTA writes"),
        # A quotient was wrong from 2^20 tiles on, more than a test runs: those wrote nowhere.
        ([ONE, NOTHING], {}, "tile: a CTA writes nothing of problem 1"),
        ([ONE, NOTHING], {"cluster": [2, 1, 1]}, ""),  # it may have a CTA beyond C
        ([ONE, NOTHING], {"cluster": [1, 1, 2]}, ""),  # of two that share a tile one may store
    ],
)
def test_a_cta_writes_its_tile(ctas: Any, changed: Any, words: str) -> None:
    low, high = (np.array([[side[i] for side in cta] for cta in ctas], np.int64) for i in (0, 1))
    told = written.tile_fault(ALONE | changed, low, high, ["problem 0", "problem 1"])
    assert told.startswith(words) and bool(told) is bool(words)
