"""Actions: text that names a kernel and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.rl import actions
from hgemm_packs.generator.rl.actions import ActionSpace
from hgemm_packs.generator.rl.judges import RecordedJudge
from hgemm_packs.problem import Problem

REPLAY = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "replay"
PROBLEM = Problem(1024, 512, 1024, "nn", "f16")


@pytest.fixture(scope="module")
def judge() -> RecordedJudge:
    return RecordedJudge.read(REPLAY / "h200.npz")


def test_every_recorded_choice_comes_back_from_its_text(judge: RecordedJudge) -> None:
    schema = jsonschema.Draft202012Validator(judge.space.schema())
    listed = judge.working(PROBLEM)
    assert 1500 < len(listed) < len(judge.screens[PROBLEM].choices)
    for choice in listed:
        text = judge.space.text(choice)
        assert judge.space.parse(text, PROBLEM) == choice
        assert schema.is_valid(json.loads(text)), text


def test_a_text_names_the_genes_that_have_a_choice(judge: RecordedJudge) -> None:
    direct = next(c for c in judge.working(PROBLEM) if c.family == "sm90_direct")
    named = json.loads(judge.space.text(direct))
    genome = direct.genome
    assert named == {
        "family": "sm90_direct",
        "genome": {g: genome[g] for g in judge.space.genes["sm90_direct"]},
    }
    assert genome.keys() - named["genome"].keys() == {"layout", "dtype", "fixed_k", "cluster_k"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", 'no JSON: an action is {"family": ..., "genome": {...}}'),
        ("[" * 2000, 'no JSON: an action is {"family": ..., "genome": {...}}'),
        ("x" * 5000, "an action has at most 4096 characters, this one 5000"),
        ("[1]", 'an action is {"family": ..., "genome": {...}}'),
        ('{"family":"sm90_direct"}', 'an action is {"family": ..., "genome": {...}}'),
        ('{"family":[],"genome":{}}', "no family []; known: sm90_direct, sm90_wgmma"),
        ('{"family":"os","genome":{}}', "no family 'os'; known: sm90_direct, sm90_wgmma"),
        ('{"family":"sm90_direct","genome":3}', "a genome is an object of genes"),
    ],
)
def test_what_is_no_action_is_refused_with_a_reason(
    judge: RecordedJudge, text: str, why: str
) -> None:
    with pytest.raises(ValueError, match=r"^.*$") as refused:
        judge.space.parse(text, PROBLEM)
    assert str(refused.value) == why
    answer = judge.judge(PROBLEM, text)
    assert (answer.status, answer.words, answer.reward) == ("PARSE", f"PARSE: {why}", -1.0)


def test_genes_of_foreign_values_or_kinds_are_refused(judge: RecordedJudge) -> None:
    direct = next(c for c in judge.working(PROBLEM) if c.family == "sm90_direct")
    document = json.loads(judge.space.text(direct))
    for gene, value in (("mi", 3), ("mi", True), ("mi", [1]), ("exact", 1), ("new", 1)):
        changed = {**document, "genome": {**document["genome"], gene: value}}
        with pytest.raises(ValueError, match=f"sm90_direct: (genes must|{gene}=.* is not one of)"):
            judge.space.choice(changed, PROBLEM)


def test_a_kernel_that_does_not_admit_the_problem_is_refused() -> None:
    exact = Choice.of(
        "sm90_direct",
        {"layout": "nt", "dtype": "f16", "mi": 2, "ni": 8, "warps_m": 2, "warps_n": 2}
        | {"warps_k": 1, "unroll": 1, "exact": True, "fixed_k": 0, "cluster_k": 1},
    )
    space = ActionSpace([exact])
    problem = Problem(24, 24, 24, "nt", "f16")
    with pytest.raises(ValueError, match="sm90_direct: this kernel does not admit 24x24x24 nt"):
        space.parse(space.text(exact), problem)


def test_rows_and_problems_are_the_same() -> None:
    row = actions.row_of(PROBLEM)
    assert row == {"m": 1024, "n": 512, "k": 1024, "layout": "nn", "dtype": "f16"}
    assert actions.problem_of({**row, "prompt": "x"}) == PROBLEM
    gated = Problem(8, 8, 8, "nt", "f16", epilogue="bias_relu")
    assert actions.problem_of(actions.row_of(gated)) == gated
    assert actions.task(gated).endswith(" epilogue bias_relu family any")
    for wrong in ({}, {**row, "m": None}, {**row, "m": -1}, {**row, "layout": "xx"}):
        with pytest.raises(ValueError):
            actions.problem_of(wrong)


def test_the_words_of_a_conversation(judge: RecordedJudge) -> None:
    said = actions.messages(PROBLEM, judge.space, [("A", "B")])
    assert [message["role"] for message in said] == ["system", "user", "assistant", "user"]
    task = "M 1024 N 512 K 1024 layout nn type f16 powers 10 9 10 19 family any"
    assert [message["content"] for message in said[1:]] == [task, "A", "B"]
    assert "tile_k [64, 128]" in said[0]["content"]
