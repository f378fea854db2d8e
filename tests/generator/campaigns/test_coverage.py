"""Covering genomes have every pair that valid genomes have: checked on all genomes of a small
family and on random ones of real families."""

from __future__ import annotations

import itertools
import random

import pytest

from hgemm_packs.generator.campaigns import coverage
from hgemm_packs.generator.campaigns.coverage import (
    Known,
    Pair,
    all_pairs,
    impossible,
    pairs_of,
    pairwise,
)
from hgemm_packs.generator.families import FAMILIES, family
from hgemm_packs.generator.families.base import Family, Genome, require

GENES: dict[str, tuple[int | str | bool, ...]] = {
    "a": (1, 2, 3, 4, 5),
    "b": ("x", "y", "z"),
    "c": (False, True),
    "d": (8, 16, 32, 64),
    "e": (0, 1),
}


def _check(g: Genome) -> None:
    require(g["a"] != 1 or g["b"] != "x", "1 is not for x")
    require(g["a"] != 5 or (g["c"] is True and g["d"] == 64), "5 wants much")
    require(g["a"] != 5 or g["b"] != "z" or g["e"] == 1, "5 and z want more")
    require(g["b"] != "y" or g["d"] != 8 or g["e"] == 0, "three genes together")


SMALL = Family("sm90_small", "", GENES, _check, lambda g: {}, lambda g: {}, {})


def valid() -> list[Genome]:
    genomes = [dict(zip(GENES, point, strict=True)) for point in itertools.product(*GENES.values())]
    return [genome for genome in genomes if SMALL.is_valid(genome)]


def have(genome: Genome, pair: Pair) -> bool:
    one, a, other, b = pair
    return genome[one] == a and genome[other] == b


def test_every_pair_of_a_small_family_and_no_more_genomes_than_needed() -> None:
    genomes, not_found = pairwise(SMALL)
    assert all(SMALL.is_valid(genome) for genome in genomes)
    pairs = all_pairs(SMALL)
    assert len(pairs) == len(set(pairs)) == 15 + 10 + 20 + 10 + 6 + 12 + 6 + 8 + 4 + 8
    possible = {pair for pair in pairs if any(have(genome, pair) for genome in valid())}
    for pair in possible:
        assert any(have(genome, pair) for genome in genomes), pair
    assert set(not_found) == set(pairs) - possible
    assert ("a", 1, "b", "x") in not_found and ("a", 5, "c", False) in not_found
    assert len(not_found) == 1 + 1 + 3
    # 17 pairs of a and d are possible, and no genome has two of them.
    assert 17 <= len(genomes) <= 22


def test_always_the_same() -> None:
    assert pairwise(SMALL) == pairwise(SMALL)


def test_a_larger_space_is_walked_and_rare_pairs_are_sought(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if the space could not be listed: a few steps do not meet every pair."""
    complete = Known(SMALL)
    monkeypatch.setattr(coverage, "LISTED", 10)
    monkeypatch.setattr(coverage, "TRIES", 1000)
    monkeypatch.setattr(coverage, "STEPS", 3 * coverage.STARTS)
    walked = Known(SMALL)
    assert complete.complete and not walked.complete
    assert complete.not_found == walked.not_found and pairwise(SMALL) == pairwise(SMALL)
    assert pairs_of(SMALL, walked.cover(walked.pairs)) == set(complete.pairs)
    monkeypatch.setattr(coverage, "STARTS", 2)
    monkeypatch.setattr(coverage, "STEPS", 20)
    few = Known(SMALL)
    assert few.not_found == complete.not_found and few.proven
    monkeypatch.setattr(coverage, "TRIES", 0)
    fewer = Known(SMALL)
    assert len(fewer.not_found) > len(few.not_found) and not fewer.proven


@pytest.mark.parametrize("f", [SMALL, FAMILIES["sm90_swapab"]], ids=lambda f: f.name)
def test_pairs_without_genome_are_found_without_listing_the_space(f: Family) -> None:
    assert impossible(f, all_pairs(f)) == set(Known(f).not_found)


def test_other_genomes_for_the_pairs_of_a_refused_one() -> None:
    """All that there are in the end, and first those of which everything else has been built."""
    known = Known(SMALL)
    pair = ("a", 5, "b", "y")
    built = pairs_of(SMALL, [genome for genome in valid() if genome["e"] == 0])
    refused: list[Genome] = []
    while again := known.replace_refused([pair], built, refused):
        assert len(again) == 1 and have(again[0], pair) and again[0] not in refused
        refused += again
    assert len(refused) == sum(have(genome, pair) for genome in valid()) == 2
    assert [genome["e"] for genome in refused] == [0, 1]
    # Where all has been built, the second is as unlike the first as can be.
    pair, built = ("a", 3, "b", "z"), set(all_pairs(SMALL))
    (first,) = known.replace_refused([pair], built, [])
    (second,) = known.replace_refused([pair], built, [first])
    assert [gene for gene in first if first[gene] == second[gene]] == ["a", "b"]
    built = pairs_of(SMALL, [genome for genome in valid() if genome["e"] == 0])
    both = [("a", 3, "e", 1), ("a", 4, "e", 1)]
    assert [genome["a"] for genome in known.replace_refused(both, built, [])] == [3, 4]


@pytest.mark.parametrize("name", ["sm90_oneshot", "sm90_writebound"])
def test_a_real_family(name: str) -> None:
    """Valid genomes drawn at random have no pair that the covering ones lack."""
    real, rng = family(name), random.Random(7)
    genomes, not_found = pairwise(real)
    assert len(genomes) < 60 and all(real.is_valid(genome) for genome in genomes)
    drawn = [{g: rng.choice(v) for g, v in real.genes.items()} for _ in range(8000)]
    met = pairs_of(real, filter(real.is_valid, drawn))
    assert len(met) > 400 and met <= pairs_of(real, genomes)
    assert not met & set(not_found)
    assert pairs_of(real, genomes) | set(not_found) == set(all_pairs(real))


def test_layouts_and_dtypes_are_genes_like_others() -> None:
    for each in FAMILIES.values():
        assert list(each.genes)[:2] == ["layout", "dtype"]
