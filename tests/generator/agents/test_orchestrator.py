"""A run: it finds what is fast, keeps its limits, and goes on as it would have gone on."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.agents.journal import FILE, Journal
from hgemm_packs.generator.agents.orchestrator import Event, Limits
from hgemm_packs.generator.agents.words import MODEL, Attempt
from hgemm_packs.generator.devices.sim import Faults, SimDevice
from hgemm_packs.generator.evaluator.answer import Answer
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.llm.budget import Budget
from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.llm.files import Cache
from hgemm_packs.generator.llm.words import ChatError, Request
from hgemm_packs.generator.store.run_folder import StoreError
from hgemm_packs.problem import Problem

from .grounds import (
    FAULTS,
    PROBLEM,
    Scripted,
    as_json,
    asked_of,
    attempt,
    chat,
    ground,
    orchestrator,
)

MADE = {"operator": "", "words": "", "parent": ""}
SETTINGS = {"problem": str(PROBLEM), "seed": 0}


class Killed(BaseException):
    """Stands for the end of the process."""


class Mortal:
    """A judge that is killed at its `at`-th question."""

    def __init__(self, at: float) -> None:
        self._judge = Evaluator(SimDevice(3, FAULTS))
        self.left = at

    def evaluate(self, candidate: Candidate, problem: Problem) -> Answer:
        if self.left <= 0:
            raise Killed
        self.left -= 1
        return self._judge.evaluate(candidate, problem)


def test_by_rules_alone_it_comes_near_the_optimum_past_every_fault() -> None:
    """A quarter of the choices is broken or cheats."""
    faults = Faults(launch=0.05, numeric=0.05, subtle=0.05, lost=0.05, hack=0.05)
    run = orchestrator(faults=faults, limits=Limits(evaluations=48))
    assert run.run() == "48 evaluations are done"
    device = SimDevice(3, faults)
    top = run.tree.best
    assert top is not None
    choice = Candidate.of_document(top.candidate).read(PROBLEM)
    assert not device.fault(choice)  # type: ignore[arg-type]
    share = device.optimum(PROBLEM)[1] / device.true_us(choice, PROBLEM)  # type: ignore[arg-type]
    assert share > 0.95
    seen = {each.status for each in run.tree.attempts}
    assert {"LAUNCH", "NUMERIC", "HACK"} <= seen  # it met what must not win


def test_it_makes_no_more_evaluations_than_allowed() -> None:
    for most in (1, 2, 7):
        run = orchestrator(limits=Limits(evaluations=most))
        assert run.run() == f"{most} evaluations are done"
        assert run.evaluations == most


def test_no_round_begins_after_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(ticks)))
    run = orchestrator(limits=Limits(evaluations=1000, seconds=1.0))
    assert run.run() == "1 s are over"
    assert run.spent_s >= 1.0 and len({each.round for each in run.tree.attempts}) <= 1


def summary(attempts: list[Attempt]) -> list[Any]:
    return [each.document() for each in attempts]


def run_killed(folder: Path, at: float, **more: Any) -> Any:
    """A run whose judge dies at a question, every time it is started, until it is done."""
    starts = 0
    while True:
        starts += 1
        journal = Journal(folder, SETTINGS)
        assert starts < 40, "it comes no further"
        run = orchestrator(journal, judge=Mortal(at), **more)
        try:
            run.run()
        except Killed:
            continue
        finally:
            journal.close()
        return run, starts


@pytest.mark.parametrize("at", [1, 4])
def test_a_run_that_is_killed_again_and_again_is_the_run_that_was_not(
    tmp_path: Path, at: int
) -> None:
    whole = orchestrator()
    whole.run()
    again, starts = run_killed(tmp_path, at)
    assert starts >= 12 // at  # each does what the one before has left
    assert summary(again.tree.attempts) == summary(whole.tree.attempts)
    assert [b.closed for b in again.tree.branches] == [b.closed for b in whole.tree.branches]


def test_a_finished_run_is_shown_again_without_any_work(tmp_path: Path) -> None:
    first, _ = run_killed(tmp_path, math.inf)
    again = orchestrator(Journal(tmp_path, SETTINGS), judge=Mortal(0))
    again.run()
    assert summary(again.tree.attempts) == summary(first.tree.attempts)


def test_a_longer_run_goes_on_from_a_shorter_one(tmp_path: Path) -> None:
    short, _ = run_killed(tmp_path, math.inf, limits=Limits(evaluations=6))
    longer, _ = run_killed(tmp_path, math.inf, limits=Limits(evaluations=12))
    kept = [each.document() for each in longer.tree.attempts]
    assert all(each in kept for each in summary(short.tree.attempts))
    assert longer.evaluations == 12


def test_the_torn_line_of_a_kill_is_done_again(tmp_path: Path) -> None:
    run_killed(tmp_path, math.inf)
    path = tmp_path / FILE
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])
    again, _ = run_killed(tmp_path, math.inf)

    def pieces(data: bytes) -> dict[str, Any]:
        found = [json.loads(line) for line in data.splitlines()[1:]]
        return {each["name"]: each["piece"].get("attempt") for each in found}

    assert pieces(path.read_bytes()) == pieces(whole)
    assert again.evaluations == 12


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [b"{}\n", *lines[1:]], "no journal of agents, or damaged"),
        (lambda lines: [lines[0], b"[]\n", *lines[2:]], "no journal of agents, or damaged"),
        (lambda lines: [b"\xff\n", *lines[1:]], "no journal of agents, or damaged"),
        (lambda lines: [lines[0].replace(b'"seed":0', b'"seed":1')], "is a run with seed 1, not 0"),
    ],
)
def test_a_damaged_or_foreign_journal_is_refused(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], words: str
) -> None:
    run_killed(tmp_path, math.inf, limits=Limits(evaluations=4))
    path = tmp_path / FILE
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(StoreError, match=words):
        Journal(tmp_path, SETTINGS)


@pytest.mark.parametrize(
    "piece",
    [
        {"proposed": [{"x": 1}], "failed": ""},
        {"proposed": 3, "failed": ""},
        {},
        {"proposed": [None], "failed": ""},
        {"proposed": [{**MADE, "candidate": {"family": "x"}}], "failed": ""},
        {"proposed": [{**MADE, "candidate": 3}], "failed": ""},
    ],
)
def test_a_damaged_piece_is_refused(tmp_path: Path, piece: Any) -> None:
    journal = Journal(tmp_path, SETTINGS)
    journal.piece("step 0.0", lambda: piece)
    with pytest.raises(StoreError, match=r"step 0\.0 is damaged"):
        orchestrator(journal).run()


@pytest.mark.parametrize(
    "change",
    [{"speedup": "fast"}, {"us": []}, {"facts": None}, {"round": "1"}, {"extra": 1}, {"gate": 3}],
)
def test_a_damaged_verdict_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    journal = Journal(tmp_path, SETTINGS)
    made = {**attempt().document(), **change}
    journal.piece("attempt 0.0.0", lambda: {"attempt": made})
    with pytest.raises(StoreError, match=r"step 0\.0 is damaged"):
        orchestrator(journal).run()


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SETTINGS)
    with pytest.raises(StoreError, match="another process writes"):
        Journal(tmp_path, SETTINGS)
    journal.close()
    Journal(tmp_path, SETTINGS).close()


def good(request: Request) -> str:
    """A model that chooses from what the prior likes, by its seed."""
    here = ground()
    if asked_of(request) == "reasoner":
        said = [{"words": f"try {f}", "family": f, "genes": ["stages"]} for f in ("sm90_wgmma",)]
        return as_json(hypotheses=said)
    own = [choice for choice in here.ranked if choice.family == "sm90_wgmma"]
    choice = own[request.seed % len(own)]
    return as_json(diagnosis="d", family=choice.family, genome=choice.genome)


def test_with_a_model_a_killed_run_asks_for_nothing_twice(tmp_path: Path) -> None:
    first = chat(good)
    whole = orchestrator(model=first)
    whole.run()
    asked = sent_by(first)
    ledger, sent = tmp_path / "spent.jsonl", 0
    for at in (3, 3, 3, math.inf):
        journal = Journal(tmp_path, SETTINGS)
        model = chat(good, cache=Cache(tmp_path / "cache"), budget=Budget(ledger=ledger))
        run = orchestrator(journal, model=model, judge=Mortal(at))
        try:
            run.run()
        except Killed:
            pass
        finally:
            journal.close()
            sent += sent_by(model)
    assert summary(run.tree.attempts) == summary(whole.tree.attempts)
    assert sent == asked and model.budget.requests == asked
    assert run.tree.branches[0].hypothesis.origin == MODEL


def sent_by(model: Chat) -> int:
    assert isinstance(model.transport, Scripted)
    return len(model.transport.requests)


def test_the_token_budget_ends_a_run_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    def go(tokens: int) -> tuple[str, Any, Budget]:
        journal = Journal(tmp_path, SETTINGS)
        budget = Budget(tokens=tokens, ledger=tmp_path / "spent.jsonl")
        model = chat(good, budget=budget, cache=Cache(tmp_path / "cache"), max_tokens=100)
        run = orchestrator(journal, model=model)
        try:
            return run.run(), run, budget
        finally:
            journal.close()

    why, run, budget = go(20_000)
    assert "the budget of 20000 tokens" in why and budget.spent_tokens <= 20_000
    assert run.evaluations < 12
    why, run, _ = go(10_000_000)
    assert why == "12 evaluations are done"
    whole = orchestrator(model=chat(good, max_tokens=100))
    whole.run()
    assert summary(run.tree.attempts) == summary(whole.tree.attempts)


def test_a_server_that_is_gone_ends_the_run_in_words() -> None:
    def gone(_: Request) -> str:
        raise ChatError("nobody there")

    run = orchestrator(model=chat(gone))
    assert run.run() == "the model's server does not answer"
    assert run.evaluations == 0
    assert {each.words for each in run.tree.attempts} == {"nobody there"}


def test_a_server_that_fails_at_times_is_asked_on() -> None:
    def flaky(request: Request) -> str:
        if request.seed % 3 == 0:
            raise ChatError("again later")
        return good(request)

    run = orchestrator(model=chat(flaky))
    assert run.run() == "12 evaluations are done"


@pytest.mark.parametrize("text", ["", '{"genome": {"stages": 99}}'])
def test_a_model_that_names_no_kernel_comes_to_an_end(text: str) -> None:
    run = orchestrator(model=chat(lambda _: text), limits=Limits(evaluations=6))
    assert run.run() in (
        "too few answers name a kernel that was not tried",
        "6 evaluations are done",
        "no hypothesis is left to try",
    )
    assert run.tree.best is None


def test_who_watches_sees_every_step_and_the_end() -> None:
    seen: list[Event] = []
    run = orchestrator(limits=Limits(evaluations=6), watch=seen.append)
    why = run.run()
    assert seen[0].what == "hypotheses" and (seen[-1].what, seen[-1].words) == ("end", why)
    assert sum(each.what == "step" for each in seen) >= 3


def test_a_device_that_fails_ends_the_run_and_what_was_done_is_on_file(tmp_path: Path) -> None:
    class Broken(Mortal):
        def evaluate(self, candidate: Candidate, problem: Problem) -> Answer:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("the GPU is gone")
            return self._judge.evaluate(candidate, problem)

    journal = Journal(tmp_path, SETTINGS)
    with pytest.raises(RuntimeError, match="the GPU is gone"):
        orchestrator(journal, judge=Broken(5)).run()
    journal.close()
    whole = orchestrator()
    whole.run()
    again, _ = run_killed(tmp_path, math.inf)
    assert summary(again.tree.attempts) == summary(whole.tree.attempts)


def test_where_kernels_are_compiled_the_profile_of_the_best_has_their_code() -> None:
    run = orchestrator(limits=Limits(evaluations=4))
    run.run()
    simulated = run.profile()
    run._ground = replace(run._ground, compiled=True)
    compiled = run.profile()
    assert simulated is not None and compiled is not None
    of_code = {"registers", "mma_share_of_code"}
    assert set(compiled.numbers) - set(simulated.numbers) == of_code
    assert 16 <= compiled.numbers["registers"] <= 255
    assert 0.0 < compiled.numbers["mma_share_of_code"] < 1.0
