"""JSON schemas of answers, in the words that every server with schemas knows: each field required,
no others, a type everywhere.

A server that holds a model to one makes any model's answer a legal one; what it says is checked all
the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hgemm_packs.generator.core.space import Space, Values
from hgemm_packs.generator.families import FAMILIES

Schema = dict[str, Any]

#: A sentence or two; without an end a small model writes on and on.
WORDS: Schema = {"type": "string", "pattern": "^[a-zA-Z0-9 ,.;:()%/_-]{1,200}$"}
_TYPES = {bool: "boolean", int: "integer", str: "string"}


def one_of(values: Sequence[int | str | bool]) -> Schema:
    """One of some values of one kind."""
    return {"type": _TYPES[type(values[0])], "enum": list(values)}


def record(properties: Mapping[str, Schema]) -> Schema:
    """An object of these fields."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def some(item: Schema, most: int) -> Schema:
    """From one to `most` of an item."""
    return {"type": "array", "items": item, "minItems": 1, "maxItems": most}


def tunable(family: str) -> tuple[str, ...]:
    """Genes of a family that the problem does not decide."""
    return tuple(gene for gene in FAMILIES[family].genes if gene not in ("layout", "dtype"))


def values(space: Space, family: str) -> dict[str, Values]:
    """The values that each tunable gene of a family may have in a space. A recording has kernels of
    few of all: of a space that is its list and no more, only values that are listed."""
    genes = {gene: FAMILIES[family].genes[gene] for gene in tunable(family)}
    if space.beyond:
        return genes
    listed = [choice.genome for choice in space.core if choice.family == family]
    had = {gene: {genome[gene] for genome in listed} for gene in genes}
    return {gene: tuple(v for v in every if v in had[gene]) for gene, every in genes.items()}


def choice(space: Space, family: str) -> dict[str, Schema]:
    """The fields that name a kernel of a family of the space: "family", and "genome" with every
    tunable gene."""
    genes = {gene: one_of(each) for gene, each in values(space, family).items()}
    return {"family": one_of([family]), "genome": record(genes)}
