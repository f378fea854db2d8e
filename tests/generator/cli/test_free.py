"""`generate admit` takes sources that an evaluator's answers prove; `generate measure free` times
them beside the table's kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.cli.rows import choices_by_problem
from hgemm_packs.generator.compile import free_sources
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.families.free.family import names, read
from hgemm_packs.problem import Problem
from tests import packs
from tests.generator.command import generate
from tests.generator.kernels import DIRECT, sources_at
from tests.generator.written import RECORD, TINY

QUICK = ("sm90_direct", DIRECT)
PROBLEM = Problem(256, 512, 1024, "nt", "f16")


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = sources_at(tmp_path / "kernels", monkeypatch) / "free"
    for path in folder.glob("*"):
        path.unlink()
    return folder


def answer(candidate: Candidate, status: str = "OK", **gates: str) -> dict[str, Any]:
    """A line of an evaluator's file."""
    passed = dict.fromkeys((*free_sources.GATES, "timing"), "OK") | gates
    return {
        "problem": [256, 512, 1024, "nt", "f16"],
        "epilogue": "none",
        "candidate": candidate.document(),
        "answer": {
            "status": status,
            "gates": [{"gate": gate, "status": said} for gate, said in passed.items()],
        },
    }


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_only_what_every_gate_passed_and_beat_torch_is_taken(tmp_path: Path) -> None:
    won = Candidate.of_source(TINY, RECORD, "tiny")
    slow, wrong = (Candidate.of_source(TINY + "\n" * i, RECORD, "tiny") for i in (1, 2))
    family = Candidate.of_genome(*QUICK)
    few_rows = {**RECORD["dims"], "m": {"min": 16, "max": 128, "multiple_of": 16}}
    out_of_reach = Candidate.of_source(TINY, {**RECORD, "dims": few_rows}, "tiny")
    answers = written(
        tmp_path / "answers.jsonl",
        answer(won),
        answer(slow, "SLOWER", timing="SLOWER"),
        answer(wrong, numeric="NUMERIC"),
        answer(family),
        answer(out_of_reach),
    )
    options = ("--by", "org/model", "--asked", "f" * 64, "--parent", "e" * 64)
    code, out, err = generate("admit", answers, *options)
    assert (code, err) == (0, "")

    def name(one: Candidate) -> str:
        return f"k256x512x1024_nt_f16_{one.key[:8]}"

    genome = read(name(won)).genome
    assert out.splitlines() == [
        f"taken: {name(won)}, sha256 {genome['sha256']}",
        f"refused: {name(slow)}: SLOWER, which is no win over torch",
        f"refused: {name(wrong)}: the numeric gate: NUMERIC",
        f"refused: {QUICK[0]}: the kernel of a family, which searches know",
        f"refused: {name(out_of_reach)}: tiny takes M of 16..128 in steps of 16, not 256",
    ]
    assert names() == [name(won)]
    assert (genome["by"], genome["asked"], genome["parent"]) == ("org_model", "f" * 64, "e" * 64)


def test_a_file_of_something_else_is_a_wrong_request(tmp_path: Path) -> None:
    answers = written(tmp_path / "answers.jsonl", {"header": {}})
    code, out, err = generate("admit", answers, "--by", "hand")
    assert (code, out) == (2, "")
    assert err == f"hgemm-packs: {answers} has a line that is no answer: KeyError('problem')\n"
    assert generate("admit", written(answers), "--by", "hand").code == 1, "nothing was taken"


def test_nothing_to_measure_is_said(tmp_path: Path) -> None:
    code, _, err = generate("measure", "free", "--run", tmp_path / "run")
    words = "no free source is here: `hgemm-packs generate admit` takes one"
    assert (code, err) == (2, f"hgemm-packs: {words}\n")
    code, _, err = generate("measure", "free", "other", "--run", tmp_path / "run")
    assert (code, err) == (2, "hgemm-packs: sm90_free: no source other.cu\n")
    assert not (tmp_path / "run").exists()


def test_the_kernel_of_the_row_is_timed_beside_the_source(tmp_path: Path) -> None:
    answers = written(tmp_path / "a.jsonl", answer(Candidate.of_source(TINY, RECORD, "tiny")))
    generate("admit", answers, "--by", "hand")
    source = read(names()[0])
    mine = Choice.of("sm90_free", source.genome)
    assert choices_by_problem([source], None) == {PROBLEM: [mine]}
    name, genome = QUICK
    kernel = packs.built("a_kernel", "ptr_v1", family=name, genome=genome)
    rows = [packs.row(each, kernel) for each in (PROBLEM, Problem(8, 8, 8, "nt", "f16"))]
    beside = choices_by_problem([source], packs.source([kernel], rows))
    assert beside == {PROBLEM: [mine, Choice.of(name, genome)]}
    left = packs.source([kernel], [packs.row(PROBLEM, None)])
    assert choices_by_problem([source], left) == {PROBLEM: [mine]}
