"""Prompts say where each part came from, and what is in quarantine is in none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.generator.agents import archive, context
from hgemm_packs.generator.agents.archive import Example
from hgemm_packs.generator.agents.context import Part, Prompt
from hgemm_packs.generator.agents.ground import Ground
from hgemm_packs.generator.agents.roles.reasoner import Reasoner
from hgemm_packs.generator.agents.roles.red_team import RedTeam
from hgemm_packs.generator.agents.roles.synthesizer import Order, Synthesizer
from hgemm_packs.generator.agents.words import Hypothesis
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.store.run_folder import Store
from tests.generator.store.filled_store import fill
from tests.generator.store.sample_store import FACTS, kernel, screen

from .grounds import PROBLEM, attempt, chat, ground

HYPOTHESIS = Hypothesis("deeper ring", "sm90_wgmma", ("stages",))


def test_a_prompt_shows_each_part_with_its_source() -> None:
    prompt = Prompt("tester", Part("Rules", "Be short.", "a"), (Part("One", "x\n", "file b"),))
    assert prompt.show() == (
        "=== prompt of the tester ===\n--- Rules  [from a]\nBe short.\n--- One  [from file b]\nx"
    )
    system, user = prompt.messages()
    assert (system.role, system.content) == ("system", "Be short.")
    assert (user.role, user.content) == ("user", "## One\nx")


def test_every_part_of_every_role_has_a_source_and_what_is_sent_is_what_is_shown() -> None:
    here = ground()
    tried = [attempt(1, us=2.0, speedup=2.0), attempt(2, us=3.0), attempt(3, us=9.0, speedup=0.4)]
    prompts = [
        Reasoner(here).prompt(None, 3, tried, [(HYPOTHESIS, "no gain")]),
        Synthesizer(here).prompt(Order(HYPOTHESIS, tried[0], None, tried)),
        Synthesizer(here, chat(lambda _: ""), "source").prompt(Order(HYPOTHESIS)),
        RedTeam(PROBLEM, Evaluator(), here.device).prompt(),
    ]
    for prompt in prompts:
        shown = prompt.show()
        sent = "\n".join(message.content for message in prompt.messages())
        for part in (prompt.rules, *prompt.parts):
            assert part.source and part.text.strip()
            assert f"--- {part.title}  [from {part.source}]\n{part.text.strip()}" in shown
            assert part.text.strip() in sent
    titles = [part.title for part in prompts[0].parts]
    assert titles == [
        "The problem",
        "The architecture",
        "Families and their genes",
        "Kernels that were measured",
        "Tried without gain; do not repeat",
        "Asked",
    ]
    examples = prompts[0].parts[3]
    assert examples.source == "; ".join(
        f"{rank} this run, round {number}"
        for rank, number in (("fast", 1), ("middling", 2), ("slow", 3))
    )


def test_the_instructions_are_those_of_our_headers() -> None:
    text = context.instructions().text
    assert '#include "common/mma.cuh"' in text
    assert "void mma16816(float (&acc)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1);" in text


def example(speedup: float, name: str) -> Example:
    return Example({"family": name, "genome": {}}, PROBLEM, 1 / speedup, speedup, "here")


def test_examples_are_fast_middling_and_slow() -> None:
    five = [example(s, f"f{i}") for i, s in enumerate((0.5, 2.0, 1.0, 1.5, 0.9))]
    assert [(each.rank, each.speedup) for each in archive.contrast(five)] == [
        ("fast", 2.0),
        ("middling", 1.0),
        ("slow", 0.5),
    ]
    two = [replace(each, rank="") for each in five[:2]]
    assert [(each.rank, each.speedup) for each in archive.contrast(two)] == [
        ("fast", 2.0),
        ("slow", 0.5),
    ]
    again = [*two, example(3.0, "f0")]
    assert [each.speedup for each in archive.contrast(again)] == [3.0, 2.0]


def test_the_store_gives_examples_without_what_was_quarantined(tmp_path: Path) -> None:
    """Also where the quarantined kernel was the fastest, and where it was another problem's."""
    problem = replace(PROBLEM, layout="nn")
    chosen = list(Space(problem).core[:4])
    with Store(tmp_path / "run") as store:
        run, _ = fill(store, problem, chosen, [1.0, 2.0, 4.0, 8.0])
        job, reply = screen(problem, [kernel(chosen[3])], [8.0], seed=2)
        store.add_reply(run, job, replace(reply, baselines={"torch": {"hot": (4.0,)}}))
        verdict = Verdict("plausibility", Status.HACK, "faster than the machine")
        store.add_verdict(kernel(chosen[0]).id, verdict, problem=problem)
        found = archive.of_store(store, "run", problem, FACTS)
        assert sorted(each.us for each in found) == [2.0, 4.0, 8.0]
        here = Ground(Space(problem), FACTS, archive.contrast(found))
        prompts = [
            Reasoner(here).prompt(None, 3).show(),
            Synthesizer(here).prompt(Order(HYPOTHESIS)).show(),
        ]
    wanted = json.dumps(chosen[1].genome)
    quarantined = json.dumps(chosen[0].genome)
    assert all(wanted in each and quarantined not in each for each in prompts)


def test_attempts_that_cheated_or_failed_are_no_examples() -> None:
    tried = [
        attempt(1, status="HACK", gate="plausibility", speedup=9.0, us=0.1),
        attempt(2, status="NUMERIC", gate="numeric", speedup=None),
        attempt(3),
    ]
    assert [each.source for each in archive.of_attempts(tried, PROBLEM)] == ["this run, round 3"]


def line(candidate: dict[str, object], status: str, us: float) -> dict[str, object]:
    times = {"hot": {"us": us}}
    answer = {
        "status": status,
        "correct": status == "OK",
        "times": times,
        "speedup": 4.0 / us,
        "facts": {"bottleneck": "latency"},
    }
    return {
        "problem": [512, 1024, 512, "nt", "f16"],
        "epilogue": "none",
        "candidate": candidate,
        "answer": answer,
    }


def test_answers_give_examples_without_what_was_refused_once(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    good, bad = {"source": "good", "record": {}}, {"source": "bad", "record": {}}
    lines = [line(good, "OK", 2.0), line(bad, "OK", 1.0), line(bad, "HACK", 1.0)]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    (found,) = archive.of_answers(path, PROBLEM)
    assert (found.candidate, found.us, found.speedup, found.kind) == (good, 2.0, 2.0, "latency")
    path.write_text('{"problem": 3, "candidate": {}, "answer": {"status": "OK"}}\n')
    with pytest.raises(ValueError, match="is no file of answers"):
        archive.of_answers(path, PROBLEM)
