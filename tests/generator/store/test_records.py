"""Launch records: what a family declares is what its source needs and the SM has."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.families import family
from hgemm_packs.generator.families import tokens as tokens_family
from hgemm_packs.generator.families import wgmma as wgmma_family
from hgemm_packs.generator.gates.numeric import ring_depth
from hgemm_packs.problem import Problem
from tests.generator.kernels import BASES, READABLE_AHEAD, WGMMA, Job, candidates, entry_of, sample

SM_SMEM = 228 * 1024  # shared memory of an SM; each resident CTA costs 1024 bytes more than it asks
SM_LANES = 65536 // 32  # registers of an SM, counted in whole warps


def _staged(columns: int) -> int:
    """Bytes of a warp's staging: 16 rows of the widest chunk that the columns are made of."""
    return 16 * next(chunk for chunk in (64, 32, 16) if columns % chunk == 0) * 2


def _wgmma_smem(g: dict[str, Any]) -> int:
    stage = g["tile_k"] // 64 * (g["tile_m"] * 128 + g["tile_n"] * 128)
    if g["epilogue"] == "bulk":
        warp_bytes = 2 * g["bulk_blocks"] * 64 * 64 * 2 // 4
    else:
        warp_bytes = 0 if g["epilogue"] == "grouped" else _staged(g["tile_n"] // g["split_k"])
    blocks = g["tile_n"] // 8 // g["split_k"]
    inbox = g["split_k"] * blocks * 128 * g["consumers"] * 16 if g["split_k"] > 1 else 0
    return 1024 + g["stages"] * stage + 4 * g["consumers"] * warp_bytes + inbox


def _splitk_smem(g: dict[str, Any]) -> int:
    """The inbox lies over the ring where the family says so."""
    macros = family("sm90_splitk").macros(g)
    stored = g["tile_n"] // g["split"] // int(macros["HGP_ACROSS"])
    warp_bytes = 0 if g["epilogue"] == "grouped" else _staged(stored)
    ring = g["stages"] * (g["tile_m"] + g["tile_n"]) * g["tile_k"] * 2
    apart = g["split"] > 1 and not macros["HGP_OVERLAID"]
    return 1024 + ring + g["tile_m"] // 16 * warp_bytes + apart * g["tile_m"] * g["tile_n"] * 4


def _oneshot_smem(g: dict[str, Any]) -> int:
    operands = g["k_slice"] // 64 * (g["tile_m"] * 128 + g["tile_n"] * 128)
    inbox = g["tile_m"] * g["tile_n"] * 4 if g["split"] > 1 else 0
    staging = g["tile_m"] // 16 * 16 * g["tile_n"] // g["split"] * 2
    barriers = g["k_slice"] // (64 * g["slab_group"]) + 1
    return operands + inbox + (staging if g["epilogue"] == "staged" else 0) + 8 * barriers


def _swapab_smem(g: dict[str, Any]) -> int:
    ring = g["stages"] * g["tile_k"] // 64 * (g["tile_n"] * 128 + g["tile_m"] * 128)
    inbox = g["tile_n"] * g["tile_m"] * 4 if g["split_k"] > 1 else 0
    return 1024 + ring + inbox + 4 * g["consumers"] * g["tile_m"] * 16 * 2


def _writebound_smem(g: dict[str, Any]) -> int:
    """At least so much that one CTA more than meant finds no room."""
    slabs = g["k"] // 64
    ring, b = g["stages"] * slabs * 64 * 128, g["stages_b"] * slabs * g["tile_n"] * 128
    per_warp = {"grouped": 0, "bulk": 2 * 64 * 64 * 2 // 4, "staged": _staged(g["tile_n"])}
    needed = 1024 + ring + b + 4 * g["consumers"] * per_warp[g["epilogue"]]
    return int(max(needed, SM_SMEM // (g["ctas_per_sm"] + 1)))


def _direct_smem(g: dict[str, Any]) -> int:
    tile_m, tile_n = 16 * g["mi"] * g["warps_m"], 8 * g["ni"] * g["warps_n"]
    pad = 4 if g["ni"] >= 4 else 0 if g["warps_n"] == 1 else 8 * g["ni"]
    sums = g["warps_k"] * tile_m * (tile_n + pad) * 4 if g["warps_k"] > 1 else 0
    return int(sums + (tile_m * tile_n * 4 + 16 if g["cluster_k"] > 1 else 0))


def _tokens_smem(g: dict[str, Any]) -> int:
    ring = g["stages"] * g["tile_k"] // 64 * (g["tile_n"] * 128 + g["tile_m"] * 128)
    inbox = g["tile_n"] * g["tile_m"] * 4 if g["split_k"] > 1 else 0
    chunk = g["tile_m"] if g["epilogue"] == "bulk" else min(64, g["tile_m"])
    return int(1024 + ring + inbox + g["consumers"] * g["buffers"] * chunk * 128)


def _gemv_smem(g: dict[str, Any]) -> int:
    """Sums come where the ring was; what the cluster sends lies behind both."""
    threads, tile_n = 32 * g["warps_n"] * g["warps_k"], 16 * g["mi"] * g["warps_n"]
    loads = 2 * g["mi"] + (g["tokens"] // 8 if g["ahead"] else 0)  # of 16 bytes
    ring = g["stages"] * threads * g["unroll"] * loads * 16 if g["stages"] > 1 else 0
    sums = g["warps_k"] * g["tokens"] * (tile_n + 4) * 4
    inbox = g["tokens"] * tile_n * 4 + 16 if g["cluster_k"] > 1 else 0
    return int(max(ring, sums) + inbox)


def _unaligned_smem(g: dict[str, Any]) -> int:
    inbox = g["tile_m"] * g["tile_n"] * 4 if g["split_k"] > 1 else 0
    staging = 4 * g["consumers"] * _staged(g["tile_n"] // g["split_k"])
    stage = (g["tile_m"] + g["tile_n"]) * 128
    if g["wide"]:  # a tail for each line: of M and K that is a row, of N and K 64 of an atom
        lines = g["tile_m"] if g["a_bytes"] == 2 else 0
        atoms = 2 if g["layout"][1] == "n" and g["tile_n"] % 64 else 1
        lines += atoms * g["tile_n"] if g["b_bytes"] == 2 else 0
        stage += -(-lines * 16 // 1024) * 1024
    return int(1024 + g["stages"] * stage + staging + inbox)


def _elements_smem(g: dict[str, Any]) -> int:
    """Rows of sums begin 8 banks apart; behind the last there are four floats."""
    tile_m, tile_n = 16 * g["mi"] * g["warps_m"], 8 * g["ni"] * g["warps_n"]
    row = next(floats for floats in range(tile_n, tile_n + 32) if floats % 32 == 8)
    sums = (g["warps_k"] * tile_m * row + 4) * 4
    return int(sums + (tile_m * tile_n * 4 + 16 if g["cluster_k"] > 1 else 0))


#: What each source lays out, in bytes: from its genes, not by the family's own functions.
SMEM = {
    "sm90_wgmma": _wgmma_smem,
    "sm90_splitk": _splitk_smem,
    "sm90_oneshot": _oneshot_smem,
    "sm90_swapab": _swapab_smem,
    "sm90_writebound": _writebound_smem,
    "sm90_direct": _direct_smem,
    "sm90_gemv": _gemv_smem,
    "sm90_tokens": _tokens_smem,
    "sm90_unaligned": _unaligned_smem,
    "sm90_elements": _elements_smem,
}


def _barriers(g: dict[str, Any]) -> int:
    """Bytes of static shared memory at most: full and empty of each stage, and a cluster's own."""
    slabs_b = g.get("stages_b", 0) * (g.get("k", 0) // 64 + 1)
    return int(8 * (2 * g["stages"] + slabs_b + 1))


def test_shared_memory_is_what_the_kernels_lay_out_and_fits() -> None:
    for name, genome in candidates():
        g: dict[str, Any] = dict(genome)
        smem = entry_of((name, genome)).smem_bytes
        assert smem == SMEM[name](g), (name, g)
        barriers = _barriers(g) if "ctas_per_sm" in g else 0
        assert smem + barriers <= 227 * 1024
        assert g.get("ctas_per_sm", 1) * (smem + barriers + 1024) <= SM_SMEM


@pytest.mark.parametrize(
    ("genes", "registers"),
    [
        # warps of consumers and producer, in CTAs, over four partitions of 512 registers a lane
        ({}, 255),  # 5 warps: two in the fullest partition, and no thread can have more
        ({"ctas_per_sm": 2}, 168),  # 10 warps: three
        ({"ctas_per_sm": 3}, 128),  # 15 warps: four
        ({"ctas_per_sm": 4}, 96),  # 20 warps: five
        ({"ctas_per_sm": 4, "reads_ahead": True}, 80),  # 24 warps: six
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
    source = compiler.render("sm90_wgmma", genome)
    give, take = (
        int(found[1])
        for word in ("give", "take")
        if (found := re.search(rf"kReallocate\) {word}_registers<(\d+)>", source))
    )
    assert wgmma_family._registers(genome) == take
    assert entry_of(("sm90_wgmma", genome)).block == 384
    assert 8 * take + 4 * give <= SM_LANES


@pytest.mark.parametrize("consumers", [2, 3])
def test_tokens_hand_over_what_a_block_has(consumers: int) -> None:
    """Two or three consumer warpgroups that take and one that gives, in one CTA an SM."""
    genome = {**BASES["sm90_tokens"], "tile_n": 64 * consumers, "consumers": consumers}
    source = compiler.render("sm90_tokens", genome)
    give, take = (
        int(found[1])
        for word in ("PRODUCER", "CONSUMER")
        if (found := re.search(rf"#define HGP_{word}_REGISTERS (\d+)", source))
    )
    assert tokens_family._registers(genome) == take
    assert entry_of(("sm90_tokens", genome)).block == 128 * (consumers + 1)
    assert 4 * consumers * take + 4 * give <= SM_LANES


#: The dynamic shared memory of each source in its own constants.
LAID_OUT = {
    "sm90_wgmma": "1024 + kStages * kStageBytes + kConsumers * 4 * Epilogue::kWarpBytes",
    "sm90_splitk": "1024 + kStagingOffset + kConsumers * 4 * Epilogue::kWarpBytes",
    "sm90_oneshot": "kBarriersAt + (int)sizeof(Barriers)",
    "sm90_swapab": "1024 + kStages * StageLayout::kBytes + kWarps * kStagingBytes",
    "sm90_writebound": "1024 + kStages * kStageBytes + kStagesB * kBytesB"
    " + kConsumers * 4 * Epilogue::kWarpBytes",
    "sm90_direct": "kSumFloats * 4",
    "sm90_gemv": "(kRingBytes > kSumBytes ? kRingBytes : kSumBytes)",
    "sm90_tokens": "1024 + kStages * StageLayout::kBytes"
    " + (kWhole ? kConsumers : kWarps) * kBuffers * kBufferBytes",
    "sm90_unaligned": "1024 + kStages * kStageBytes"
    " + kConsumers * 4 * StagedEpilogue<kShareN, false>::kWarpBytes",
    "sm90_elements": "kSumFloats * 4",
}
#: What a cluster along K adds to it.
INBOX = {
    "sm90_wgmma": "Reduce::kBytes",
    "sm90_swapab": "Reduce::kBytes",
    "sm90_direct": "kElements * 4 + 16",
    "sm90_gemv": "Reduce::kInbox * 4 + 16",
    "sm90_tokens": "Reduce::kBytes",
    "sm90_unaligned": "Reduce::kBytes",
    "sm90_elements": "kElements * 4 + 16",
}
#: A source's constants for a tile's rows and columns of C, and for the CTAs of a cluster along K.
TILE = {
    **dict.fromkeys(("sm90_swapab", "sm90_tokens"), ("kTokens", "kRows")),
    "sm90_gemv": ("kTokens", "kTileN"),
}
RANKS = {
    **{"sm90_wgmma": "kSplitK", "sm90_splitk": "kSplit", "sm90_oneshot": "kSplit"},
    **{"sm90_swapab": "kSplitK", "sm90_writebound": "1"},
    **{"sm90_direct": "kRanks", "sm90_gemv": "kRanks"},
    **{"sm90_tokens": "kSplitK", "sm90_unaligned": "kSplitK", "sm90_elements": "kRanks"},
}


def _static_asserts(job: Job) -> str:
    """The source with its launch record checked by the compiler against the source's constants."""
    name, entry = job[0], entry_of(job)
    smem = LAID_OUT[name] + (f" + {INBOX[name]}" if name in INBOX and entry.cluster[2] > 1 else "")
    if name == "sm90_writebound":
        floor = SM_SMEM // (int(entry.genome["ctas_per_sm"]) + 1)
        smem = f"({smem}) > {floor} ? ({smem}) : {floor}"
    tile_m, tile_n = TILE.get(name, ("kTileM", "kTileN"))
    threads = "kThreads"
    if name == "sm90_oneshot":  # its constants are of the threads that multiply
        threads += " + (HGP_READS_AHEAD ? 32 : 0)"
    facts = {smem: entry.smem_bytes, threads: entry.block, RANKS[name]: entry.cluster[2]}
    facts |= {tile_m: entry.grid.tile_m, tile_n: entry.grid.tile_n}
    if name in ("sm90_wgmma", "sm90_tokens"):
        facts["kClusterSize"] = math.prod(entry.cluster)
    if name == "sm90_splitk":
        facts["kSlices"] = entry.grid.slices
    if entry.workspace_bytes:
        facts["kConsumers * Slices::kWords * 4"] = entry.workspace_bytes
    if name in ("sm90_direct", "sm90_elements"):
        facts["kWindow * kRanks"] = ring_depth(entry)
    if entry.genome.get("exact"):
        facts["(kFixedK ? kFixedK : kWindow) * kRanks"] = entry.k.multiple_of
    lines = [f'static_assert(({ours}) == {value}, "{value}");' for ours, value in facts.items()]
    return "\n".join([compiler.render(*job), *lines])


#: Families whose threads load operands.
COPYING = ("sm90_direct", "sm90_gemv", "sm90_unaligned", "sm90_elements")
#: Kernels that read ahead, which no catalogue lists.
AHEAD = [(name, {**genome, "reads_ahead": True}) for name, genome in READABLE_AHEAD.items()]
#: One whose threads copy.
COPIED = ("sm90_oneshot", {**BASES["sm90_oneshot"], "cp_async": True})


@pytest.mark.parametrize(
    "job", [*sample(32), *AHEAD, COPIED], ids=lambda job: family(job[0]).kernel_name(job[1])
)
def test_the_record_is_what_the_source_computes(job: Job) -> None:
    _, regs = compiler.compile_source(_static_asserts(job), "checked")
    entry = entry_of(job)
    budget = 65536 // (entry.block * int(entry.genome.get("ctas_per_sm", 1))) // 8 * 8
    assert regs <= min(255, budget), "a CTA could not be resident"


def test_the_source_would_notice_a_wrong_record() -> None:
    source = _static_asserts(("sm90_wgmma", WGMMA))
    wrong = source.replace("(kThreads) == 160", "(kThreads) == 192")
    assert wrong != source
    with pytest.raises(compiler.BuildError, match="static assertion failed"):
        compiler.compile_source(wrong, "checked")


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
    """Boxes of a stage, times the CTAs that share the operand, are the bytes that a full barrier
    waits for: a wrong box would hang the card."""
    for name, genome in candidates():
        g: dict[str, Any] = dict(genome)
        entry = entry_of((name, genome))
        boxes = {spec.operand: tuple(spec.box) for spec in entry.tma}
        assert ("c" in boxes) == (g.get("epilogue") == "bulk")
        copied = name in COPYING or g.get("cp_async", False)
        assert (boxes.keys() >= {"a", "b"}) == (not copied)
        if "a" not in boxes:
            continue
        depth = g.get("tile_k") or g.get("k") or g["k_slice"]
        for operand, rows, stored_mn, shared in (
            ("a", entry.grid.tile_m, g["layout"][0] == "t", g.get("cluster_n", 1)),
            ("b", entry.grid.tile_n, g["layout"][1] == "n", g.get("cluster_m", 1)),
        ):
            box = boxes[operand]
            copies = depth // 64 * (rows // box[0] if stored_mn else 1)
            if name == "sm90_tokens" and not stored_mn:
                # Slices of whole atoms, the last ones over each other; no box of more than 256.
                rows = math.ceil(rows / (8 * shared)) * 8 * shared
                copies *= math.ceil(rows / shared / 256)
            assert copies * box[0] * box[1] * 2 * shared == rows * depth * 2, (name, g, operand)
