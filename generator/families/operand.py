"""How a tile's operands are declared to the launcher: tensor-map boxes for each storage order.

Twin of csrc/kernels/common/operand.cuh; used by the families that load by TMA.
"""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families import computed
from hgemm_packs.generator.families.base import Genome, require

LAYOUTS = ("nn", "nt", "tn", "tt")


def mn_major(layout: str) -> tuple[bool, bool]:
    """Whether A and B are stored with K as the outer dimension: A [K,M], B [K,N]."""
    return layout[0] == "t", layout[1] == "n"


def row_group_of(g: Genome) -> int:
    """How many rows of B, columns of the product, a tensor map brings in an order of its own: 32
    for stores of 16 bytes from registers; 16 where gate and up of an element meet in a thread."""
    if computed.epilogue_of(g) == computed.GATED:
        return 16
    return 32 if g.get("epilogue") == "grouped" else 0


def check_gated(g: Genome) -> None:
    """What all gated kernels with a tensor map of B need of their genome."""
    require(g["layout"] == "nt", "gated kernels are for nt")
    require(g.get("epilogue") != "grouped", "columns come in one order alone")


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
