"""Families: every candidate has a launch record that the runtime takes, and no genome that breaks a
constraint reaches the compiler."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator import build
from hgemm_packs.generator.families import FAMILIES, InvalidGenome, family
from hgemm_packs.generator.families import wgmma as wgmma_family
from hgemm_packs.manifest import PARAM_LAYOUTS
from hgemm_packs.problem import Problem

from .kernels import BASES, KINDS, WGMMA, Job, entry_of, every_candidate, record, sample

SM_SMEM = 228 * 1024  # shared memory of an SM; each resident CTA costs 1024 bytes more than it asks
SM_LANES = 65536 // 32  # registers of an SM, counted in whole warps


def test_every_candidate_is_valid_and_its_record_passes_the_manifest_reader() -> None:
    for name, genome in every_candidate():
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
    kinds = {
        (g["layout"], g["dtype"]) for family_name, g in every_candidate() if family_name == name
    }
    assert kinds == set(KINDS)


def test_names_and_symbols_are_one_per_genome() -> None:
    genomes = {(name, *sorted(genome.items())) for name, genome in every_candidate()}
    jobs = list(every_candidate())
    assert len(genomes) == len(jobs), "a genome stands twice in the pool"
    names = [family(name).fields(genome)["name"] for name, genome in jobs]
    assert len(set(names)) == len(names)
    assert names == [family(name).fields(genome)["symbol"] for name, genome in jobs]


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
    ("sm90_wgmma", {"layout": "nn", "tile_n": 96}, "nn loads B in boxes of 64 columns"),
    ("sm90_wgmma", {"layout": "nn", "epilogue": "grouped"}, "grouped epilogue is for nt"),
    ("sm90_wgmma", {"tile_n": 96, "epilogue": "bulk"}, "bulk epilogue stores 64 columns"),
    ("sm90_wgmma", {"epilogue": "bulk", "streaming": True}, "bulk stores carry no streaming hint"),
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
    ("sm90_direct", {"warps_m": 2, "warps_n": 2, "warps_k": 8}, "at most 512 threads"),
    ("sm90_direct", {"ni": 8, "unroll": 8}, "about 392 registers a thread"),
    ("sm90_direct", {"ni": 4, "unroll": 4, "warps_k": 16}, "about 152 registers a thread"),
    (
        "sm90_direct",
        {"mi": 2, "ni": 8, "warps_m": 4, "warps_n": 2, "warps_k": 2, "unroll": 1},
        "about 152 registers a thread",
    ),
]


def _broken_id(case: Any) -> str | None:
    return ",".join(f"{k}={v}" for k, v in case.items()) if isinstance(case, dict) else None


@pytest.mark.parametrize(("name", "genes", "words"), BROKEN, ids=_broken_id)
def test_a_broken_constraint_is_named_and_never_compiled(
    name: str, genes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    genome = {**BASES[name], **genes}

    def compiler(*_: Any) -> Any:
        raise AssertionError("the compiler was called")

    monkeypatch.setattr(build, "compile_source", compiler)
    assert FAMILIES[name].is_valid(BASES[name])
    with pytest.raises(InvalidGenome, match=f"^{name}: .*{words}"):
        build.build_one(name, genome)
    with pytest.raises(InvalidGenome, match=words):
        build.build([(name, genome)], workers=1)
    assert not FAMILIES[name].is_valid(genome)


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
    with pytest.raises(KeyError, match=r"sm99_magic.*sm90_direct, sm90_wgmma"):
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


def test_a_direct_kernel_of_the_space_leaves_room_for_three_on_an_sm() -> None:
    """No rule of its own bounds the reduction buffer: the register rule does."""
    genomes = list(family("sm90_direct").space(layout="nt", dtype="f16", exact=True))
    entries = [entry_of(("sm90_direct", genome)) for genome in genomes]
    assert max(entry.block for entry in entries) <= 512
    assert 64 * 1024 < max(entry.smem_bytes for entry in entries) <= 72 * 1024


def _wgmma_smem(g: dict[str, Any]) -> int:
    """What sm90/wgmma.cuh lays out behind the 1024-aligned start of its ring, and the alignment."""
    slabs = g["tile_k"] // 64
    stage = slabs * (g["tile_m"] * 128 + g["tile_n"] * 128)
    warps = 4 * g["consumers"]
    columns = g["tile_n"] // g["split_k"]
    if g["epilogue"] == "bulk":
        warp_bytes = 2 * 64 * 64 * 2 // 4
    elif g["epilogue"] == "grouped":
        warp_bytes = 0
    else:
        chunk = 64 if columns % 64 == 0 else 32 if columns % 32 == 0 else 16
        warp_bytes = 16 * chunk * 2
    blocks = g["tile_n"] // 8 // g["split_k"]
    inbox = g["split_k"] * blocks * 128 * g["consumers"] * 16 if g["split_k"] > 1 else 0
    return 1024 + g["stages"] * stage + warps * warp_bytes + inbox


def test_shared_memory_is_what_the_kernels_lay_out_and_fits() -> None:
    for name, genome in every_candidate():
        g: dict[str, Any] = dict(genome)
        smem = entry_of((name, genome)).smem_bytes
        if name == "sm90_wgmma":
            barriers = 8 * (2 * g["stages"] + 1)
            assert smem == _wgmma_smem(g)
            assert smem + barriers <= 227 * 1024
            assert g["ctas_per_sm"] * (smem + barriers + 1024) <= SM_SMEM
        else:
            tile_m, tile_n = 16 * g["mi"] * g["warps_m"], 8 * g["ni"] * g["warps_n"]
            assert smem == (4 * g["warps_k"] * tile_m * (tile_n + 4) if g["warps_k"] > 1 else 0)


@pytest.mark.parametrize(
    ("genes", "registers"),
    [
        # warps of consumers and producer, in CTAs, over four partitions of 512 registers a lane
        ({}, 255),  # 5 warps: two in the fullest partition, and no thread can have more
        ({"ctas_per_sm": 2}, 168),  # 10 warps: three
        ({"ctas_per_sm": 3}, 128),  # 15 warps: four
        ({"ctas_per_sm": 4}, 96),  # 20 warps: five
        ({"tile_m": 128, "consumers": 2, "ctas_per_sm": 2}, 96),  # 18 warps: five
        ({"tile_m": 128, "consumers": 2}, 232),  # setmaxnreg hands the producer's share over
    ],
)
def test_register_budget(genes: dict[str, Any], registers: int) -> None:
    genome = {**WGMMA, "stages": 2, **genes}
    f = family("sm90_wgmma")
    assert wgmma_family._registers(genome) == registers
    for tile_n in f.genes["tile_n"]:
        wider = {**genome, "tile_n": tile_n}
        if wgmma_family.smem_bytes(wider) < 233472 // int(genome["ctas_per_sm"]) - 1536:
            assert f.is_valid(wider) == (int(tile_n) // 2 + 40 <= registers)


def test_a_reallocating_block_has_the_registers_that_it_hands_out() -> None:
    """Two consumer warpgroups that take and one producer that gives, in one CTA an SM."""
    genome = {**WGMMA, "tile_m": 128, "consumers": 2}
    source = build.render("sm90_wgmma", genome)
    give, take = (
        int(found[1])
        for word in ("give", "take")
        if (found := re.search(rf"kReallocate\) {word}_registers<(\d+)>", source))
    )
    assert wgmma_family._registers(genome) == take
    assert entry_of(("sm90_wgmma", genome)).block == 384
    assert 8 * take + 4 * give <= SM_LANES


def _static_asserts(job: Job) -> str:
    """The source with its launch record checked by the compiler against the source's constants."""
    entry = entry_of(job)
    if job[0] == "sm90_wgmma":
        inbox = "Reduce::kBytes" if entry.genome["split_k"] != 1 else "0"
        smem = "1024 + kStages * kStageBytes + kConsumers * 4 * Epilogue::kWarpBytes + " + inbox
        facts = {smem: entry.smem_bytes, "kClusterSize": math.prod(entry.cluster)}
    else:
        smem = "kWarpsK == 1 ? 0 : kWarpsK * kTileM * kSumStride * 4"
        facts = {smem: entry.smem_bytes}
        if entry.genome["exact"]:
            facts["kPass"] = entry.k.multiple_of
    facts |= {"kThreads": entry.block, "kTileM": entry.grid.tile_m, "kTileN": entry.grid.tile_n}
    lines = [f'static_assert(({ours}) == {value}, "{value}");' for ours, value in facts.items()]
    return "\n".join([build.render(*job), *lines])


@pytest.mark.parametrize("job", sample(12), ids=lambda job: family(job[0]).kernel_name(job[1]))
def test_the_record_is_what_the_source_computes(job: Job) -> None:
    _, regs = build.compile_source(_static_asserts(job), "checked")
    entry = entry_of(job)
    budget = 65536 // (entry.block * int(entry.genome.get("ctas_per_sm", 1))) // 8 * 8
    assert regs <= min(255, budget), "a CTA could not be resident"


def test_the_source_would_notice_a_wrong_record() -> None:
    source = _static_asserts(("sm90_wgmma", WGMMA))
    wrong = source.replace("(kThreads) == 160", "(kThreads) == 192")
    assert wrong != source
    with pytest.raises(build.BuildError, match="static assertion failed"):
        build.compile_source(wrong, "checked")


def test_admitted_sizes_follow_from_the_design() -> None:
    plain = entry_of(("sm90_wgmma", WGMMA))
    assert plain.admits(Problem(1, 8, 8, "nt", "f16")) is None
    assert plain.admits(Problem(1, 12, 8, "nt", "f16")).code == "dims"  # type: ignore[union-attr]
    grouped = entry_of(("sm90_wgmma", {**WGMMA, "epilogue": "grouped"}))
    assert grouped.n.multiple_of == 32
    split = entry_of(("sm90_wgmma", {**WGMMA, "split_k": 4, "tile_k": 128, "stages": 3}))
    assert (split.k.min, split.cluster) == (512, (1, 1, 4)), "every CTA has a k-tile"
    exact = entry_of(("sm90_direct", {**BASES["sm90_direct"], "exact": True}))
    assert [(r.min, r.multiple_of) for r in (exact.m, exact.n, exact.k)] == [
        (16, 16),
        (16, 16),
        (256, 256),
    ]
    assert all(r.max % r.multiple_of == 0 for r in (grouped.n, split.k, exact.k))


def test_tensor_maps_cover_a_stage() -> None:
    """Boxes of one stage, times the CTAs that share the operand, are the bytes that a full barrier
    waits for: a wrong box would hang the card."""
    for name, genome in every_candidate():
        if name != "sm90_wgmma":
            continue
        g: dict[str, Any] = dict(genome)
        entry = entry_of((name, genome))
        boxes = {spec.operand: spec.box[0] * spec.box[1] * 2 for spec in entry.tma}
        slabs = g["tile_k"] // 64
        loads_b = slabs * (g["tile_n"] // 64 if g["layout"] == "nn" else 1)
        stage = slabs * boxes["a"] * g["cluster_n"] + loads_b * boxes["b"] * g["cluster_m"]
        assert stage == (g["tile_m"] + g["tile_n"]) * g["tile_k"] * 2
        assert ("c" in boxes) == (g["epilogue"] == "bulk")
