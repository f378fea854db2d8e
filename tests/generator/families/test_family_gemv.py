"""sm90_gemv: which genomes are valid, what their launch records say, and that a few of them build
without spills and with all their tensor-core work."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, sass
from hgemm_packs.generator.families import FAMILIES, Genome, InvalidGenome, gemv
from tests.generator.kernels import record

BASE: Genome = {
    "layout": "nt",
    "dtype": "f16",
    "tokens": 8,
    "mi": 1,
    "warps_n": 1,
    "warps_k": 8,
    "unroll": 2,
    "stages": 4,
    "ahead": True,
    "cluster_k": 1,
    "streaming": True,
    "fetch": 128,
}
BROKEN: list[tuple[Genome, str]] = [
    ({"warps_n": 3}, "128 to 512 threads"),
    ({"warps_k": 2}, "128 to 512 threads"),
    ({"warps_n": 8, "warps_k": 1, "mi": 4}, "at most 256 columns"),
    ({"layout": "nn"}, "nn would load 4 bytes"),
    ({"stages": 1}, "activations go ahead through a ring"),
    ({"mi": 4, "unroll": 8}, "about 344 registers"),
    ({"stages": 8, "unroll": 8}, "bytes of shared memory"),
]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "sm90_gemv", gemv.FAMILY)


def with_genes(**genes: Any) -> Genome:
    return {**BASE, **genes}


def sampled(count: int) -> list[Genome]:
    rng = random.Random(5)
    found: list[Genome] = []
    while len(found) < count:
        genome = {gene: rng.choice(values) for gene, values in gemv.FAMILY.genes.items()}
        if gemv.FAMILY.is_valid(genome):
            found.append(genome)
    return found


@pytest.mark.parametrize(("genes", "words"), BROKEN)
def test_a_broken_constraint_is_named(genes: Genome, words: str) -> None:
    gemv.FAMILY.validate(BASE)
    with pytest.raises(InvalidGenome, match=f"^sm90_gemv: .*{words}"):
        gemv.FAMILY.validate(with_genes(**genes))


def test_the_record_of_a_ring_without_a_cluster() -> None:
    fields = gemv.FAMILY.fields(BASE)
    assert fields["grid"] == {"tile_m": 8, "tile_n": 16, "persistent": False}
    assert (fields["block"], fields["cluster"]) == (256, [1, 1, 1])
    # Four stages of 2 chunks: per thread 2 weight loads and 1 of activations, 16 bytes each.
    assert fields["smem_bytes"] == 4 * 2 * 3 * 16 * 256
    assert fields["dims"]["m"] == {"min": 1, "max": 8, "multiple_of": 1}
    # A grid has 65535 rows of tiles at most.
    assert fields["dims"]["n"] == {"min": 8, "max": 65535 * 16, "multiple_of": 8}
    assert fields["dims"]["k"] == {"min": 8, "max": 1 << 24, "multiple_of": 8}


def test_one_stage_needs_room_for_sums_alone_and_a_cluster_for_an_inbox() -> None:
    plain = with_genes(stages=1, ahead=False, tokens=16, mi=2)
    sums = 8 * 16 * (32 + 4) * 4
    assert gemv.FAMILY.fields(plain)["smem_bytes"] == sums
    split = gemv.FAMILY.fields({**plain, "cluster_k": 4})
    assert split["smem_bytes"] == sums + 16 * 32 * 4 + 16
    assert split["cluster"] == [1, 1, 4]
    assert split["grid"]["tile_m"] == split["dims"]["m"]["max"] == 16


def test_every_record_passes_the_manifest_reader_and_fits_the_sm() -> None:
    for genome in sampled(300):
        entry = record(gemv.FAMILY.fields(genome))
        assert entry.block <= 512
        resident = int(gemv.FAMILY.macros(genome)["HGP_CTAS_PER_SM"])
        assert 1 <= resident <= 2048 // entry.block
        assert resident * entry.smem_bytes <= gemv.SMEM


@pytest.mark.parametrize(
    "genes",
    [
        {},
        {"stages": 1, "ahead": False, "unroll": 4, "warps_k": 16},
        {"tokens": 16, "mi": 2, "warps_n": 2, "warps_k": 4, "cluster_k": 4, "dtype": "bf16"},
        {"layout": "nn", "mi": 4, "unroll": 1, "warps_k": 4, "cluster_k": 2, "streaming": False},
        {"layout": "nn", "mi": 2, "unroll": 1, "ahead": False, "dtype": "bf16"},
    ],
)
def test_it_builds_with_whole_turns_of_tensor_core_work(genes: Genome) -> None:
    genome = with_genes(**genes)
    built = compiler.build_one("sm90_gemv", genome)  # raises for a spill
    census = sass.census(built.cubin)
    (form,) = census.mma
    assert (form.opcode, form.acc, form.element) == ("HMMA", "f32", genome["dtype"])
    turn = 2 * int(genome["mi"]) * int(genome["unroll"]) * int(genome["tokens"]) // 8
    assert form.count % turn == 0
    assert census.count("LDL", "STL") == 0
    # A ring is filled by LDGSTS alone; with one stage there is none.
    assert (census.count("LDGSTS") > 0) == (genome["stages"] != 1)


@pytest.mark.parametrize("genes", [{"unroll": 1}, {"unroll": 2}, {"unroll": 1, "ahead": False}])
def test_no_load_has_half_a_descriptor(genes: Genome) -> None:
    """ptxas made that of short loads with a policy, and an H200 refused it as illegal."""
    genome = with_genes(layout="nn", dtype="bf16", tokens=16, mi=2, warps_k=16, stages=2, **genes)
    code = str(sass.disassemble(compiler.build_one("sm90_gemv", genome).cubin))
    assert re.findall(r"desc\[UR\d*[02468]\]", code)
    assert re.findall(r"desc\[UR\d*[13579]\]", code) == []
