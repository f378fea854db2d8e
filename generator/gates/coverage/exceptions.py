"""What the size gate lets single families do, each by name and with its reason.

A family declares its exceptions (`Family.exceptions`), beside those of the data-flow gate. Kernels
of no family get none. docs/decisions/generator.md has the reasons at length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hgemm_packs.generator.families import family
from hgemm_packs.generator.gates.dataflow.exceptions import is_of_family

PLACES: Final = "lays_tiles"  # what a place in the grid is compared with may be taken one way alone
RINGS: Final = "goes_round"  # slots of a ring that follow from K by a remainder
GROUPS: Final = "reads_groups"  # tiles follow from a list in memory, which is followed
NAMED: Final = frozenset((PLACES, RINGS, GROUPS))


def declared(fields: Mapping[str, Any]) -> frozenset[str]:
    """The exceptions of a kernel with these manifest fields: those of its family, where it has
    one."""
    if not is_of_family(fields):
        return frozenset()
    return NAMED & set(family(str(fields["family"])).exceptions)
