"""Family sm90_batched: one product after the other of a batch, each in the tiles of sm90_tokens.
Twin of sm90/batched.cuh.

Searches of products of two matrices do not know it, so it stands in BATCHED, not in FAMILIES.
"""

from __future__ import annotations

from typing import Any

from hgemm_packs.generator.families import computed, tokens
from hgemm_packs.generator.families.base import Family, Genome, require

#: Of the genes of sm90_tokens those that stay the same: a grid of any number of products is
#: capped, no product has a part of the device to itself, and nothing is read ahead.
FIXED: dict[str, int | str | bool] = {
    "split_k": 1,
    "persistent": True,
    "reads_ahead": False,
    "triggers_early": False,
}
GENES = {gene: values for gene, values in tokens.GENES.items() if gene not in FIXED}


def _whole(g: Genome) -> Genome:
    """The genome of sm90_tokens with the same tiles."""
    return {**g, **FIXED}


def smem_bytes(g: Genome) -> int:
    """Dynamic shared memory in bytes."""
    return tokens.smem_bytes(_whole(g))


def _check(g: Genome) -> None:
    tokens.FAMILY.check(_whole(g))
    kinds = (computed.PLAIN, "residual")
    require(computed.epilogue_of(g) in kinds, "a batch has its products, or a matrix added to each")


def _macros(g: Genome) -> dict[str, int | str]:
    return tokens.FAMILY.macros(_whole(g))


def _record(g: Genome) -> dict[str, Any]:
    return tokens.FAMILY.record(_whole(g))


OPERATORS = {
    name: kept
    for name, genes in tokens.OPERATORS.items()
    if (kept := tuple(gene for gene in genes if gene not in FIXED))
}

FAMILY = Family(
    "sm90_batched",
    "sm90/batched.cuh",
    GENES,
    _check,
    _macros,
    _record,
    OPERATORS,
    batched=True,
    exceptions=("turns_residual", "lays_tiles", "goes_round"),
)
