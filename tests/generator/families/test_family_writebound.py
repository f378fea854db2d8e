"""sm90_writebound: every genome has a launch record that the runtime takes, and each limit of the
design (registers, shared memory, who reads a stage) is kept before the compiler is asked."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.families import FAMILIES, Genome, InvalidGenome
from hgemm_packs.generator.families.writebound import FAMILY
from hgemm_packs.generator.gates import binary
from tests.generator.kernels import WRITEBOUND as BASE
from tests.generator.kernels import record

SM_BYTES = 228 * 1024


@pytest.fixture(scope="module")
def genomes() -> list[Genome]:
    return random.Random(0).sample(list(FAMILY.space()), 300)


def test_every_record_passes_the_manifest_reader(genomes: list[Genome]) -> None:
    for genome in genomes:
        entry = record(FAMILY.fields(genome))
        assert entry.genome == genome
        assert (entry.grid.tile_m, entry.grid.tile_n) == (64, genome["tile_n"])
        assert entry.grid.persistent
        assert (entry.k.min, entry.k.max) == (int(genome["k"]) - 56, genome["k"])


def test_as_many_ctas_fit_an_sm_as_the_genome_says(genomes: list[Genome]) -> None:
    """The launcher's grid is all CTAs that can be resident: more than meant would be dealt runs."""
    for genome in genomes:
        entry, ctas = record(FAMILY.fields(genome)), int(genome["ctas_per_sm"])
        taken = entry.smem_bytes + 1024  # the driver's own; the barriers come on top, 300 bytes
        assert (taken + 300) * ctas <= SM_BYTES < taken * (ctas + 1)


def test_each_layout_has_its_maps() -> None:
    def maps(**genes: Any) -> list[tuple[str, tuple[int, ...], int, int]]:
        entry = record(FAMILY.fields({**BASE, **genes}))
        return [(x.operand, tuple(x.box), x.swizzle, x.row_group) for x in entry.tma]

    assert maps() == [("a", (64, 64), 128, 0), ("b", (64, 128), 128, 32)]
    assert maps(layout="nn", epilogue="staged") == [
        ("a", (64, 64), 128, 0),
        ("b", (64, 64), 128, 0),
    ]
    narrow = {"layout": "tn", "epilogue": "staged", "tile_n": 96}
    assert maps(**narrow) == [("a", (64, 64), 128, 0), ("b", (32, 64), 64, 0)]
    assert maps(layout="tt", epilogue="bulk") == [
        ("a", (64, 64), 128, 0),
        ("b", (64, 128), 128, 0),
        ("c", (64, 64), 128, 0),
    ]


def test_sizes_are_what_the_maps_can_address() -> None:
    def multiples(**genes: Any) -> tuple[int, int, int]:
        entry = record(FAMILY.fields({**BASE, **genes}))
        return entry.m.multiple_of, entry.n.multiple_of, entry.k.multiple_of

    assert multiples() == (1, 32, 8)
    assert multiples(epilogue="staged") == (1, 8, 8)
    assert multiples(layout="tt", epilogue="bulk") == (8, 8, 8)


def test_shared_memory_is_the_sum_of_its_parts() -> None:
    ring, b = 2 * 64 * 256 * 2, 256 * 256 * 2
    whole = {**BASE, "k": 256, "tile_n": 256, "stages": 2}
    for epilogue, staging in (("grouped", 0), ("staged", 8 * 2048), ("bulk", 8 * 4096)):
        entry = record(FAMILY.fields({**whole, "epilogue": epilogue}))
        assert entry.smem_bytes == 1024 + ring + b + staging


# (genes that differ from the base, words of the refusal)
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"stages": 3}, "stages are a multiple of consumers"),
    ({"consumers": 4, "stages": 6}, "stages are a multiple of consumers"),
    ({"consumers": 3, "stages": 3, "tile_n": 256}, "128 accumulators a thread do not fit 128"),
    ({"consumers": 4, "tile_n": 192}, "96 accumulators a thread do not fit 96"),
    ({"ctas_per_sm": 2, "tile_n": 192, "k": 64}, "96 accumulators a thread do not fit 96"),
    ({"k": 256, "tile_n": 256}, "shared memory"),
    ({"ctas_per_sm": 2, "stages_b": 2}, "shared memory"),
    ({"layout": "nn"}, "grouped epilogue is for nt and tt"),
    ({"layout": "tn"}, "grouped epilogue is for nt and tt"),
    ({"tile_n": 96, "epilogue": "bulk"}, "bulk epilogue stores 64 columns"),
    ({"tile_n": 160}, "tile_n=160 is not one of"),
    ({"reads_ahead": True}, "leaves room for as many CTAs of the next"),
    ({"ctas_per_sm": 2, "reads_ahead": True, "consumers": 3, "stages": 3}, "fit 72 registers"),
]


@pytest.mark.parametrize(("genes", "words"), BROKEN, ids=lambda x: str(x))
def test_a_broken_constraint_is_named(genes: dict[str, Any], words: str) -> None:
    FAMILY.validate(BASE)
    with pytest.raises(InvalidGenome, match=f"^sm90_writebound: .*{words}"):
        FAMILY.validate({**BASE, **genes})


def test_each_gene_changes_the_name() -> None:
    names = {FAMILY.kernel_name(BASE)}
    for gene, values in FAMILY.genes.items():
        other = next(value for value in values if value != BASE[gene])
        names.add(FAMILY.kernel_name({**BASE, gene: other}))
    assert len(names) == 1 + len(FAMILY.genes)


@pytest.mark.parametrize(
    "genes",
    [
        {"tile_n": 256, "stages_b": 2, "stages": 2, "ordered": True},
        {"layout": "nn", "dtype": "bf16", "tile_n": 96, "epilogue": "staged", "ctas_per_sm": 2},
        {"layout": "tt", "tile_n": 192, "k": 64, "consumers": 3, "stages": 3, "epilogue": "bulk"},
    ],
    ids=["nt", "nn", "tt"],
)
def test_a_kernel_is_what_its_record_declares(
    genes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, FAMILY.name, FAMILY)
    genome = {**BASE, **genes}
    one = compiler.build_one(FAMILY.name, genome)
    verdict = binary.check_image(one.entry_fields, one.cubin)
    assert verdict.passed, verdict.detail
    # Registers of a partition (512 a lane) for all warps that share it.
    warps = -(-one.entry_fields["block"] // 32 * int(genome["ctas_per_sm"]) // 4)
    assert -(-one.entry_fields["regs"] // 8) * 8 * warps <= 512
