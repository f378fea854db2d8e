"""Family sm90_unaligned: records say what its copies need; a broken constraint is named."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, sass
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.families import Genome, InvalidGenome
from hgemm_packs.generator.families.unaligned import BYTES, FAMILY, reallocates
from hgemm_packs.problem import DTYPES, LAYOUTS, Problem
from tests.generator.kernels import UNALIGNED, record


def valid(rng: random.Random, count: int, **fixed: Any) -> list[Genome]:
    """Genomes drawn from the space."""
    found: list[Genome] = []
    while len(found) < count:
        genome = {gene: rng.choice(values) for gene, values in FAMILY.genes.items()} | fixed
        if FAMILY.is_valid(genome):
            found.append(genome)
    return found


def test_a_record_says_the_bytes_of_its_genome_and_takes_rows_of_whole_units() -> None:
    for genome in valid(random.Random(0), 200):
        entry = record(FAMILY.fields(genome))
        assert entry.align == tuple(genome[f"{operand}_bytes"] for operand in "abc")
        of_a = "k" if genome["layout"][0] == "n" else "m"
        of_b = "n" if genome["layout"][1] == "n" else "k"
        steps = {"m": 1, "n": 1, "k": 1}
        for units, name in zip(entry.align, (of_a, of_b, "n"), strict=True):
            steps[name] = math.lcm(steps[name], units // 2)
        assert {name: getattr(entry, name).multiple_of for name in "mnk"} == steps
        least = 64 * int(genome["split_k"]) - 63
        assert (entry.m.min, entry.n.min) == (steps["m"], steps["n"])
        assert least <= entry.k.min < least + steps["k"] and entry.k.min % steps["k"] == 0
        assert entry.param_layout == "ptr_v1" and not entry.tma
        assert entry.block == 128 * (int(genome["consumers"]) + int(genome["producers"]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kind_and_every_width_builds(layout: str, dtype: str) -> None:
    """No spill, no serialised product: the compiler's own refusals."""
    rng = random.Random(f"{layout} {dtype}")
    for a in BYTES:
        (genome,) = valid(rng, 1, layout=layout, dtype=dtype, a_bytes=a)
        assert compiler.build_one(FAMILY.name, genome).entry_fields["genome"] == genome


@pytest.mark.parametrize("tile", [(128, 192), (256, 128), (64, 256), (128, 256)])
def test_kernels_that_hand_registers_over_build(tile: tuple[int, int]) -> None:
    rng = random.Random(1)
    drawn = valid(rng, 40, tile_m=tile[0], tile_n=tile[1])
    handed = [genome for genome in drawn if reallocates(genome)][:3]
    assert handed
    for genome in handed:
        compiler.build_one(FAMILY.name, genome)


@pytest.mark.parametrize(
    ("genes", "copies", "loads"),
    [
        ({"a_bytes": 16, "b_bytes": 16, "batch": 4}, 2 * 64 * 8 // 128, 0),
        (
            {"a_bytes": 8, "b_bytes": 4, "batch": 4, "layout": "tn"},
            64 * 16 // 128 + 64 * 32 // 128,
            0,
        ),
        ({"a_bytes": 4, "b_bytes": 2}, 64 * 32 // 128, 2 * 8),
        ({"a_bytes": 2, "b_bytes": 2, "layout": "nn", "batch": 4}, 0, 2 * 2 * 4),
        # By two warpgroups: units and tails, quickly, and near an end by elements.
        (
            {"a_bytes": 2, "b_bytes": 2, "c_bytes": 2, "wide": True, "producers": 2, "batch": 4},
            2 * (64 * 8 // 256 + 1 + 1 + 1),
            2 * (8 + 8),
        ),
    ],
)
def test_threads_copy_each_unit_once(genes: dict[str, Any], copies: int, loads: int) -> None:
    """Of 64 x 64 of both operands; loads of 2 bytes stand in a loop over batches of pairs."""
    census = sass.census(compiler.build_one(FAMILY.name, {**UNALIGNED, **genes}).cubin)
    assert (census.count("UTMALDG"), census.count("LDGSTS")) == (0, copies)
    assert census.count("LDG") == loads


@pytest.mark.parametrize("base", [(16, 16, 16), (8, 4, 2), (2, 2, 16)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_space_copies_by_what_the_problem_allows(layout: str, base: tuple[int, int, int]) -> None:
    problem = Problem(300, 513, 1001, layout, "f16", base=base)
    listed = Space(problem).core
    assert {choice.family for choice in listed} == {FAMILY.name, "sm90_elements"}
    core = [choice for choice in listed if choice.family == FAMILY.name]
    assert 20 <= len(core) <= 100
    for choice in core:
        g = choice.genome
        wide = tuple(16 if had == 16 else 2 for had in problem.alignments)
        copied = wide if g["wide"] else problem.alignments
        assert (g["a_bytes"], g["b_bytes"], g["c_bytes"]) == copied
    assert {choice.genome["wide"] for choice in core} == {False, True}
    assert all(c.family != FAMILY.name for c in Space(Problem(512, 512, 512, layout, "f16")).core)


#: Genes of wide copies of everything.
WIDE: dict[str, Any] = {
    **{"a_bytes": 2, "b_bytes": 2, "c_bytes": 2},
    **{"wide": True, "producers": 2, "batch": 4},
}
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"tile_m": 256}, "a consumer holds 64 or 128 rows"),
    ({"b_bytes": 4}, "only loads of 2 bytes come in batches"),
    ({"tile_n": 96, "split_k": 4}, "a share is a multiple of 16 columns"),
    ({"tile_m": 128, "split_k": 2}, "split_k reduces once, 64 rows a consumer"),
    ({"producers": 2, "consumers": 2, "tile_m": 128, "ctas_per_sm": 3}, "registers of a producer"),
    ({"tile_m": 256, "tile_n": 256, "consumers": 2, "stages": 2}, "registers of a consumer thread"),
    ({"tile_n": 256, "ctas_per_sm": 2, "stages": 2}, "128 accumulators of a product do not fit"),
    ({"tile_n": 128, "stages": 8, "ctas_per_sm": 2}, "shared memory"),
    ({**WIDE, "a_bytes": 8}, "wide accesses take 2 or 16 bytes, not all 16"),
    ({**WIDE, "a_bytes": 16, "b_bytes": 16, "c_bytes": 16}, "wide accesses take 2 or 16 bytes"),
    ({**WIDE, "producers": 1}, "each eighth line has a warp of its own"),
    ({**WIDE, "stages": 2}, "slabs land, are shifted and multiplied at once"),
    ({**WIDE, "batch": 8}, "only loads of 2 bytes come in batches"),
    ({**WIDE, "tile_n": 256}, "registers of a wide store beside the sums"),
    ({**WIDE, "tile_m": 128, "tile_n": 128, "consumers": 2, "split_k": 2}, "registers of a wide"),
]


@pytest.mark.parametrize(("genes", "words"), BROKEN)
def test_a_broken_constraint_is_named(genes: dict[str, Any], words: str) -> None:
    FAMILY.validate(UNALIGNED)
    with pytest.raises(InvalidGenome, match=f"^sm90_unaligned: .*{words}"):
        FAMILY.validate({**UNALIGNED, **genes})
