"""Epilogues: every family has every one but for gated columns, under another name and record; plain
products are what they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core import space
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import FAMILIES, InvalidGenome, computed, family
from hgemm_packs.generator.families.computed import COMPUTES
from hgemm_packs.generator.gates import binary
from hgemm_packs.pack.manifest import PARAM_LAYOUTS, WITH_ADDEND
from hgemm_packs.problem import EPILOGUES, WITHOUT_ADDEND, Problem
from tests.generator.kernels import BASES, record

ADDING = [name for name in EPILOGUES if name not in WITHOUT_ADDEND]
#: Of each family that has gated kernels, a genome of one.
GATED = {
    name: computed.compute_also({**genome, **change}, "gated_silu")
    for name, genome, change in (
        ("sm90_wgmma", BASES["sm90_wgmma"], {"cluster_m": 2}),
        ("sm90_splitk", BASES["sm90_splitk"], {}),
        ("sm90_oneshot", BASES["sm90_oneshot"], {}),
        ("sm90_swapab", BASES["sm90_swapab"], {}),
        ("sm90_writebound", BASES["sm90_writebound"], {"epilogue": "bulk"}),
        ("sm90_gemv", BASES["sm90_gemv"], {}),
        ("sm90_tokens", BASES["sm90_tokens"], {"cluster_m": 2}),
    )
}
KERNELS = Path(__file__).parents[3] / "manifests" / "sm_90a" / "h200" / "kernels.json"


@pytest.mark.parametrize("name", FAMILIES)
def test_records(name: str) -> None:
    plain = family(name).fields(BASES[name])
    names = {plain["name"]}
    for epilogue in ADDING:
        genome = computed.compute_also(BASES[name], epilogue)
        fields = family(name).fields(genome)
        entry = record(fields)
        assert (entry.epilogue, entry.genome) == (epilogue, genome)
        assert entry.param_layout == WITH_ADDEND[plain["param_layout"]]
        assert entry.param_sizes == (*PARAM_LAYOUTS[plain["param_layout"]], 8)
        names.add(entry.name)
        kept = {"name", "symbol", "genome", "epilogue", "param_layout", "param_sizes"}
        assert all(fields[each] == plain[each] for each in fields.keys() - kept)
        assert entry.admits(Problem(8, 64, 512, "nn", "f16")) is not None
        with pytest.raises(PackError, match="bad_epilogue"):
            record(fields, epilogue="none")
    assert len(names) == len(ADDING) + 1
    assert computed.compute_also(genome, "none") == BASES[name]


@pytest.mark.parametrize("value", ["none", "relu", 1, ""])
def test_what_is_no_epilogue(value: str | int) -> None:
    genome = {**BASES["sm90_gemv"], COMPUTES: value}
    with pytest.raises(InvalidGenome, match=r"sm90_gemv: computes=.* is not one of"):
        family("sm90_gemv").validate(genome)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_sample_compiles_and_passes_the_binary_gate(name: str) -> None:
    """One of each family by turns, bases of tests being small enough for any."""
    f = FAMILIES[name]
    kinds = (("bias", "f16"), ("bias_gelu", "bf16"), ("bias_silu", "f16"), ("residual", "bf16"))
    for epilogue, dtype in kinds:
        genome = computed.compute_also({**BASES[name], "dtype": dtype}, epilogue)
        one = compiler.build_one(name, genome)
        verdict = binary.check(one.entry_fields, one.cubin)
        assert verdict.passed, verdict.detail
        plain = compiler.build_one(name, computed.compute_also(genome, "none"))
        assert one.entry_fields["id"] != plain.entry_fields["id"]
    assert "HGP_ACTIVATION gelu\n" in compiler.render(f.name, {**genome, COMPUTES: "bias_gelu"})
    assert "#define HGP_ACTIVATION" not in compiler.render(f.name, BASES[name])


@pytest.mark.parametrize("name", FAMILIES)
def test_plain_products_keep_their_cubins(name: str) -> None:
    """Those of the committed manifest, by their hashes: what was measured is what is built."""
    known = [each for each in json.loads(KERNELS.read_text())["records"] if each["family"] == name]
    assert known
    for each in known[:: max(1, len(known) // 3)][:4]:
        one = compiler.build_one(name, family(name).whole(each["genome"]))
        assert one.entry_fields["id"] == each["id"], each["name"]


@pytest.mark.parametrize("epilogue", ["none", *ADDING])
def test_a_problem_gets_kernels_of_its_epilogue_alone(epilogue: str) -> None:
    problem = Problem(16, 512, 1024, "nt", "bf16", epilogue=epilogue)
    found = space.Space(problem)
    plain = space.Space(Problem(16, 512, 1024, "nt", "bf16"))
    assert len(found.core) == len(plain.core) > 100
    for choice, other in zip(found.core, plain.core, strict=True):
        assert computed.epilogue_of(choice.genome) == epilogue
        assert computed.compute_also(choice.genome, "none") == dict(other.genes)
        assert found.contains(choice) and plain.contains(choice) == (epilogue == "none")
        assert found.contains(other) == (epilogue == "none")
    choice = found.core[0]
    rest = {g: v for g, v in choice.genes if g not in ("layout", "dtype", COMPUTES)}
    assert found.parse({"family": choice.family, "genome": rest}) == choice
    wrong = next(each for each in EPILOGUES if each != epilogue)
    assert not space.admits(
        Choice.of(choice.family, computed.compute_also(choice.genome, wrong)), problem
    )


@pytest.mark.parametrize("name", GATED)
def test_records_of_gated_kernels(name: str) -> None:
    """The parameters of a plain kernel; N in steps that leave C's rows aligned; and a map of B that
    brings 8 rows of one half, then 8 of the other."""
    plain = family(name).fields(computed.compute_also(GATED[name], "none"))
    entry = record(family(name).fields(GATED[name]))
    assert (entry.epilogue, entry.param_layout) == ("gated_silu", plain["param_layout"])
    assert entry.n.multiple_of == 16 and entry.n.max % 16 == 0
    boxes = {spec.operand: (spec.row_group, spec.box[1]) for spec in entry.tma}
    assert boxes.keys() == {"a", "b", "c"} & {spec["operand"] for spec in plain["tma"]}
    if entry.tma:
        assert boxes.pop("b") == (16, entry.grid.tile_n // entry.cluster[0])
        assert all(group == 0 for group, _ in boxes.values())
    for layout in ("nn", "tn", "tt"):
        other = {**GATED[name], "layout": layout, "mi": 2} if name == "sm90_gemv" else GATED[name]
        allowed = name == "sm90_gemv" and layout == "nn"
        assert family(name).is_valid({**other, "layout": layout}) == allowed
    if "grouped" in family(name).genes.get("epilogue", ()):
        grouped = {**GATED[name], "epilogue": "grouped"}
        with pytest.raises(InvalidGenome, match="columns come in one order alone"):
            family(name).validate(grouped)


@pytest.mark.parametrize("name", GATED)
def test_gated_kernels_compile_and_pass_the_binary_gate(name: str) -> None:
    for dtype in ("f16", "bf16"):
        one = compiler.build_one(name, {**GATED[name], "dtype": dtype})
        verdict = binary.check(one.entry_fields, one.cubin)
        assert verdict.passed, verdict.detail
    assert "#define HGP_GATE silu\n" in compiler.render(name, GATED[name])


@pytest.mark.parametrize("genome", [BASES["sm90_direct"]])
def test_a_family_says_that_it_has_no_gated_kernels(genome: dict[str, int | str | bool]) -> None:
    with pytest.raises(InvalidGenome, match="sm90_direct: no gated_silu kernels"):
        family("sm90_direct").validate(computed.compute_also(genome, "gated_silu"))


@pytest.mark.parametrize("m", [1, 16, 64, 4096])
def test_gated_problems_are_searched_by_the_families_that_can(m: int) -> None:
    problem = Problem(m, 2048, 1024, "nt", "bf16", epilogue="gated_silu")
    found = space.Space(problem)
    families = {choice.family for choice in found.core}
    assert "sm90_wgmma" in families and "sm90_direct" not in families
    assert ("sm90_swapab" in families) == (m <= 256)
    assert ("sm90_gemv" in families) == (m <= 16)
    assert all(computed.epilogue_of(choice.genome) == "gated_silu" for choice in found.core[::97])
    assert len(found.core) > 100
    assert not space.Space(Problem(m, 2056, 1024, "nt", "bf16", epilogue="gated_silu")).core
