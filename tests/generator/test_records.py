"""Launch records: what a family declares is what its source needs and the SM has."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from hgemm_packs.generator import build
from hgemm_packs.generator.families import family
from hgemm_packs.generator.families import wgmma as wgmma_family
from hgemm_packs.problem import Problem

from .kernels import BASES, WGMMA, Job, entry_of, every_candidate, sample

SM_SMEM = 228 * 1024  # shared memory of an SM; each resident CTA costs 1024 bytes more than it asks
SM_LANES = 65536 // 32  # registers of an SM, counted in whole warps


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


def test_a_direct_kernel_of_fixed_depth_takes_that_depth_alone() -> None:
    genes = {"exact": True, "fixed_k": 512, "cluster_k": 8, "warps_k": 8, "ni": 4, "unroll": 2}
    entry = entry_of(("sm90_direct", {**BASES["sm90_direct"], **genes}))
    assert entry.admits(Problem(64, 64, 4096, "nt", "f16")) is None
    for other in (Problem(64, 64, 8192, "nt", "f16"), Problem(64, 48, 4096, "nt", "f16")):
        assert entry.admits(other).code == "dims"  # type: ignore[union-attr]
    parts, inbox, barrier = 8 * 16 * (32 + 4) * 4, 16 * 32 * 4, 16
    assert (entry.cluster, entry.smem_bytes) == ((1, 1, 8), parts + inbox + barrier)


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
