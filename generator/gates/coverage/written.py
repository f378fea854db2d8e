"""The part of C that each CTA writes, against the tile that the record declares.

Called by `trial` for a run in which each CTA has one tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from hgemm_packs.generator.families.computed import GATED
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.pack.manifest import GROUPED_LAYOUT

NONE: Final = "tile: no CTA writes"
IDLE: Final = "tile: a CTA writes nothing of {}"


def tile_fault(fields: Mapping[str, Any], low: Array, high: Array, of: list[str]) -> str:
    """What a CTA writes beyond one tile, or that it writes nothing though each has a tile; empty
    where none does. `low` and `high` [CTAs, 2] are the first and the last row and column that it
    writes, below 0 where it writes none, `of` says of which problem it is."""
    shape = fields["grid"]
    tile = [int(shape["tile_m"]), int(shape["tile_n"])]
    if fields.get("epilogue") == GATED:
        tile[1] //= 2
    wrote = high[:, 0] >= 0
    if not wrote.any():
        return NONE
    for i, (side, word) in enumerate(zip(tile, ("rows", "columns"), strict=True)):
        wrong = wrote & (low[:, i] // side != high[:, i] // side)
        if wrong.any():
            at = int(np.argmax(wrong))
            told = f"{word} {int(low[at, i])} to {int(high[at, i])}"
            return f"tile: a CTA writes {told}, declared are {side} from a multiple of {side} on"
    if _has_a_cta_each(fields) and not wrote.all():
        return IDLE.format(of[int(np.argmin(wrote))])
    return ""


def _has_a_cta_each(fields: Mapping[str, Any]) -> bool:
    """Whether the grid of a run of all CTAs has as many as there are tiles: clusters may have CTAs
    beyond, or share a tile."""
    alone = fields["param_layout"] != GROUPED_LAYOUT and int(fields["grid"].get("slices", 1)) == 1
    return alone and all(int(side) == 1 for side in fields["cluster"])
