"""Moves in a family's space: only valid genomes, and as far as a move says."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from hgemm_packs.generator.families import FAMILIES, family
from hgemm_packs.generator.search.variation import cross, encode, mutate, neighbours
from tests.generator.kernels import BASES


def differing(a: dict, b: dict) -> set[str]:
    return {gene for gene in a if a[gene] != b[gene]}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_tunable_gene_has_one_operator(name: str) -> None:
    moved = list(itertools.chain(*family(name).operators.values()))
    assert sorted(moved) == sorted(set(family(name).genes) - {"layout", "dtype"})


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_mutation_moves_the_genes_of_its_operator_alone(name: str) -> None:
    f, base, rng = family(name), BASES[name], random.Random(3)
    before = dict(base)
    for operator, genes in f.operators.items():
        children = [mutate(f, base, operator, rng) for _ in range(40)]
        made = [child for child in children if child is not None]
        for child in made:
            f.validate(child)
            assert differing(child, base) and differing(child, base) <= set(genes)
        if operator == "tile":
            assert len({tuple(child.items()) for child in made}) > 2
    assert base == before


def test_mutation_that_cannot_be_gives_up() -> None:
    """A cluster that splits K has no room along M or N."""
    f = family("sm90_wgmma")
    split = {**BASES["sm90_wgmma"], "split_k": 4}
    f.validate(split)
    assert mutate(f, split, "cluster", random.Random(0)) is None
    with pytest.raises(KeyError):
        mutate(f, split, "colour", random.Random(0))


def test_a_child_takes_each_operators_genes_from_one_parent() -> None:
    f, rng = family("sm90_wgmma"), random.Random(5)
    a = BASES["sm90_wgmma"]
    b = {**a, "tile_m": 128, "tile_n": 128, "consumers": 2, "stages": 6, "group": 4}
    f.validate(b)
    children = [cross(f, a, b, rng) for _ in range(30)]
    assert len({tuple(child.items()) for child in children if child}) > 3
    for child in children:
        assert child is not None and child not in (a, b)
        f.validate(child)
        for genes in f.operators.values():
            taken = {gene: child[gene] for gene in genes}
            assert taken in ({g: a[g] for g in genes}, {g: b[g] for g in genes})


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_neighbours_are_all_the_single_steps(name: str) -> None:
    f, base = family(name), BASES[name]
    found = list(neighbours(f, base))
    every = []
    for gene in set(f.genes) - {"layout", "dtype"}:
        values = f.genes[gene]
        at = values.index(base[gene])
        every += [{**base, gene: values[i]} for i in (at - 1, at + 1) if 0 <= i < len(values)]
    valid = [genome for genome in every if f.is_valid(genome)]
    assert len(found) == len(valid) > 3
    assert all(genome in found for genome in valid)


def test_encoding_is_log2_of_numbers_and_places_of_words() -> None:
    f = family("sm90_direct")
    genome = {**BASES["sm90_direct"], "mi": 2, "ni": 8, "warps_k": 16, "exact": True}
    code = dict(zip(itertools.chain(*f.operators.values()), encode(f, genome), strict=True))
    assert code == {
        **{"mi": 1.0, "ni": 3.0, "warps_m": 0.0, "warps_n": 0.0, "warps_k": 4.0, "cluster_k": 0.0},
        **{"unroll": math.log2(genome["unroll"]), "fixed_k": 0.0, "exact": 1.0},
    }
