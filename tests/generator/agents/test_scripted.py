"""A whole run against a server on this machine that lies, fails and cheats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.agents.journal import Journal
from hgemm_packs.generator.agents.orchestrator import Limits
from hgemm_packs.generator.devices.sim import Faults, SimDevice
from hgemm_packs.generator.evaluator.answer import Answer
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.llm.budget import Budget
from hgemm_packs.generator.llm.chat import Chat, Patience
from hgemm_packs.generator.llm.files import Cache, Player, Recorder
from hgemm_packs.generator.llm.key import Key
from hgemm_packs.generator.llm.server import Server
from hgemm_packs.problem import Problem
from tests.generator.llm.scripted_server import (
    MALFORMED,
    Body,
    Step,
    closed,
    cut_off,
    refuse,
    say,
    serve,
    status,
)

from . import cheating
from .grounds import PROBLEM, as_json, ground, orchestrator

pytest.importorskip("openai")

KEY = "sk-scripted-0123456789abcdef"
FAULTS = Faults(launch=0.06, numeric=0.06, subtle=0.06, lost=0.06, hack=0.06)
SETTINGS = {"problem": str(PROBLEM)}
#: The shortest of each gate, for the sake of the compiler.
CASES = [
    min(cases, key=lambda case: len(cheating.says(case)))
    for cases in cheating.by_gate(cheating.cheats()).values()
]


def client(url: str, **more: Any) -> Chat:
    key = Key(KEY)
    patience = Patience(2, sleep=lambda _: None)
    return Chat(Server(url, key, timeout_s=5.0), "scripted", key, patience=patience, **more)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.expect[0]}: {case.name}")
def test_no_cheat_of_the_corpus_passes(case: Any) -> None:
    """benchmarks/agents/scripted.py does the same with all of them."""
    with serve([say(cheating.says(case))]) as server:
        found = cheating.propose(case, client(server.url))
    assert not cheating.bypassed(case, found), found.words
    assert found.status != "NO_ANSWER" or case.name.startswith("two_entries")
    if cheating.on_cpu(case):
        assert found.gate != "record", found.words  # it came as far as a gate that looked at it


FAILURES: list[Step] = [
    status(429),
    status(500),
    refuse(),
    cut_off('{"genome": {"sta'),
    closed("before"),
    closed("within"),
    say(""),
    say("Let me think about tiles."),
    say('{"family": "sm90_wgmma", "genome": {"stages": 99}}'),
    say('{"family": "none", "genome": {}}'),
    *MALFORMED.values(),
]


def script(body: Body) -> Step:
    """Every second answer fails or names none, whoever asks again; the others are genomes of every
    kind of fault, for the device has them among those that the prior likes."""
    seed = body["seed"]
    if "reasoner" in body["messages"][0]["content"] or "hypotheses" in str(
        body.get("response_format")
    ):
        return FAILURES[seed % len(FAILURES)]
    if seed % 2:
        return FAILURES[seed // 2 % len(FAILURES)]
    ranked = ground().ranked
    choice = ranked[seed * 7919 % 200]
    return say(as_json(diagnosis="d", family=choice.family, genome=choice.genome))


class Killed(BaseException):
    pass


class Mortal:
    """Dies at the next question once `left` were asked."""

    def __init__(self, left: float) -> None:
        self.left = left
        self._judge = Evaluator(SimDevice(3, FAULTS))

    def evaluate(self, candidate: Candidate, problem: Problem) -> Answer:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return self._judge.evaluate(candidate, problem)


def one_run(folder: Path, url: str, left: float) -> tuple[Any, Budget]:
    """One start of a run in a folder, killed after so many questions."""
    folder.mkdir(exist_ok=True)
    budget = Budget(tokens=3_000_000, ledger=folder / "spent.jsonl")
    cache = Cache(folder / "cache")
    recorder = Recorder(folder / "talk.jsonl")
    model = client(url, budget=budget, cache=cache, recorder=recorder, max_tokens=256)
    journal = Journal(folder, SETTINGS)
    limits = Limits(evaluations=16, samples=4)
    run = orchestrator(journal, model=model, judge=Mortal(left), limits=limits)
    try:
        run.run()
    finally:
        journal.close()
    return run, budget


def test_a_run_among_failures_and_cheats_is_right_and_goes_on_exactly(tmp_path: Path) -> None:
    with serve(script) as server:
        whole, budget = one_run(tmp_path / "whole", server.url, 1e9)
        for left in (2, 3):
            with pytest.raises(Killed):
                one_run(tmp_path / "killed", server.url, left)
        again, _ = one_run(tmp_path / "killed", server.url, 1e9)
    attempts = [each.document() for each in whole.tree.attempts]
    assert attempts == [each.document() for each in again.tree.attempts]
    statuses = {each["status"] for each in attempts}
    assert {"OK", "NO_ANSWER", "PARSE"} <= statuses and statuses & {"HACK", "NUMERIC", "LAUNCH"}
    top = whole.tree.best
    choice = Candidate.of_document(top.candidate).read(PROBLEM)
    assert not SimDevice(3, FAULTS).fault(choice)  # type: ignore[arg-type]
    assert all(each.correct for each in (top, again.tree.best))
    assert 0 < budget.spent_tokens <= 3_000_000
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10 and not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_run_is_replayed_from_its_cassette_without_a_server(tmp_path: Path) -> None:
    def honest(body: Body) -> Step:
        if "hypotheses" in str(body["response_format"]):
            return say("{}")
        choice = ground().ranked[body["seed"] * 31 % 97]
        return say(as_json(diagnosis="d", family=choice.family, genome=choice.genome))

    limits = Limits(evaluations=6, width=1)
    tape = tmp_path / "talk.jsonl"
    with serve(honest) as server:
        first = orchestrator(model=client(server.url, recorder=Recorder(tape)), limits=limits)
        first.run()
    replay = Chat(None, "scripted", player=Player(tape))
    second = orchestrator(model=replay, limits=limits)
    second.run()
    assert [a.document() for a in first.tree.attempts] == [
        a.document() for a in second.tree.attempts
    ]
    assert first.evaluations == 6
