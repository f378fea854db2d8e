"""Family sm90_elements: records take any size at any address; a broken constraint is named."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, sass
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.families import Genome, InvalidGenome
from hgemm_packs.generator.families.base import SMEM_LIMIT_BYTES
from hgemm_packs.generator.families.elements import FAMILY
from hgemm_packs.problem import DTYPES, LAYOUTS, Problem
from tests.generator.kernels import ELEMENTS, record

#: Every valid genome of one layout and type: the check looks at neither.
SPACE = tuple(FAMILY.space(layout="nt", dtype="f16"))


def drawn(seed: str, count: int, **fixed: Any) -> list[Genome]:
    return [{**genome, **fixed} for genome in random.Random(seed).sample(SPACE, count)]


def test_a_record_says_any_size_and_its_genome() -> None:
    """M and K end where the launcher's numbers do, N where a grid's second dimension does."""
    for genome in SPACE:
        entry = record(FAMILY.fields(genome))
        tile_m = 16 * int(genome["mi"]) * int(genome["warps_m"])
        tile_n = 8 * int(genome["ni"]) * int(genome["warps_n"])
        warps = int(genome["warps_m"]) * int(genome["warps_n"]) * int(genome["warps_k"])
        assert (entry.grid.tile_m, entry.grid.tile_n) == (tile_m, tile_n)
        assert (entry.block, entry.cluster) == (32 * warps, (1, 1, genome["cluster_k"]))
        assert entry.align == (2, 2, 2)
        sizes = [(entry.m, 1 << 24), (entry.n, min(1 << 24, 65535 * tile_n)), (entry.k, 1 << 24)]
        for dim, most in sizes:
            assert (dim.min, dim.max, dim.multiple_of) == (1, most, 1)
        assert entry.param_layout == "ptr_v1" and not entry.tma


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kernel_admits_what_is_aligned_to_nothing(layout: str) -> None:
    entry = record(FAMILY.fields({**ELEMENTS, "layout": layout}))
    for m, n, k in ((1, 1, 1), (1, 6, 4894), (35, 18, 10098), (7, 513, 1001)):
        assert entry.admits(Problem(m, n, k, layout, "f16", base=(2, 2, 2))) is None
    wide = Problem(1, 65535 * 16 + 1, 1, layout, "f16", base=(2, 2, 2))
    assert entry.admits(wide) is not None


def test_parts_of_the_sums_always_have_room() -> None:
    """No rule of its own bounds them: the register rule does."""
    most = max(FAMILY.record(genome)["smem_bytes"] for genome in SPACE)
    assert 64 * 1024 < most <= 96 * 1024 < SMEM_LIMIT_BYTES


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"warps_m": 4, "warps_n": 2}, "at most 512 threads"),
    ({"mi": 4, "ni": 8, "unroll": 4}, "about 456 registers a thread"),
    # Fewer where more threads share them.
    ({"mi": 2, "ni": 4, "warps_k": 16}, "about 152 registers a thread"),
    ({"warps_k": 2, "cluster_k": 4}, "warps split K before CTAs do"),
    ({"mi": 2, "ni": 4, "warps_m": 2, "cluster_k": 2}, "a smaller tile beats a cluster"),
]


@pytest.mark.parametrize(("genes", "words"), BROKEN)
def test_a_broken_constraint_is_named(genes: dict[str, Any], words: str) -> None:
    FAMILY.validate(ELEMENTS)
    broken = {**ELEMENTS, **genes}
    with pytest.raises(InvalidGenome, match=f"^sm90_elements: .*{words}"):
        FAMILY.validate(broken)


#: Genes that take the most registers: of a thread that may have 255, and of one of 512 threads.
MOST: list[Genome] = [
    {"mi": 2, "ni": 8, "unroll": 1, "warps_k": 8},
    {"mi": 1, "ni": 8, "unroll": 2, "warps_k": 4, "cluster_k": 8},
    {"mi": 2, "ni": 4, "unroll": 1, "warps_k": 16},
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_genomes_with_the_most_registers_and_any_others_build(layout: str, dtype: str) -> None:
    """No spill: the compiler's own refusal."""
    kind = {"layout": layout, "dtype": dtype}
    most = [{**ELEMENTS, **genes, **kind} for genes in MOST]
    for genome in [*most, *drawn(f"{layout} {dtype}", 2, **kind)]:
        assert compiler.build_one(FAMILY.name, genome).entry_fields["genome"] == genome


@pytest.mark.parametrize(
    ("genes", "registers"),
    [
        ({"ni": 8, "unroll": 4}, 252),
        ({"mi": 4, "unroll": 4}, 252),
        ({"mi": 4, "ni": 4}, 224),
        ({"mi": 2, "ni": 8}, 224),
        ({"mi": 4, "ni": 1, "unroll": 4}, 218),
        ({"mi": 2, "ni": 4, "unroll": 4}, 216),
    ],
)
def test_what_spills_in_a_layout_is_no_genome(genes: Genome, registers: int) -> None:
    """These were valid, and the compiler refused them in one layout or in all: they spilled."""
    with pytest.raises(InvalidGenome, match=f"about {registers} registers a thread"):
        FAMILY.validate({**ELEMENTS, **genes})


@pytest.mark.parametrize(
    "genes",
    [{}, {"ni": 4, "unroll": 4, "layout": "tn"}, {"cluster_k": 4, "layout": "tt"}],
)
def test_a_thread_loads_four_elements_of_each_row_a_step(genes: dict[str, Any]) -> None:
    """Before the loop and in it, none twice; all of them alone, and none past registers."""
    genome = {**ELEMENTS, **genes}
    census = sass.census(compiler.build_one(FAMILY.name, genome).cubin)
    mi, ni, unroll = (int(genome[gene]) for gene in ("mi", "ni", "unroll"))
    assert census.count("LDG") == 2 * unroll * 4 * (2 * mi + ni)
    assert census.count("LDGSTS", "UTMALDG") == 0
    (form,) = census.mma
    assert (form.opcode, form.acc, form.element) == ("HMMA", "f32", "f16")
    assert form.count == 2 * unroll * mi * ni


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_space_lists_the_family_for_small_problems_without_alignment(layout: str) -> None:
    def listed(m: int, n: int, k: int, base: tuple[int, int, int] = (16, 16, 16)) -> int:
        core = Space(Problem(m, n, k, layout, "f16", base=base)).core
        return sum(choice.family == FAMILY.name for choice in core)

    every = [listed(1, 6, 4894), listed(300, 513, 1001), listed(64, 64, 64, (2, 16, 16))]
    assert every[0] > 500 and set(every) == {every[0]}
    assert listed(2048, 2048, 1024, (2, 2, 2)) == every[0], "2^32 products and fewer"
    assert listed(2048, 2048, 1025, (2, 2, 2)) == 0
    assert listed(64, 64, 64) == 0, "others load 16 bytes at a time"
