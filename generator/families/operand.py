"""How a tile's operands are declared to the launcher: tensor-map boxes for each storage order.

Twin of csrc/kernels/common/operand.cuh; used by the families that load by TMA.
"""

from __future__ import annotations

from typing import Any

LAYOUTS = ("nn", "nt", "tn", "tt")


def mn_major(layout: str) -> tuple[bool, bool]:
    """Whether A and B are stored with K as the outer dimension: A [K,M], B [K,N]."""
    return layout[0] == "t", layout[1] == "n"


def operand_map(
    operand: str, rows: int, transposed: bool, *, slices: int = 1, row_group: int = 0
) -> dict[str, Any]:
    """Map of `rows` of M or N by 64 of K, loaded in `slices` equal parts; `transposed` says that K
    is the outer dimension. rows is a multiple of 32 when transposed."""
    if transposed:
        atom = 64 if rows % 64 == 0 else 32
        box, swizzle = [atom, 64 // slices], 2 * atom
    else:
        box, swizzle = [64, rows // slices], 128
    return {
        "operand": operand,
        "box": box,
        "row_group": row_group,
        "swizzle": swizzle,
        "l2_promotion": 256,
    }
