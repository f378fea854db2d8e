"""Epilogues: every family has every one, under another name and record; plain products are what
they were."""

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
from hgemm_packs.problem import EPILOGUES, Problem
from tests.generator.kernels import BASES, record

KERNELS = Path(__file__).parents[3] / "manifests" / "sm_90a" / "h200" / "kernels.json"


@pytest.mark.parametrize("name", FAMILIES)
def test_records(name: str) -> None:
    plain = family(name).fields(BASES[name])
    names = {plain["name"]}
    for epilogue in computed.TABLE:
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
    assert len(names) == len(EPILOGUES)
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
    for epilogue, dtype in (("bias", "f16"), ("bias_gelu", "bf16"), ("bias_silu", "f16")):
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


@pytest.mark.parametrize("epilogue", EPILOGUES)
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
