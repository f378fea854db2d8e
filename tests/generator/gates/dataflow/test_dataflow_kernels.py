"""The data-flow gate on whole kernels: what families make passes, by their exceptions alone where
they have any; what the red team hides is found."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.cache import ptx_dir
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Status
from hgemm_packs.generator.families import BATCHED, FAMILIES, GROUPED, family
from hgemm_packs.generator.families.base import Genome
from hgemm_packs.generator.families.computed import COMPUTES, GATED, TABLE
from hgemm_packs.generator.gates.dataflow import exceptions, gate
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.workers import builder

pytestmark = pytest.mark.usefixtures("kept")

ALL = {**FAMILIES, **GROUPED, **BATCHED}
MANIFESTS = Path(__file__).resolve().parents[4] / "manifests" / "sm_90a"
EVERY = 100  # of the committed kernels one in so many


def drawn(name: str, epilogue: str | None, seed: int) -> Genome:
    """A genome of a family, whatever it is, with this epilogue."""
    rng = random.Random(f"{name} {epilogue} {seed}")
    one = family(name)
    while True:
        genome: dict[str, Any] = {gene: rng.choice(values) for gene, values in one.genes.items()}
        if epilogue is not None:
            genome |= {COMPUTES: epilogue} | ({"layout": "nt"} if epilogue == GATED else {})
        if one.is_valid(genome):
            return genome


def ptx_of(name: str, genome: Genome) -> tuple[Mapping[str, Any], str]:
    """The fields of a kernel with its PTX, whether or not its build would be refused."""
    fields = family(name).fields(genome)
    try:
        return fields, compiler._compile(compiler.render(name, genome), fields["symbol"])[2]
    except compiler.BuildError:
        pytest.skip("spills")


def epilogues(name: str) -> list[str | None]:
    one = ALL[name]
    if name in GROUPED:
        return [None]
    if one.batched:
        return [None, "residual"]
    return [None, *(each for each in TABLE if each != GATED or one.gated is not None)]


@pytest.mark.parametrize(
    ("name", "epilogue", "seed"),
    [
        (name, epilogue, seed)
        for name in ALL
        for epilogue in epilogues(name)
        for seed in range(3 if epilogue is None else 1)
    ],
)
def test_what_families_make_passes(name: str, epilogue: str | None, seed: int) -> None:
    assert gate.check_ptx(*ptx_of(name, drawn(name, epilogue, seed))).detail == ""


def committed(every: int = EVERY) -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    for folder in ("h200", "h200_batched", "h200_grouped"):
        document = json.loads((MANIFESTS / folder / "kernels.json").read_text())
        common = document["constants"]
        for record in document["records"]:
            genome = {**common.get("genome", {}), **record["genome"]}
            found.append((record.get("family") or common["family"], genome))
    return found[::every]


@pytest.mark.parametrize(("name", "genome"), committed())
def test_committed_kernels_pass(name: str, genome: Genome) -> None:
    assert gate.check_ptx(*ptx_of(name, family(name).whole(genome))).detail == ""


GROUPED_GENOME = drawn("sm90_grouped", None, 0)
WIDE = next(genome for _, genome in committed(1) if genome.get("wide") and genome["split_k"] == 4)
RESIDUAL: Genome = {
    "layout": "nt", "dtype": "bf16", "tile_m": 24, "tile_n": 128, "tile_k": 64, "stages": 3,
    "consumers": 2, "split_k": 2, "persistent": False, "ctas_per_sm": 1, "reads_ahead": True,
    "triggers_early": False, COMPUTES: "residual",
}  # fmt: skip
GELU: Genome = {
    "layout": "nt", "dtype": "f16", "tokens": 8, "mi": 1, "warps_n": 1, "warps_k": 4, "unroll": 1,
    "stages": 1, "ahead": False, "cluster_k": 4, "streaming": False, "fetch": 64,
    COMPUTES: "bias_gelu",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "genome", "exception", "rule"),
    [
        ("sm90_grouped", GROUPED_GENOME, exceptions.LISTS, "arithmetic: bits of"),
        ("sm90_swapab", RESIDUAL, exceptions.TURNS, "arithmetic: bits of"),
        ("sm90_unaligned", WIDE, exceptions.SHIFTS, "bits: a sum in 'cvt.u64.u32"),
        (
            "sm90_unaligned",
            WIDE,
            exceptions.ALIGNS,
            "address: of A, B or C as a number in 'cvt.u32",
        ),
        ("sm90_gemv", GELU, exceptions.FINISHES, "arithmetic: a sum in 'mul.f32"),
    ],
)
def test_an_exception_is_needed_and_no_other_kernel_has_it(
    name: str, genome: Genome, exception: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields, ptx = ptx_of(name, genome)
    assert exception in exceptions.declared(fields)
    assert gate.check_ptx(fields, ptx).detail == ""
    foreign = {**fields, "family": "foreign"}
    assert exceptions.declared(foreign) == frozenset()
    assert gate.check_ptx(foreign, ptx).status is Status.DATAFLOW
    others = exceptions.declared(fields) - {exception}
    monkeypatch.setattr(gate, "declared", lambda _: others)
    verdict = gate.check_ptx(fields, ptx)
    assert verdict.status is Status.DATAFLOW
    assert rule in verdict.detail


def test_exceptions_are_those_of_the_reviewed_list() -> None:
    """Each has its reason in docs/decisions/generator.md."""
    text = (MANIFESTS.parents[1] / "docs" / "decisions" / "generator.md").read_text()
    named = {name: one.exceptions for name, one in ALL.items() if one.exceptions}
    assert named == {
        "sm90_wgmma": ("lays_tiles", "goes_round"),
        "sm90_splitk": ("lays_tiles",),
        "sm90_oneshot": ("lays_tiles",),
        "sm90_writebound": ("lays_tiles",),
        "sm90_direct": ("lays_tiles",),
        "sm90_gemv": ("lays_tiles",),
        "sm90_swapab": ("turns_residual", "lays_tiles"),
        "sm90_tokens": ("turns_residual", "lays_tiles", "goes_round"),
        "sm90_batched": ("turns_residual", "lays_tiles", "goes_round"),
        "sm90_grouped": ("lists_groups", "reads_groups"),
        "sm90_unaligned": ("shifts_rows", "lays_tiles", "asks_alignment"),
        "sm90_elements": ("asks_alignment",),
    }
    for exception in ("finishes", *{one for names in named.values() for one in names}):
        assert f"`{exception}`" in text


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("sum_in_order_of_arrival", "branch: whether a word is absent decides on 'add.f32"),
        ("memo_in_the_workspace", "compare: a word of the workspace in 'setp.eq"),
        ("unordered_sum", "atomic: a sum in 'atom.shared.add.f32"),
        ("reads_c", "load: C is written and never read, in"),
        ("truncated", "rounding: a sum in 'cvt.rz.f16.f32"),
        ("inputs_flushed", "bits: bits of A in 'and.b32"),
        ("parts_in_eleven_bits", "arithmetic: a sum in 'mul.rn.f32"),
        ("parts_as_operands", "product: a rounded sum in 'mma.sync"),
    ],
)
def test_what_cases_hide_is_named(case: str, told: str) -> None:
    (one,) = (each.candidate for each in corpus.load() if each.name == case)
    assert one is not None
    ptx = compiler._compile(one.source, str(one.fields["symbol"]))[2]
    assert told in gate.check_ptx(one.fields, ptx).detail


def test_the_ptx_is_that_of_the_kernel_s_own_compilation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From the cache the second time; a damaged entry is made again; a source of another kernel is
    refused."""
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path))
    choice = Choice.of("sm90_gemv", {**GELU, COMPUTES: "bias"})
    source = compiler.render(choice.family, choice.genome)
    built = compiler.build_one(choice.family, choice.genome)
    # The gates compiled every kernel a second time.
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "_compile", None)
        ptx = compiler.ptx_of(source, built.entry_fields)
    assert f".visible .entry {choice.name}(" in ptx
    assert gate.check(built.entry_fields, source).passed
    (entry,) = (path for path in ptx_dir().glob("*/*") if path.is_file())
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-1])
    assert compiler.ptx_of(source, built.entry_fields) == ptx
    assert entry.read_bytes() == whole
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "_compile", None)
        assert compiler.ptx_of(source, built.entry_fields) == ptx
    other = {**built.entry_fields, "id": "0" * 64}
    verdict = gate.check(other, source)
    assert verdict.detail == f"unreadable: {choice.name}: its source compiles to another cubin"


def test_a_family_s_kernel_is_followed_by_the_builder() -> None:
    kernel = builder.make(Choice.of("sm90_gemv", {**GELU, COMPUTES: "bias"}))
    assert isinstance(kernel, CompiledKernel)
    verdict = builder.inspect(kernel)
    assert (verdict.gate, verdict.status) == ("coverage", Status.OK)
    assert verdict.evidence["binary"]["mma"]
    lied = replace(kernel, fields={**kernel.fields, "dtype": "bf16"})
    assert builder.inspect(lied).gate == "binary"


def test_a_cluster_that_no_instruction_asks_for_is_refused() -> None:
    fields, ptx = ptx_of("sm90_writebound", drawn("sm90_writebound", None, 1))
    assert fields["cluster"] == [1, 1, 1]
    assert gate.check_ptx(fields, ptx).passed
    verdict = gate.check_ptx({**fields, "cluster": [2, 1, 1]}, ptx)
    assert verdict.status is Status.DATAFLOW
    assert verdict.detail == "cluster: the record has one, and no instruction asks for it"


def test_a_persistent_kernel_without_a_cluster_asks_for_none() -> None:
    """The story: tiles were dealt by cluster number, and a dependent launch is in pairs."""
    made = next(x.candidate for x in corpus.load() if x.name == "pairs_by_clusterid")
    assert made is not None
    fields = compiler.build_source(made.source, made.fields).entry_fields
    told = f"{gate.PAIRED} 'mov.u32 %r516, %clusterid.x'"
    assert gate.check(fields, made.source).detail == told
    fields, ptx = ptx_of("sm90_writebound", drawn("sm90_writebound", None, 1))
    for text in ("mov.u32 %r9000, %nclusterid.x", "barrier.cluster.arrive.aligned"):
        alone = gate.check_ptx(fields, ptx.replace("ret;", f"{text};\n\tret;"))
        assert f"{gate.PAIRED} '{text}'" in alone.detail
