"""The spaces of problems: only valid genomes, and all of them."""

from __future__ import annotations

import dataclasses
import random

import pytest

from hgemm_packs.generator.core.space import (
    CORE,
    FITTED,
    FOR,
    LEFT_OUT,
    Space,
    admits,
    ahead,
    catalogue,
)
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import FAMILIES, InvalidGenome, family
from hgemm_packs.problem import Problem
from tests.generator.kernels import BASES, SWAPAB, entry_of

SMALL = Problem(64, 64, 64, "nt", "f16")


def test_ctas_that_wait_for_each_other_take_few_tiles() -> None:
    """132 SMs run 16 tiles of eight CTAs."""
    genome = BASES["sm90_splitk"]
    sizes = (256, 240), (257, 240), (64, 1024), (64, 1032)
    deep = [Problem(m, n, 4096, "nt", "f16") for m, n in sizes]
    sliced, alone = (Choice.of("sm90_splitk", {**genome, "slices": x}) for x in (4, 1))
    assert [admits(sliced, p) for p in deep] == [True, False, True, False]
    assert all(admits(alone, p) for p in deep)


@pytest.mark.parametrize("kind", [("nn", "bf16"), ("nt", "f16"), ("tt", "bf16")])
def test_the_catalogue_is_every_valid_choice_of_the_core(kind: tuple[str, str]) -> None:
    """The same through each family's own enumeration, with its genes narrowed to the core."""
    expected: set[Choice] = set()
    for name, core in CORE.items():
        f = family(name)
        if kind[0] not in f.genes["layout"]:
            continue
        narrowed = dataclasses.replace(f, genes={**f.genes, **core})
        for genome in narrowed.space(layout=kind[0], dtype=kind[1]):
            ruled_out = False
            for rule in LEFT_OUT.get(name, ()):
                ruled_out |= sum(genome[gene] in values for gene, values in rule.items()) == len(
                    rule
                )
            if not ruled_out:
                expected.add(Choice.of(name, genome))
    listed = catalogue(*kind)
    assert len(listed) == len(set(listed))
    assert set(listed) == expected
    has = {name for name in CORE if kind[0] in family(name).genes["layout"]}
    assert {choice.family for choice in listed} == has


def test_the_core_and_what_it_leaves_out_name_genes_and_values_of_their_families() -> None:
    assert {*CORE, *FITTED} == set(FOR) == set(FAMILIES)
    assert not set(CORE) & set(FITTED)
    for name in CORE:
        for rule in (CORE[name], *LEFT_OUT.get(name, ())):
            for gene, values in rule.items():
                assert set(values) <= set(family(name).genes[gene]), (name, gene)


@pytest.mark.parametrize(
    ("problem", "families"),
    [
        ((16, 16, 4096), {"wgmma", "splitk", "oneshot", "swapab", "direct", "gemv"}),
        ((17, 4096, 4096), {"wgmma", "splitk", "oneshot", "swapab"}),
        ((256, 16384, 4096), {"wgmma", "splitk", "oneshot", "swapab"}),
        ((264, 16384, 4096), {"wgmma"}),
        ((1024, 512, 128), {"wgmma", "splitk", "oneshot", "writebound", "direct"}),
        ((1024, 1024, 256), {"wgmma", "splitk", "oneshot", "writebound", "direct"}),
        ((1024, 1024, 264), {"wgmma", "splitk", "oneshot"}),
        ((8192, 8192, 64), {"wgmma", "writebound"}),
    ],
)
def test_a_core_has_the_families_that_are_for_the_size(
    problem: tuple[int, int, int], families: set[str]
) -> None:
    space = Space(Problem(*problem, "nt", "f16"))
    assert {choice.family for choice in space.core} == {
        *(f"sm90_{name}" for name in families),
        *FITTED,
    }


def test_a_family_that_is_not_for_a_size_may_still_be_proposed() -> None:
    large = Problem(512, 4096, 4096, "nt", "f16")
    swapped = Choice.of("sm90_swapab", BASES["sm90_swapab"])
    assert swapped not in Space(large).core
    assert Space(large).contains(swapped) and not Space(large, beyond=False).contains(swapped)
    assert Space(large, only=[swapped]).core == (swapped,)


def test_admission_is_that_of_the_built_kernel() -> None:
    """The search asks before anything is built; the launcher decides by the record."""
    sizes = (1, 8, 24, 64, 96, 512, 8192)
    shapes = [Problem(m, n, k, "nt", "f16") for m in sizes for n in sizes for k in sizes]
    rng = random.Random(2)
    answers = set()
    for choice in rng.sample(catalogue("nt", "f16"), 40):
        entry = entry_of((choice.family, choice.genome))
        for problem in rng.sample(shapes, 40):
            answers.add(admits(choice, problem))
            taken = entry.admits(problem) is None  # a grid that is too large the launcher refuses
            assert admits(choice, problem) in ({taken, False} if entry.cooperative else {taken})
    assert answers == {True, False}
    assert not admits(catalogue("nn", "f16")[0], SMALL)


def test_a_space_reaches_beyond_its_core_only_when_it_may() -> None:
    outside = Choice.of("sm90_wgmma", {**BASES["sm90_wgmma"], "group": 16})
    wide, narrow = Space(SMALL), Space(SMALL, beyond=False)
    assert outside not in wide.core and wide.contains(outside) and not narrow.contains(outside)
    replayed = Space(SMALL, only=wide.core[:5])
    assert replayed.core == wide.core[:5] and not replayed.contains(wide.core[5])
    broken = Choice.of("sm90_wgmma", {**BASES["sm90_wgmma"], "group": 5})
    assert not wide.contains(broken) and not wide.contains(Choice("sm80_mma", ()))


def test_parsing_names_what_is_wrong() -> None:
    space = Space(SMALL)
    genome = {
        gene: v for gene, v in BASES["sm90_direct"].items() if gene not in ("layout", "dtype")
    }
    parsed = space.parse({"family": "sm90_direct", "genome": genome})
    assert parsed == Choice.of("sm90_direct", BASES["sm90_direct"])
    for document, words in (
        ([], "a choice is"),
        ({"family": "sm80_mma", "genome": {}}, "no kernel family 'sm80_mma'"),
        ({"family": "sm90_direct", "genome": 3}, "a genome is an object"),
        ({"family": "sm90_direct", "genome": {**genome, "mi": 3}}, "mi=3"),
        ({"family": "sm90_direct", "genome": {"mi": 1}}, "genes must be"),
    ):
        with pytest.raises(ValueError, match=words):
            space.parse(document)
    exact = {**genome, "exact": True, "warps_k": 8, "unroll": 1}
    with pytest.raises(ValueError, match="does not admit"):
        space.parse({"family": "sm90_direct", "genome": exact})
    with pytest.raises(InvalidGenome):
        space.parse({"family": "sm90_direct", "genome": {**genome, "unroll": 999}})


def test_the_choice_as_it_reads_ahead() -> None:
    """No catalogue has it. A family without the gene has none, nor a genome that leaves no room."""
    problem = Problem(256, 512, 2048, "nt", "f16")
    both = {"reads_ahead": True, "triggers_early": True}
    for name in ("sm90_wgmma", "sm90_splitk", "sm90_oneshot"):
        plain = next(c for c in Space(problem).core if c.family == name)
        twin = ahead(plain)
        assert twin == Choice.of(name, {**plain.genome, **both})
        assert admits(twin, problem) and twin not in Space(problem).core
        assert ahead(twin) == twin
        assert ahead(Choice.of(name, {**plain.genome, "reads_ahead": True})) == twin
    assert ahead(next(c for c in Space(problem).core if c.family == "sm90_direct")) is None
    lasting = Choice.of("sm90_swapab", {**SWAPAB, "persistent": True})
    assert ahead(lasting) is None
    filling, leaving = (
        Choice.of("sm90_writebound", {**BASES["sm90_writebound"], "ctas_per_sm": n}) for n in (1, 2)
    )
    assert ahead(filling) is None
    twin = ahead(leaving)
    assert twin and twin.genome == {**leaving.genome, **both}
    assert ahead(Choice.of("sm90_gone", plain.genome)) is None
