"""Moves in a family's space of genomes: mutate, cross, neighbours, encode.

Used by the searches. Every genome that leaves this module is valid; the arguments never change. All
randomness comes from the caller's generator.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from hgemm_packs.generator.families.base import Family, Genome

TRIES = 64


def mutate(f: Family, genome: Genome, operator: str, rng: random.Random) -> Genome | None:
    """A valid genome that differs from `genome` in genes of one operator, or None when TRIES draws
    find none. A single gene moves more often than several, and to a neighbouring value more often
    than far. Raises KeyError for an unknown operator.
    """
    genes = f.operators[operator]
    for _ in range(TRIES):
        child = dict(genome)
        for gene in rng.sample(genes, 1 if rng.random() < 0.6 else len(genes)):
            child[gene] = _draw_neighbour(f.genes[gene], genome[gene], rng)
        if child != genome and f.is_valid(child):
            return child
    return None


def _draw_neighbour(
    values: tuple[int | str | bool, ...], now: int | str | bool, rng: random.Random
) -> int | str | bool:
    if rng.random() < 0.7:
        i = values.index(now) + rng.choice((-1, 1))
        return values[min(max(i, 0), len(values) - 1)]
    return rng.choice(values)


def cross(f: Family, a: Genome, b: Genome, rng: random.Random) -> Genome | None:
    """A valid child that takes the genes of each operator from one parent, unlike both; None when
    TRIES draws find none. Layout and dtype must be the same."""
    for _ in range(TRIES):
        child = dict(a)
        for genes in f.operators.values():
            source = rng.choice((a, b))
            child.update({gene: source[gene] for gene in genes})
        if child not in (a, b) and f.is_valid(child):
            return child
    return None


def neighbours(f: Family, genome: Genome) -> Iterator[Genome]:
    """Every valid genome that differs in one tunable gene, by one step of its values."""
    for genes in f.operators.values():
        for gene in genes:
            values = f.genes[gene]
            i = values.index(genome[gene])
            for j in (i - 1, i + 1):
                if 0 <= j < len(values):
                    child = {**genome, gene: values[j]}
                    if f.is_valid(child):
                        yield child


def encode(f: Family, genome: Genome) -> list[float]:
    """One number a tunable gene: log2 of a positive integer, else its place among the values."""
    return [
        math.log2(value) if type(value) is int and value > 0 else float(f.genes[gene].index(value))
        for genes in f.operators.values()
        for gene in genes
        for value in (genome[gene],)
    ]
