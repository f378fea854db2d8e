"""Kernel families: each declares its genes, which genomes are valid, and how a genome becomes
source and record.

`family(name)` finds one; `FAMILIES` lists them. A family module is the twin of the `.cuh` of the
same stem.
"""

from __future__ import annotations

from hgemm_packs.generator.families import (
    direct,
    gemv,
    oneshot,
    splitk,
    swapab,
    wgmma,
    writebound,
)
from hgemm_packs.generator.families.base import Family, Genome, InvalidGenome

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (wgmma, splitk, oneshot, swapab, writebound, direct, gemv)
}


def family(name: str) -> Family:
    """The family called `name`; raises KeyError with the known names."""
    if name not in FAMILIES:
        raise KeyError(f"no kernel family {name!r}; known: {', '.join(sorted(FAMILIES))}")
    return FAMILIES[name]


__all__ = ["FAMILIES", "Family", "Genome", "InvalidGenome", "family"]
