"""A kernel of free source has one genome, its lineage, and what was judged is what is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, free_sources
from hgemm_packs.generator.compile.candidate import Candidate, CandidateError, candidate
from hgemm_packs.generator.compile.free_sources import Lineage
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Status
from hgemm_packs.generator.families import FAMILIES, InvalidGenome, family, makes
from hgemm_packs.generator.families.free.family import FAMILY, names, read
from hgemm_packs.generator.tables import table
from hgemm_packs.generator.workers import builder
from hgemm_packs.problem import Problem
from tests.generator.kernels import sources_at
from tests.generator.written import RECORD, TINY

PROBLEM = Problem(48, 40, 64, "nt", "f16")
LINEAGE = Lineage("org/model-1", "a" * 64, "none", "b" * 64)


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of free sources, of a copy of all sources."""
    return sources_at(tmp_path / "kernels", monkeypatch) / "free"


def tiny(code: str = TINY, **record: Any) -> Candidate:
    return candidate("tiny", code, {**RECORD, **record})


def admit(code: str = TINY, **record: Any) -> dict[str, Any]:
    made = tiny(code, **record)
    return dict(free_sources.admit("tiny", code, made, PROBLEM, LINEAGE))


def test_the_kernel_is_the_one_that_was_judged_and_carries_its_lineage() -> None:
    genome = admit()
    judged = tiny()
    built = compiler.build_one(FAMILY.name, genome)
    fields = built.entry_fields
    assert fields["id"] == compiler.build_source(judged.source, judged.fields).entry_fields["id"]
    own = {"name", "family", "genome", "id", "regs"}
    assert {k: v for k, v in fields.items() if k not in own} == {
        k: v for k, v in judged.fields.items() if k not in own
    }
    assert fields["name"].startswith("sm90_hgemm_nt_f16_f32acc_free_16x8_")
    assert fields["genome"] == {
        "layout": "nt",
        "dtype": "f16",
        "source": "tiny",
        "sha256": genome["sha256"],
        "by": "org_model-1",
        "asked": "a" * 64,
        "parent": "none",
        "judged": "b" * 64,
    }
    assert "tiny" in names() and names() == sorted(names())
    assert read("tiny").problem == PROBLEM
    assert builder.inspect(compiler.as_kernel(built)).passed


def test_only_the_genome_of_a_committed_source_is_valid() -> None:
    genome = admit()
    assert makes(FAMILY.name, genome) and family(FAMILY.name) is FAMILY
    assert FAMILY.name not in FAMILIES, "no search knows it"
    for gene in genome:
        changed = {**genome, gene: "c" * 64}
        assert not makes(FAMILY.name, changed), gene
        assert not makes(FAMILY.name, {k: v for k, v in genome.items() if k != gene}), gene
    assert not makes(FAMILY.name, {**genome, "tile_m": 64})
    for name in ("../sm90/wgmma", "", "a" * 65, "other"):
        with pytest.raises(InvalidGenome, match=r"no name of a source|no source other\.cu"):
            FAMILY.validate({**genome, "source": name})


@pytest.mark.parametrize("what", ["tiny.cu", "tiny.json"])
def test_a_source_that_was_changed_since_is_no_kernel(sources: Path, what: str) -> None:
    genome = admit()
    usable = table.make_usable(lambda jobs: [compiler.build_one(*job) for job in jobs])
    fields = compiler.build_one(FAMILY.name, genome).entry_fields
    assert usable({fields["id"]: fields}) == {fields["id"]}
    if what == "tiny.cu":
        (sources / what).write_text(TINY.replace("acc[0]", "acc[1]"), encoding="utf-8")
    else:
        document = json.loads((sources / what).read_bytes())
        document["record"]["dims"]["m"]["max"] += 16
        (sources / what).write_text(json.dumps(document), encoding="utf-8")
    compiler.expand_source.cache_clear()
    words = "sm90_free: tiny.cu or its launch record is not what was judged"
    with pytest.raises(InvalidGenome, match=f"^{words}$"):
        compiler.build_one(FAMILY.name, genome)
    assert usable({fields["id"]: fields}) == set(), "and leaves the table"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"problem": [1, 2]}', "TypeError"),
        ('{"problem": [8, 8, 8, "nt", "f16"], "genome": {}, "record": {}}', "no whole genome"),
        ('{"problem": [8, 8, 8, "nt", "f16"], "genome": 7, "record": {}}', "no whole genome"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name(sources: Path, text: str, words: str) -> None:
    genome = admit()
    (sources / "tiny.json").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidGenome, match=rf"^sm90_free: tiny.*{words}"):
        FAMILY.validate(genome)


def test_the_search_space_takes_it_for_the_sizes_of_its_record() -> None:
    choice = Choice.of(FAMILY.name, admit())
    assert Space(PROBLEM, only=[choice]).core == (choice,)
    assert Space(Problem(49, 40, 64, "nt", "f16"), only=[choice]).core == ()
    assert choice not in Space(PROBLEM).core and not Space(PROBLEM).contains(choice)


def test_what_is_not_admitted() -> None:
    with pytest.raises(
        CandidateError, match=r"^tiny: tiny takes M of 64\.\.64 in steps of 16, not 48$"
    ):
        admit(dims={"m": {"min": 64, "max": 64, "multiple_of": 16}})
    with pytest.raises(CandidateError, match=r"^tiny: free sources compute products alone$"):
        admit(epilogue="bias", param_layout="ptr_v1_addend")
    genome = admit()
    later = LINEAGE._replace(judged="d" * 64)
    again = free_sources.admit("tiny", TINY, tiny(), PROBLEM, later)
    assert again == genome, "it was judged twice, and is one kernel"
    with pytest.raises(
        CandidateError, match=r"^tiny: another source has the name: none is changed$"
    ):
        admit(TINY + "\n")


@pytest.mark.parametrize("gate", free_sources.GATES)
def test_a_source_that_a_gate_refused_or_did_not_see_is_not_admitted(gate: str) -> None:
    passed = dict.fromkeys(free_sources.GATES, "OK")
    free_sources.check_gates("tiny", {**passed, "timing": "NOISE"})
    with pytest.raises(CandidateError, match=f"^tiny: the {gate} gate: NUMERIC$"):
        free_sources.check_gates("tiny", {**passed, gate: "NUMERIC"})
    with pytest.raises(CandidateError, match=f"^tiny: the {gate} gate: was not asked$"):
        free_sources.check_gates("tiny", {k: v for k, v in passed.items() if k != gate})


def test_a_run_asks_the_static_gate_of_a_free_source() -> None:
    """Families' sources are ours; a free source is read before it is run, whoever admitted it."""
    kept = TINY.replace('extern "C"', 'static __device__ int kept;\nextern "C"')
    verdict = builder.inspect(compiler.as_kernel(compiler.build_one(FAMILY.name, admit(kept))))
    assert (verdict.gate, verdict.status) == ("static", Status.STATIC)
    assert verdict.detail.startswith("global: kept is neither constant nor shared")
