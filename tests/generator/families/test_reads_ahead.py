"""The gene `reads_ahead`: A and B are read while the grid ahead still runs, nothing else is done
before that has ended. Kernels without it are the ones that were measured before there was one."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, grid_wait
from hgemm_packs.generator.compile.pack_writer import SourceKernel, read_source
from hgemm_packs.generator.compile.sass import census, disassemble
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.families import Genome, family
from hgemm_packs.generator.gates import binary
from tests.generator.kernels import (
    BASES,
    DIRECT,
    ONESHOT,
    READABLE_AHEAD,
    SPLITK,
    SWAPAB,
    TOKENS,
    WGMMA,
    Job,
    candidates,
    record,
)

COMMITTED = Path(__file__).parents[3] / "manifests" / "sm_90a" / "h200"
MEASURED = ("sm90_wgmma", "sm90_splitk", "sm90_oneshot", "sm90_swapab", "sm90_writebound")
FAMILIES = (*MEASURED, "sm90_tokens")
# Two consumers of 64 x 256 and a whole producer warpgroup, three warps of which have nothing to do.
LARGE: Genome = {**SPLITK, "tile_m": 128, "tile_n": 256, "stages": 4, "slices": 8}
COPIED: Genome = {**ONESHOT, "cp_async": True}
PAIRED: Genome = {**WGMMA, "tile_m": 128, "consumers": 2}
LASTING: Genome = READABLE_AHEAD["sm90_writebound"]

JOBS: list[Job] = [
    ("sm90_splitk", SPLITK),
    ("sm90_splitk", {**SPLITK, "slices": 1}),
    ("sm90_splitk", {**SPLITK, "layout": "nn", "split": 1, "run": 4}),
    ("sm90_splitk", LARGE),
    ("sm90_oneshot", ONESHOT),
    ("sm90_oneshot", {**ONESHOT, "layout": "tn", "dtype": "bf16", "tile_m": 128, "split": 1}),
    ("sm90_oneshot", COPIED),
    ("sm90_oneshot", {**COPIED, "layout": "nn", "tile_n": 96, "split": 1, "epilogue": "staged"}),
    ("sm90_swapab", SWAPAB),
    ("sm90_swapab", {**SWAPAB, "split_k": 4}),
    ("sm90_swapab", {**SWAPAB, "layout": "nn", "tile_n": 128, "consumers": 2}),
    ("sm90_wgmma", {**WGMMA, "layout": "nn"}),
    ("sm90_wgmma", {**WGMMA, "split_k": 2}),
    ("sm90_wgmma", {**WGMMA, "layout": "tn", "dtype": "bf16", "tile_n": 128, "epilogue": "bulk"}),
    ("sm90_wgmma", {**PAIRED, "tile_n": 256, "epilogue": "grouped"}),
    ("sm90_wgmma", {**PAIRED, "stages": 2, "ctas_per_sm": 2}),
    ("sm90_tokens", TOKENS),
    ("sm90_tokens", {**TOKENS, "split_k": 4, "epilogue": "staged", "dtype": "bf16"}),
    ("sm90_tokens", {**TOKENS, "layout": "nn", "tile_n": 192, "consumers": 3, "epilogue": "bulk"}),
    ("sm90_writebound", LASTING),
    ("sm90_writebound", {**LASTING, "layout": "nn", "k": 64, "epilogue": "staged"}),
    ("sm90_writebound", {**LASTING, "layout": "tn", "dtype": "bf16", "k": 64, "epilogue": "bulk"}),
    ("sm90_writebound", {**LASTING, "tile_n": 64, "k": 64, "consumers": 3, "stages": 6}),
]
WAIT = "if constexpr (HGP_READS_AHEAD) wait_for_upstream();"
TOGETHER = "if constexpr (HGP_READS_AHEAD) wait_together();"
DOOR = """  if constexpr (kEarly) allow_dependents();
  wait_for_upstream();
  if constexpr (!kEarly) allow_dependents();
"""


def ahead(genome: Genome, early: bool = False) -> Genome:
    return {**genome, "reads_ahead": True, "triggers_early": early}


def name_of(family_name: str, genome: dict[str, Any]) -> str:
    """The last eight digits of a name, by the rule and not by the family's own function."""
    text = json.dumps({"family": family_name, **genome}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def copy_of(genome: Genome) -> str:
    """The instruction that its operands are copied by."""
    return "LDGSTS.BYPASS" if genome.get("cp_async") else "UTMALDG"


def first_in_text(name: str, genome: Genome) -> tuple[str, ...]:
    """What stands before the first wait: in a writebound kernel that of the consumers is first."""
    return () if name == "sm90_writebound" else (copy_of(genome),)


def measured(family_name: str) -> list[SourceKernel]:
    return [each for each in read_source(COMMITTED).kernels if each.family == family_name]


# --- names and records --------------------------------------------------------------------------


def test_the_name_of_a_measured_kernel_is_that_of_its_genome_without_the_gene() -> None:
    genome: Genome = {
        **{"layout": "nn", "dtype": "bf16", "tile_m": 128, "tile_n": 64, "k_slice": 512},
        **{"slab_group": 1, "split": 1, "epilogue": "staged"},
    }
    today = {**genome, "cp_async": False}
    f, name = family("sm90_oneshot"), "sm90_hgemm_nn_bf16_f32acc_oneshot_128x64_69b40fc5"
    assert name[-8:] == name_of("sm90_oneshot", genome)
    assert f.kernel_name({**today, "reads_ahead": False, "triggers_early": False}) == name
    for early in ({}, {"triggers_early": True}):
        other = f.kernel_name(ahead(today, bool(early)))
        named = {**genome, "reads_ahead": True, **early}
        assert other == name[:-8] + name_of("sm90_oneshot", named) != name


@pytest.mark.parametrize("name", MEASURED)
def test_every_measured_kernel_keeps_its_name(name: str) -> None:
    kernels = [each for each in measured(name) if not each.genome["reads_ahead"]]
    assert len(kernels) > 50
    for kernel in kernels:
        later = {"reads_ahead", "triggers_early"}
        later |= set() if kernel.genome.get("cp_async") else {"cp_async"}
        before = {gene: v for gene, v in kernel.genome.items() if gene not in later}
        assert kernel.name[-8:] == name_of(name, before)
        assert family(name).kernel_name(kernel.genome) == kernel.name
        assert family(name).kernel_name(ahead(kernel.genome)) != kernel.name


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_record_says_so_and_has_one_warp_more(name: str, early: bool) -> None:
    """The warp lets dependents start; where the producer is a warpgroup, it has one to spare."""

    def spare(genome: Genome) -> bool:
        if name in ("sm90_wgmma", "sm90_tokens"):
            return int(genome["consumers"]) > 1 and genome["ctas_per_sm"] == 1
        alone = name == "sm90_splitk" and genome["ctas_per_sm"] == 1
        return alone and (genome["tile_m"], genome["tile_n"]) == (128, 256)

    f = family(name)
    plain = [{**g, "reads_ahead": False} for listed, g in candidates() if listed == name]
    both = [(genome, ahead(genome, early)) for genome in plain]
    pairs = [(genome, other) for genome, other in both if f.is_valid(other)]
    if name == "sm90_splitk":
        pairs.append((LARGE, ahead(LARGE, early)))
    assert len(pairs) > 20
    for genome, other in pairs:
        before, after = f.fields(genome), f.fields(other)
        assert "reads_ahead" not in before and after["reads_ahead"] is True
        assert (record(before).reads_ahead, record(after).reads_ahead) == (False, True)
        assert (record(before).triggers_early, record(after).triggers_early) == (False, early)
        assert f.is_valid({**genome, "triggers_early": True}) is False
        assert after["block"] == before["block"] + 32 * (not spare(genome))
        same = before.keys() - {"name", "symbol", "genome", "block"}
        assert {field: after[field] for field in same} == {field: before[field] for field in same}


def test_blocks_of_kernels_that_read_ahead() -> None:
    blocks = {job: family(name).fields(ahead(g))["block"] for job, (name, g) in enumerate(JOBS)}
    swapped = [192, 192, 192, 384, 160, 288, 160, 160, 192, 192, 320]
    assert [*blocks.values()] == [
        *(*swapped, 192, 192, 192, 384, 320),
        *(192, 192, 512),
        *(320, 320, 320, 448),
    ]


def test_families_without_the_gene_have_no_such_field() -> None:
    for name in BASES.keys() - set(FAMILIES):
        assert "reads_ahead" not in family(name).genes
        assert "reads_ahead" not in family(name).fields(BASES[name])


# --- cubins -------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(("name", "genome"), JOBS)
def test_only_copies_of_a_and_b_stand_before_the_wait(
    name: str, genome: Genome, early: bool
) -> None:
    """And leave for the next grid, where the genome says so."""
    one = compiler.build_one(name, ahead(genome, early))
    found = census(one.cubin)
    copy, leave = copy_of(genome), {"PREEXIT"} if early else set()
    assert set(found.early) - leave == set(first_in_text(name, genome))
    # A producer of splitk only loads, and ends without a wait of its own.
    assert set(found.unwaited) - {"EXIT"} == {copy} | leave
    assert ("EXIT" in found.unwaited) == (name == "sm90_splitk")
    # The warp at the door and the writers wait, each in its own code; the door opens once.
    assert found.count("ACQBULK") >= 2 and found.count("PREEXIT") == 1
    verdict = binary.check(one.entry_fields, one.cubin)
    assert verdict.passed, verdict.detail
    silent = {field: v for field, v in one.entry_fields.items() if field != "reads_ahead"}
    verdict = binary.check(silent, one.cubin)
    words = ", ".join(sorted({copy} | leave | ({"EXIT"} if name == "sm90_splitk" else set())))
    assert verdict.status is Status.BINARY
    assert verdict.detail == f"upstream: {words} before the grid ahead has ended"


@pytest.mark.parametrize(
    ("name", "genome"),
    [("sm90_swapab", SWAPAB), ("sm90_wgmma", WGMMA), ("sm90_tokens", TOKENS)],
)
def test_idle_lanes_do_not_wait_before_the_one_that_copies(name: str, genome: Genome) -> None:
    """The wait holds a whole warp: idle lanes that came to it first stopped the copies (1.22)."""
    words = [
        grid_wait.word(one) for one in disassemble(compiler.build_one(name, ahead(genome)).cubin)
    ]
    before = [one for one, then in itertools.pairwise(words) if then == "ACQBULK"]
    assert before.count("WARPSYNC") == 1


@pytest.mark.parametrize(
    ("name", "genome", "early"),
    [
        ("sm90_splitk", SPLITK, "EXIT, LDG, STG"),  # its sums over slices read as well
        ("sm90_oneshot", ONESHOT, "EXIT, STG"),
        ("sm90_oneshot", COPIED, "EXIT, STG"),
        ("sm90_swapab", SWAPAB, "EXIT, STG"),
        ("sm90_wgmma", WGMMA, "EXIT, STG"),
        ("sm90_tokens", TOKENS, "EXIT, STG"),
        ("sm90_writebound", LASTING, "EXIT, STG"),
    ],
)
def test_a_kernel_that_also_writes_early_is_refused(name: str, genome: Genome, early: str) -> None:
    genome = ahead(genome)
    source, fields = compiler.render(name, genome), family(name).fields(genome)
    assert source.count(WAIT) > 0
    without = source.replace(WAIT, "").replace(TOGETHER, "")
    image, _ = compiler.compile_source(without, fields["symbol"])
    verdict = binary.check(fields, image)
    assert verdict.status is Status.BINARY
    assert verdict.detail == f"upstream: {early} before the grid ahead has ended"


@pytest.mark.parametrize(
    "door", ["  allow_dependents();\n  wait_for_upstream();\n", "  allow_dependents();\n"]
)
@pytest.mark.parametrize(
    ("name", "genome"),
    [*((name, READABLE_AHEAD[name]) for name in FAMILIES), ("sm90_oneshot", COPIED)],
)
def test_a_door_that_opens_without_having_waited_is_refused(
    name: str, genome: Genome, door: str
) -> None:
    """The story: by the order of the text the wait of the writers, which stands first, was taken
    for the door's, and both doors passed. They let two grids ahead still run."""
    genome = ahead(genome)
    source, fields = compiler.render(name, genome), family(name).fields(genome)
    assert source.count(DOOR) == 1
    image, _ = compiler.compile_source(source.replace(DOOR, door), fields["symbol"])
    assert census(image).early == first_in_text(name, genome)
    verdict = binary.check(fields, image)
    assert verdict.status is Status.BINARY
    assert verdict.detail == "upstream: PREEXIT before the grid ahead has ended"


def test_writers_whose_wait_stands_elsewhere_in_the_text_are_refused() -> None:
    """The door of this one comes first in the text."""
    genome = ahead({**ONESHOT, "split": 1})
    source, fields = compiler.render("sm90_oneshot", genome), family("sm90_oneshot").fields(genome)
    first = "if (threadIdx.x < 32 && elected()) {\n    prefetch_map(&map_a);"
    door = "if (threadIdx.x >= kThreads) keep_door<HGP_TRIGGERS_EARLY>();\n  "
    assert source.count(first) == 1 and source.count(WAIT) == 2
    changed = source.replace(WAIT, "").replace(first, door + first)
    image, _ = compiler.compile_source(changed, fields["symbol"])
    found = census(image)
    verdict = binary.check(fields, image)
    assert (found.early, verdict.status) == ((), Status.BINARY)
    assert verdict.detail == "upstream: STG before the grid ahead has ended"


def test_the_field_excuses_no_copy_through_l1() -> None:
    """A line of L1 may be of before the grid ahead wrote it; cp.async.ca leaves one there."""
    genome = ahead(COPIED)
    source, fields = compiler.render("sm90_oneshot", genome), family("sm90_oneshot").fields(genome)
    assert source.count("cp.async.cg.") == 1
    through = source.replace("cp.async.cg.", "cp.async.ca.")
    image, _ = compiler.compile_source(through, fields["symbol"])
    verdict = binary.check(fields, image)
    assert verdict.status is Status.BINARY
    assert verdict.detail == "upstream: LDGSTS before the grid ahead has ended"


def test_the_field_excuses_no_load_to_registers() -> None:
    source = compiler.render("sm90_direct", DIRECT)
    wait, later = "  wait_for_upstream();\n  allow_dependents();\n", "  const TileMeeting meeting{"
    assert wait in source and later in source
    fields = {**family("sm90_direct").fields(DIRECT), "reads_ahead": True}
    changed = source.replace(wait, "").replace(later, wait + later)
    image, _ = compiler.compile_source(changed, fields["symbol"])
    assert binary.check(fields, image).detail == "upstream: LDG before the grid ahead has ended"


@pytest.mark.parametrize("name", MEASURED)
def test_a_measured_kernel_is_the_same_to_the_byte(name: str) -> None:
    """Of those that `test_build` leaves out."""
    kernels = [each for each in measured(name) if not each.genome["reads_ahead"]]
    kernel = kernels[len(kernels) // 2]
    one = compiler.build_one(name, kernel.genome)
    assert hashlib.sha256(one.cubin).hexdigest() == kernel.id == one.entry_fields["id"]
    assert one.entry_fields["name"] == kernel.name
