"""A run of agents as data for trainers, as samples of a report and as examples: its journal has
what a model was asked, what it said, and what became of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.agents import setting, turns
from hgemm_packs.generator.agents.context import Part, Prompt
from hgemm_packs.generator.agents.journal import FILE, Journal
from hgemm_packs.generator.agents.words import NO_ANSWER, TRIED, Attempt
from hgemm_packs.generator.core.spec import DeviceFacts
from hgemm_packs.generator.report import modes
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.problem import Problem
from tests.generator.agents.grounds import PROBLEM, attempt
from tests.generator.command import generate
from tests.generator.llm.scripted_server import Body, Step, say, serve

RULES = Part("Rules", "Be fast.", "notes")
PROMPTS = [Prompt("synthesizer", RULES, (Part("Q", str(i), "here"),)) for i in range(4)]
ASKED = [[asdict(message) for message in prompt.messages()] for prompt in PROMPTS]
FACTS = DeviceFacts("H200", "sm_90a", 132, 50 << 20)


def tried(round: int, place: int, key: str, **fields: Any) -> Attempt:
    return attempt(round, place=place, key=key, **fields)


def refused(status: str, reward: float) -> dict[str, Any]:
    return {"status": status, "reward": reward, "us": None, "torch_us": None, "speedup": None}


#: Steps in their order: what was asked, and each answer with what became of it.
STEPS: dict[str, tuple[int, list[tuple[str, Attempt]]]] = {
    "0.0": (
        0,
        [
            ("first", tried(0, 0, "k0", operator="seed", reward=0.4)),
            (
                "wrong",
                tried(0, 1, "k1", operator="seed", gate="numeric", **refused("NUMERIC", -0.5)),
            ),
        ],
    ),
    "1.0": (
        1,
        [
            (
                "mended",
                tried(1, 0, "k2", operator="repair", parent="k0", reward=0.9, us=2.5, speedup=2.0),
            )
        ],
    ),
    "1.1": (
        2,
        [
            ("cheat", tried(1, 100, "k3", branch=1, parent="k0", **refused("HACK", -1.5))),
            (
                "I cannot",
                tried(
                    1, 101, "", branch=1, parent="k0", candidate=None, **refused(NO_ANSWER, -1.0)
                ),
            ),
            ("again", tried(1, 102, "k0", branch=1, **refused(TRIED, -1.0))),
        ],
    ),
    "2.0": (3, [("", tried(2, 0, "", operator="", candidate=None, **refused(NO_ANSWER, -1.0)))]),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    journal = Journal(folder, {"problem": str(PROBLEM), "model": "a-model"})
    for name, (asked, answers) in STEPS.items():
        proposed = [
            {"operator": a.operator, "said": said, "parent": a.parent} for said, a in answers
        ]
        step = {"asked": asdict(PROMPTS[asked]), "proposed": proposed, "failed": ""}
        journal.piece(f"step {name}", lambda step=step: step)  # type: ignore[misc]
        for i, (_, one) in enumerate(answers):
            made = {"attempt": one.document()}
            journal.piece(f"attempt {name}.{i}", lambda made=made: made)  # type: ignore[misc]
    journal.close()
    return folder


def exported(run: Path, out: Path, name: str) -> list[dict[str, Any]]:
    done = generate("export", run, out, "--format", name)
    assert (done.code, done.err) == (0, ""), done
    return read_records([out])


def test_grpo_has_every_answer_with_its_prompt_and_reward(run: Path, tmp_path: Path) -> None:
    lines = exported(run, tmp_path / "out.jsonl", "grpo")
    told = [(line["completion"], line["prompt"][1]["content"][-1], line["turn"]) for line in lines]
    assert told == [
        *(("first", "0", 0), ("wrong", "0", 0)),
        *(("mended", "1", 1), ("cheat", "2", 1), ("I cannot", "2", 1)),
    ]
    assert [line["verdict"] for line in lines] == ["OK", "NUMERIC", "OK", "HACK", "PARSE"]
    assert [line["reward"] for line in lines] == [0.4, -0.5, 0.9, -1.5, -1.0]
    # The repair goes on from what was refused, whatever kernel the branch began with.
    assert [line["parent"] for line in lines] == [None, None, "k1", "k0", "k0"]
    assert [line["return"] for line in lines] == pytest.approx(
        [0.4 + 0.4 * (-1.5 - 1.0) / 2, -0.5 + 0.4 * 0.9, 0.9, -1.5, -1.0]
    )
    assert [line["advantage"] for line in lines] == pytest.approx([0.9, -0.9, 0.0, -0.5, 0.5])
    assert {line["model"] for line in lines} == {"a-model"}
    assert lines[2]["us"] == 2.5 and lines[1]["us"] is None
    assert lines[0]["problem"] == {"m": 512, "n": 1024, "k": 512, "layout": "nt", "dtype": "f16"}


def test_right_answers_are_learnt_and_cheats_are_in_no_pair(run: Path, tmp_path: Path) -> None:
    learnt = exported(run, tmp_path / "sft.jsonl", "sft")
    assert [line["messages"] for line in learnt] == [
        [*ASKED[0], {"role": "assistant", "content": "first"}],
        [*ASKED[1], {"role": "assistant", "content": "mended"}],
    ]
    (pair,) = exported(run, tmp_path / "pairs.jsonl", "pairs")
    assert pair["prompt"] == ASKED[0] and pair["margin"] == 0.9
    assert [pair[name][0]["content"] for name in ("chosen", "rejected")] == ["first", "wrong"]


def test_every_answer_is_a_sample_of_the_report(run: Path) -> None:
    """Three of five are no kernels that passed; one of them could not even be read."""
    (found,) = modes.by_mode(turns.samples(turns.read(run), "llm"))
    assert (found["mode"], found["problems"], found["proposals"]) == ("llm", 1, 5)
    assert (found["compiled"], found["correct"], found["hacks"]) == (4, 2, 1)
    at = {each["k"]: each for each in found["at_k"]}
    assert at[1]["pass"] == pytest.approx(2 / 5) and at[2]["pass"] == pytest.approx(1 - 3 / 10)
    assert at[1]["speedup"] == pytest.approx((1.25 + 2.0) / 5)
    assert found["win"]["1.2"] == 1.0


def test_the_report_takes_a_folder_of_solve(run: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "search"):
        pass
    done = generate("report", tmp_path / "search", "--answers", f"llm={run}")
    assert (done.code, done.err) == (0, ""), done
    document = json.loads((tmp_path / "search" / "report" / "report.json").read_text())
    assert [(one["mode"], one["proposals"]) for one in document["modes"]] == [("llm", 5)]


def test_what_passed_is_an_example_for_its_kind_of_problem(run: Path) -> None:
    shown = setting.read_examples(run, Problem(1024, 512, 512, "nt", "f16"), FACTS)
    assert [(each.us, each.source) for each in shown] == [(4.0, "agents run"), (2.5, "agents run")]
    assert setting.read_examples(run, Problem(1, 512, 512, "nt", "f16"), FACTS) == []


def test_a_run_that_goes_on_is_read_and_a_damaged_one_is_told(run: Path, tmp_path: Path) -> None:
    whole = (run / FILE).read_bytes()
    (run / FILE).write_bytes(whole + b'{"name": "step 3.0", "pie')
    assert len(turns.read(run).turns) == 5
    (run / FILE).write_bytes(whole.replace(b"512x1024x512", b"512by512"))
    done = generate("export", run, tmp_path / "out.jsonl", "--format", "sft")
    assert done.code == 2 and "the journal in" in done.err and "is damaged" in done.err
    (run / FILE).write_bytes(b"[]\n")
    done = generate("export", run, tmp_path / "out.jsonl", "--format", "sft")
    assert done.code == 2 and "is no journal of agents, or damaged" in done.err


def test_a_journal_of_before_has_samples_and_no_lines(run: Path, tmp_path: Path) -> None:
    """Journals did not hold prompts and answers once; their verdicts stand."""
    head, *rest = [json.loads(line) for line in (run / FILE).read_bytes().splitlines()]
    for line in rest:
        line["piece"].pop("asked", None)
        for each in line["piece"].get("proposed", ()):
            del each["said"]
    (run / FILE).write_text("".join(f"{json.dumps(line)}\n" for line in (head, *rest)))
    done = generate("export", run, tmp_path / "out.jsonl", "--format", "grpo")
    assert (done.code, done.err) == (1, "") and "0 lines" in done.out
    assert len(turns.samples(turns.read(run), "llm")) == 5


def test_what_solve_asked_and_was_answered_is_what_is_exported(tmp_path: Path) -> None:
    """`generate export` had no store to read where agents had worked."""
    pytest.importorskip("openai")
    sent: dict[str, Any] = {}

    def answer(body: Body) -> Step:
        if "hypotheses" in json.dumps(body["response_format"]):
            return say("{}")
        (family,) = body["response_format"]["json_schema"]["schema"]["properties"]["family"]["enum"]
        text = json.dumps({"diagnosis": f"d{body['seed']}", "family": family, "genome": {}})
        sent[text] = body["messages"]
        return say(text)

    options = ("--device", "sim:3", "--model", "m", "--evaluations", 3, "--run", tmp_path / "run")
    with serve(answer) as server:
        generate("solve", "128,512,512", *options, "--server", server.url)
    lines = exported(tmp_path / "run", tmp_path / "out.jsonl", "grpo")
    assert lines and {line["completion"] for line in lines} <= sent.keys()
    for line in lines:
        assert line["prompt"] == sent[line["completion"]]
    done = generate("solve", "128,512,512", *options, "--server", "http://x/v1", "--show-prompt")
    assert done.code == 0 and "--- Rules  [from generator/agents/notes/genome_rules.md]" in done.out
    asked = [message["content"] for prompt in sent.values() for message in prompt]
    for text in (part for message in asked for part in message.split("## ")[1:]):
        assert text.partition("\n")[2].strip() in done.out  # of every prompt, every part


def test_rules_say_what_a_model_would_have(tmp_path: Path) -> None:
    options = ("--device", "sim:3", "--evaluations", 4, "--run", tmp_path / "run")
    assert generate("solve", "128,512,512", *options).code == 0
    lines = exported(tmp_path / "run", tmp_path / "out.jsonl", "grpo")
    assert len(lines) == 4 and {line["model"] for line in lines} == {"rule"}
    for line in lines:
        said = json.loads(line["completion"])
        assert list(said) == ["diagnosis", "family", "genome"]
        assert said["diagnosis"] in line["prompt"][1]["content"]
