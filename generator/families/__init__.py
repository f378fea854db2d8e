"""Kernel families: each declares its genes, which genomes are valid, and how a genome becomes
source and record.

`family(name)` finds one; `FAMILIES` lists those of products, which searches know, `GROUPED` those
of grouped products, `BATCHED` those of batches, `FREE` the one of free sources. A family module is
the twin of the `.cuh` of the same stem.
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
from hgemm_packs.generator.families.free import family as free

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (
        *(wgmma, splitk, oneshot, swapab, writebound, direct, gemv, tokens, unaligned),
        *(elements,),
    )
}
GROUPED: dict[str, Family] = {grouped.FAMILY.name: grouped.FAMILY}
BATCHED: dict[str, Family] = {batched.FAMILY.name: batched.FAMILY}
FREE: dict[str, Family] = {free.FAMILY.name: free.FAMILY}


def family(name: str) -> Family:
    """The family called `name`; raises KeyError with the known names."""
    known = FAMILIES | GROUPED | BATCHED | FREE
    if name not in known:
        raise KeyError(f"no kernel family {name!r}; known: {', '.join(sorted(known))}")
    return known[name]


def makes(name: str, genome: Genome) -> bool:
    """Whether a family of products, or a free source, makes a kernel of this genome today."""
    known = FAMILIES | FREE
    return name in known and known[name].is_valid(genome)


__all__ = [
    "BATCHED",
    "FAMILIES",
    "FREE",
    "GROUPED",
    "Family",
    "Genome",
    "InvalidGenome",
    "family",
    "makes",
]
