"""Kernel families: each declares its genes, which genomes are valid, and how a genome becomes
source and record.

`family(name)` finds one; `FAMILIES` lists those of products, which searches know, `GROUPED` those
of grouped products, `BATCHED` those of batches. A family module is the twin of the `.cuh` of the
same stem.
"""

from __future__ import annotations

from hgemm_packs.generator.families import (
    batched,
    direct,
    elements,
    gemv,
    grouped,
    oneshot,
    splitk,
    swapab,
    tokens,
    unaligned,
    wgmma,
    writebound,
)
from hgemm_packs.generator.families.base import Family, Genome, InvalidGenome

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (
        *(wgmma, splitk, oneshot, swapab, writebound, direct, gemv, tokens, unaligned),
        *(elements,),
    )
}
GROUPED: dict[str, Family] = {grouped.FAMILY.name: grouped.FAMILY}
BATCHED: dict[str, Family] = {batched.FAMILY.name: batched.FAMILY}


def family(name: str) -> Family:
    """The family called `name`; raises KeyError with the known names."""
    known = FAMILIES | GROUPED | BATCHED
    if name not in known:
        raise KeyError(f"no kernel family {name!r}; known: {', '.join(sorted(known))}")
    return known[name]


__all__ = ["BATCHED", "FAMILIES", "GROUPED", "Family", "Genome", "InvalidGenome", "family"]
