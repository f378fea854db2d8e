"""Families: every candidate has a launch record that the runtime takes, and no genome that breaks a
constraint reaches the compiler."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.families import BATCHED, FAMILIES, FREE, GROUPED, InvalidGenome, family
from hgemm_packs.pack.manifest import PARAM_LAYOUTS
from tests.generator.kernels import BASES, DIRECT, WGMMA, candidates, entry_of, record


def test_every_candidate_is_valid_and_its_record_passes_the_manifest_reader() -> None:
    for name, genome in candidates():
        FAMILIES[name].validate(genome)
        entry = entry_of((name, genome))
        assert entry.genome == genome
        assert entry.family == name
        assert (entry.layout, entry.dtype) == (genome["layout"], genome["dtype"])
        assert entry.param_sizes == PARAM_LAYOUTS[entry.param_layout]


def test_the_manifest_reader_would_notice_a_wrong_record() -> None:
    fields = family("sm90_wgmma").fields(WGMMA)
    for change in ({"block": 100}, {"cluster": [1, 1]}, {"smem_bytes": 232449}, {"genome": 3}):
        with pytest.raises(PackError):
            record(fields, **change)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_candidate_is_listed_for_each_kind(name: str) -> None:
    f = FAMILIES[name]
    kinds = {(g["layout"], g["dtype"]) for listed, g in candidates() if listed == name}
    assert kinds == set(itertools.product(f.genes["layout"], f.genes["dtype"]))


def test_names_and_symbols_are_one_per_genome() -> None:
    genomes = {(name, *sorted(genome.items())) for name, genome in candidates()}
    assert len(genomes) == len(candidates()), "a genome stands twice in the catalogue"
    names = [family(name).fields(genome)["name"] for name, genome in candidates()]
    assert len(set(names)) == len(names)
    assert names == [family(name).fields(genome)["symbol"] for name, genome in candidates()]


@pytest.mark.parametrize("name", FAMILIES)
def test_each_gene_changes_the_name(name: str) -> None:
    f, base = FAMILIES[name], BASES[name]
    names = {f.kernel_name(base)}
    for gene, values in f.genes.items():
        other = next(value for value in values if value != base[gene])
        names.add(f.kernel_name({**base, gene: other}))
    assert len(names) == 1 + len(f.genes)


def test_the_name_says_family_layout_types_and_tile() -> None:
    genome = {**WGMMA, "layout": "nn", "dtype": "bf16", "tile_m": 128, "tile_n": 192}
    name = family("sm90_wgmma").kernel_name(genome)
    assert name[:-8] == "sm90_hgemm_nn_bf16_f32acc_wgmma_128x192_"
    assert int(name[-8:], 16) >= 0


# (family, genes that differ from a valid genome, words of the refusal)
BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("sm90_wgmma", {"schedule": "pingpong", "persistent": True}, "pingpong needs two consumers"),
    ("sm90_wgmma", {"schedule": "pingpong", "consumers": 2}, "pingpong needs a persistent grid"),
    ("sm90_wgmma", {"consumers": 2}, "a consumer holds 64 or 128 rows"),
    ("sm90_wgmma", {"tile_m": 256}, "a consumer holds 64 or 128 rows"),
    ("sm90_wgmma", {"tile_m": 128, "tile_n": 256}, "256 accumulators a thread do not fit"),
    ("sm90_wgmma", {"tile_n": 192, "ctas_per_sm": 3}, "96 accumulators a thread do not fit 128"),
    ("sm90_wgmma", {"stages": 12, "tile_n": 128}, "shared memory"),
    ("sm90_wgmma", {"stages": 8, "ctas_per_sm": 2}, "shared memory"),
    ("sm90_wgmma", {"layout": "nn", "epilogue": "grouped"}, "grouped epilogue is for nt"),
    ("sm90_wgmma", {"tile_n": 96, "epilogue": "bulk"}, "bulk epilogue stores 64 columns"),
    ("sm90_wgmma", {"cluster_m": 4, "cluster_n": 2}, "clusters of at most four"),
    (
        "sm90_wgmma",
        {"tile_n": 96, "epilogue": "grouped", "cluster_m": 2},
        "B slices of whole atoms",
    ),
    ("sm90_wgmma", {"group": 64}, "banding by 64 is for persistent grids"),
    ("sm90_wgmma", {"split_k": 2, "cluster_n": 2}, "split_k takes the whole cluster"),
    ("sm90_wgmma", {"split_k": 2, "persistent": True}, "split_k reduces once"),
    ("sm90_wgmma", {"split_k": 2, "tile_m": 128, "stages": 2}, "split_k reduces once, 64 rows"),
    ("sm90_wgmma", {"split_k": 2, "epilogue": "bulk"}, "split_k stores shares"),
    ("sm90_wgmma", {"split_k": 8}, "a share is a multiple of 16 columns"),
    ("sm90_wgmma", {"split_k": 4, "epilogue": "grouped"}, "a share is a multiple of 32 columns"),
    ("sm90_wgmma", {"split_k": 2, "tile_n": 256, "stages": 2}, "64 sums beside 128 accumulators"),
    ("sm90_wgmma", {"persistent": True, "reads_ahead": True}, "leaves no room ahead"),
    ("sm90_wgmma", {"cluster_m": 2, "reads_ahead": True}, "what reads ahead shares no operand"),
    ("sm90_wgmma", {"cluster_n": 2, "reads_ahead": True}, "what reads ahead shares no operand"),
    ("sm90_swapab", {"persistent": True, "reads_ahead": True}, "leaves no room ahead"),
    ("sm90_direct", {"warps_m": 2, "warps_n": 2, "warps_k": 8}, "at most 512 threads"),
    ("sm90_direct", {"ni": 8, "unroll": 8}, "about 493 registers a thread"),
    ("sm90_direct", {"ni": 4, "unroll": 4, "warps_k": 16}, "about 194 registers a thread"),
    (
        "sm90_direct",
        {"mi": 2, "ni": 8, "warps_m": 4, "warps_n": 2, "warps_k": 2, "unroll": 1},
        "about 173 registers a thread",
    ),
    ("sm90_direct", {"layout": "nn", "ni": 1}, "nn loads at least two columns"),
    ("sm90_direct", {"warps_k": 2, "cluster_k": 8}, "warps split K before CTAs do"),
    ("sm90_direct", {"warps_m": 4, "ni": 8, "unroll": 1, "cluster_k": 2}, "a smaller tile beats"),
    ("sm90_direct", {"exact": True, "fixed_k": 128}, "one to four times the K in flight"),
    ("sm90_direct", {"exact": True, "fixed_k": 2048}, "one to four times the K in flight"),
    ("sm90_direct", {"fixed_k": 256}, "with fixed_k the kernel is exact"),
]


def _broken_id(case: Any) -> str | None:
    return ",".join(f"{k}={v}" for k, v in case.items()) if isinstance(case, dict) else None


@pytest.mark.parametrize(("name", "genes", "words"), BROKEN, ids=_broken_id)
def test_a_broken_constraint_is_named_and_never_compiled(
    name: str, genes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    genome = {**BASES[name], **genes}

    def compile_stand_in(*_: Any) -> Any:
        raise AssertionError("the compiler was called")

    monkeypatch.setattr(compiler, "_compile", compile_stand_in)
    assert FAMILIES[name].is_valid(BASES[name])
    with pytest.raises(InvalidGenome, match=f"^{name}: .*{words}"):
        compiler.build_one(name, genome)
    with pytest.raises(InvalidGenome, match=words):
        compiler.build([(name, genome)], workers=1)
    assert not FAMILIES[name].is_valid(genome)


#: (family, genes that a reduction in distributed shared memory has no registers for, the nearest
#: that it has).
REDUCED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("sm90_swapab", {"tile_m": 64, "split_k": 8}, {"tile_m": 48, "split_k": 8}),
    ("sm90_swapab", {"tile_m": 96, "split_k": 8}, {"tile_m": 96, "split_k": 4}),
    ("sm90_swapab", {"tile_m": 128, "split_k": 4}, {"tile_m": 128, "split_k": 2}),
    ("sm90_swapab", {"tile_m": 128, "split_k": 8}, {"tile_m": 128, "split_k": 2}),
    ("sm90_wgmma", {"tile_n": 256, "split_k": 2}, {"tile_n": 256, "split_k": 4}),
    ("sm90_wgmma", {"tile_n": 256, "split_k": 2}, {"tile_n": 224, "split_k": 2}),
]


@pytest.mark.parametrize(("name", "spilling", "built"), REDUCED, ids=_broken_id)
def test_a_reduction_that_spills_is_no_genome_and_the_nearest_one_builds(
    name: str, spilling: dict[str, Any], built: dict[str, Any]
) -> None:
    """Five pairs of genes were in valid genomes only that the compiler refused: it spilled."""
    f, few = FAMILIES[name], {"layout": "nt", "dtype": "f16", "persistent": False}
    if name == "sm90_wgmma":
        few |= {"schedule": "cooperative", "cluster_m": 1, "cluster_n": 1, "group": 1}
        few |= {"raster": "m", "streaming": False, "bulk_blocks": 1}
    assert not list(f.space(**few, **spilling))
    nearest = next(f.space(**few, **built, tile_k=64, ctas_per_sm=1))
    assert compiler.build_one(name, nearest).entry_fields["genome"] == nearest


@pytest.mark.parametrize("name", FAMILIES)
def test_genes_are_named_and_typed(name: str) -> None:
    f, base = FAMILIES[name], BASES[name]
    for gene, values in f.genes.items():
        missing = {each: value for each, value in base.items() if each != gene}
        with pytest.raises(InvalidGenome, match="genes must be"):
            f.validate(missing)
        # 1 for True, "1" for 1, 1 for "nt": equal or alike is not the same gene value.
        wrong: Any = {bool: int, int: str, str: bool}[type(values[0])](base[gene])
        for value in (wrong, "none", -1, None):
            with pytest.raises(InvalidGenome, match=f"{gene}=.* is not one of"):
                f.validate({**base, gene: value})
    with pytest.raises(InvalidGenome, match="genes must be"):
        f.validate({**base, "warp_speed": 9})


def test_true_is_no_number() -> None:
    with pytest.raises(InvalidGenome, match="split_k=True is not one of"):
        family("sm90_wgmma").validate({**WGMMA, "split_k": True})


def test_an_unknown_family_is_named_with_the_known_ones() -> None:
    with pytest.raises(
        KeyError, match=f"sm99_magic.*{', '.join(sorted(BASES | GROUPED | BATCHED | FREE))}"
    ):
        family("sm99_magic")


def test_space_is_what_validate_takes() -> None:
    f = family("sm90_wgmma")
    free = ("tile_m", "consumers", "schedule", "persistent", "epilogue", "streaming")
    fixed = {gene: value for gene, value in WGMMA.items() if gene not in free}
    found = list(f.space(**fixed))
    # The same by brute force over the product of the free genes' values.
    expected = [fixed]
    for gene in free:
        expected = [{**genome, gene: value} for genome in expected for value in f.genes[gene]]
    assert {tuple(sorted(g.items())) for g in found} == {
        tuple(sorted(g.items())) for g in expected if f.is_valid(g)
    }
    assert 0 < len(found) < len(expected)
    assert len({f.kernel_name(genome) for genome in found}) == len(found)


def test_space_refuses_genes_of_no_family() -> None:
    with pytest.raises(InvalidGenome, match=r"no genes \['tile_q'\]"):
        next(family("sm90_wgmma").space(tile_q=1))


@pytest.mark.parametrize(
    ("genes", "dims_n"),
    [
        ({"layout": "nt", "ni": 1}, {"min": 8, "max": 65535 * 8, "multiple_of": 8}),
        (
            {"ni": 4, "warps_n": 2, "warps_k": 4, "unroll": 1, "exact": True},
            {"min": 64, "max": 65535 * 64, "multiple_of": 64},
        ),
        (
            {"ni": 8, "warps_n": 4, "warps_k": 1, "unroll": 1},
            {"min": 8, "max": 65535 * 256, "multiple_of": 8},
        ),
    ],
)
def test_a_direct_kernel_takes_no_more_columns_than_its_grid_can_have(
    genes: dict[str, Any], dims_n: dict[str, int]
) -> None:
    fields = family("sm90_direct").fields({**DIRECT, **genes})
    assert fields["grid"]["tile_n"] * 65535 == dims_n["max"] < 1 << 24
    assert fields["dims"]["n"] == dims_n


def test_a_direct_kernel_of_the_space_leaves_room_for_two_on_an_sm() -> None:
    """No rule of its own bounds the parts of the sum: the register rule does."""
    genomes = list(family("sm90_direct").space(layout="nt", dtype="f16", exact=True))
    entries = [entry_of(("sm90_direct", genome)) for genome in genomes]
    assert max(entry.block for entry in entries) <= 512
    assert 64 * 1024 < max(entry.smem_bytes for entry in entries) <= 80 * 1024
