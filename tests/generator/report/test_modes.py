"""Each mode's figures are averages over all ways to draw from its own proposals."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.evaluator.reward import UNMEASURED
from hgemm_packs.generator.llm.budget import Budget
from hgemm_packs.generator.llm.words import Message, Request, Usage
from hgemm_packs.generator.report import modes
from hgemm_packs.generator.report.numbers import numbers
from hgemm_packs.generator.report.page import page
from hgemm_packs.generator.store.findings import Attempt, Findings
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.problem import Problem
from tests.generator.command import generate
from tests.generator.found import OTHER, PROBLEM, attempt, both, found

LOST, WAITING = Problem(64, 64, 64, "nn", "f16"), Problem(96, 64, 64, "nn", "f16")
TORCH = 12.0  # us, hot, in `job`
BAD = math.inf


def attempts() -> tuple[Attempt, ...]:
    """Of each mode: PROBLEM and OTHER have finals, WAITING has none, LOST nothing correct."""
    rows: Sequence[tuple[str, Problem, float, Status, str]] = (
        ("prior", PROBLEM, 12.0, Status.OK, "a"),
        ("islands", PROBLEM, 15.0, Status.OK, "b"),
        ("cost", PROBLEM, BAD, Status.BUILD, ""),
        ("prior", OTHER, 11.0, Status.OK, "a"),
        ("prior", LOST, BAD, Status.NUMERIC, "x"),
        ("prior", WAITING, 9.0, Status.OK, "a"),
        ("policy", PROBLEM, 11.0, Status.OK, "p"),
        ("policy", OTHER, BAD, Status.SLOWER, "q"),
        ("llm", PROBLEM, 10.0, Status.OK, "c"),
        ("llm", PROBLEM, BAD, Status.HACK, "h"),
        ("llm-edit", PROBLEM, BAD, Status.PARSE, ""),
        ("llm", OTHER, 20.0, Status.OK, "d"),
        ("llm", OTHER, BAD, Status.NUMERIC, "e"),
    )
    return tuple(
        attempt(us, i, where, status=status, kernel=kernel, proposer=who, seconds=0.5)
        if kernel
        else Attempt(where, f"none{i}", "", who, "", status, us, i, 0.0)
        for i, (who, where, us, status, kernel) in enumerate(rows)
    )


def store() -> Findings:
    """Rows of the table: the model's kernel on PROBLEM, the search's on OTHER."""
    fields = [
        *both({"c": (10.0, 12.0)}),
        *both({"a": (10.5, 12.5)}, OTHER),
    ]
    return found(*fields, attempts=attempts())


#: mode -> problem -> (compiled, correct, speed-up) of each sample, by hand.
BY_HAND: dict[str, dict[Problem, list[tuple[bool, bool, float]]]] = {
    "genome": {
        PROBLEM: [(True, True, 1.0), (True, True, TORCH / 15), (False, False, 0.0)],
        OTHER: [(True, True, TORCH / 11)],
        LOST: [(True, False, 0.0)],
    },
    "policy": {PROBLEM: [(True, True, TORCH / 11)], OTHER: [(True, True, 0.0)]},
    "llm": {
        PROBLEM: [(True, True, 1.2), (True, False, 0.0), (False, False, 0.0)],
        OTHER: [(True, True, 0.6), (True, False, 0.0)],
    },
}
BY_HAND["mixed"] = {
    p: [each for mode in ("genome", "policy", "llm") for each in BY_HAND[mode].get(p, [])]
    for p in (PROBLEM, OTHER, LOST)
}
#: Screened, correct, and without finals: known to all figures but speed-ups.
STILL = {"genome": 1, "mixed": 1}


def over_subsets(values: Sequence[float], k: int) -> float:
    return fmean(max(subset) for subset in itertools.combinations(values, k))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return numbers(store())


def test_every_mode_that_proposed_is_there(document: dict[str, Any]) -> None:
    found = {x["mode"]: x for x in document["modes"]}
    assert list(found) == ["genome", "policy", "llm", "mixed"]
    assert found["genome"]["proposers"] == ["cost", "islands", "prior"]
    assert found["llm"]["proposers"] == ["llm", "llm-edit"]
    counts = {
        mode: (x["problems"], x["proposals"], x["compiled"], x["correct"])
        for mode, x in found.items()
    }
    assert counts == {
        "genome": (4, 6, 5, 4),
        "policy": (2, 2, 2, 2),
        "llm": (2, 5, 4, 2),
        "mixed": (4, 13, 11, 8),
    }
    # Alone, no mode is mixed.
    alone = [a for a in attempts() if a.proposer not in ("llm", "llm-edit")]
    only = numbers(found_with(alone))
    assert [x["mode"] for x in only["modes"]] == ["genome", "policy"]


def found_with(some: Sequence[Attempt]) -> Findings:
    return found(*store().fields, attempts=tuple(some))


@pytest.mark.parametrize("mode", BY_HAND)
def test_figures_at_k_are_means_over_all_subsets(mode: str, document: dict[str, Any]) -> None:
    (figures,) = (x for x in document["modes"] if x["mode"] == mode)
    samples = BY_HAND[mode]
    deepest = max(len(each) for each in samples.values())
    assert [x["k"] for x in figures["at_k"]] == [k for k in modes.KS if k <= deepest]
    for line in figures["at_k"]:
        k = line["k"]
        enough = [each for each in samples.values() if len(each) >= k]
        still = [1.0] * STILL.get(mode, 0) if k == 1 else []
        assert line["problems"] == len(enough) + len(still)
        compiled = fmean([over_subsets([s[0] for s in each], k) for each in enough] + still)
        passed = fmean([over_subsets([s[1] for s in each], k) for each in enough] + still)
        faster = fmean(over_subsets([s[2] for s in each], k) for each in enough)
        assert line["compile"] == pytest.approx(compiled, rel=1e-5)
        assert line["pass"] == pytest.approx(passed, rel=1e-5)
        assert line["speedup"] == pytest.approx(faster, rel=1e-5)


@pytest.mark.parametrize("mode", BY_HAND)
def test_shares_over_a_bar(mode: str, document: dict[str, Any]) -> None:
    (figures,) = (x for x in document["modes"] if x["mode"] == mode)
    samples = [[s[2] for s in each] for each in BY_HAND[mode].values()]
    for bar in (1.0, 1.05, 1.1, 1.2):
        win = fmean(max(each) > bar for each in samples)
        fast = fmean(fmean(s > bar for s in each) for each in samples)
        assert figures["win"][f"{bar:g}"] == pytest.approx(win, rel=1e-5)
        assert figures["fast"][f"{bar:g}"] == pytest.approx(fast, rel=1e-5)


def test_costs_and_hacks(document: dict[str, Any]) -> None:
    found = {x["mode"]: x for x in document["modes"]}
    # The table has the kernel c of the model on PROBLEM and the search's a on OTHER.
    cost = {m: (x["accepted"], x["gpu_seconds"], x["per_accepted"]) for m, x in found.items()}
    assert cost == {
        "genome": (1, 2.5, 2.5),
        "policy": (0, 1.0, None),
        "llm": (1, 2.0, 2.0),
        "mixed": (2, 5.5, 2.75),
    }
    hacks = {m: (x["hacks"], x["hack_rate"]) for m, x in found.items()}
    assert hacks["llm"] == (1, 0.2)
    assert hacks["genome"] == (0, 0.0)
    assert hacks["mixed"] == (1, pytest.approx(1 / 13, rel=1e-5))


def test_efficiency_is_against_the_roofline(document: dict[str, Any]) -> None:
    (llm,) = (x for x in document["modes"] if x["mode"] == "llm")
    peak = [2 * p.m * p.n * p.k / 800e6 for p in (PROBLEM, OTHER)]
    expected = (peak[0] / 10 / 3 + peak[1] / 20 / 2) / 2
    assert llm["at_k"][0]["efficiency"] == pytest.approx(expected, rel=1e-5)


def test_what_a_later_gate_found_to_cheat_is_a_hack_and_accepted_nowhere() -> None:
    some = found(*both({"c": (10.0, 12.0)}), attempts=attempts(), refused={"c": Status.HACK})
    (llm,) = (x for x in numbers(some)["modes"] if x["mode"] == "llm")
    assert (llm["hacks"], llm["correct"], llm["accepted"]) == (2, 1, 0)


def test_the_page_shows_them_and_older_documents_do_without(document: dict[str, Any]) -> None:
    text = page(document)
    assert "<h2>By mode</h2>" in text
    assert "language model" in text and "llm, llm-edit" in text
    assert "20.0% (1)" in text
    older = {name: each for name, each in document.items() if name != "modes"}
    assert "By mode" not in page(older)


def answer(status: str, speedup: float | None, m: int = 256, **more: Any) -> dict[str, Any]:
    right = status in ("OK", "SLOWER", "NOISE")
    facts = {"efficiency": 0.5} if right else {}
    return {
        "problem": [m, 512, 1024, "nn", "f16"],
        "epilogue": "none",
        "candidate": {"family": "sm90_test", "genome": {"tile": m, "mark": status}},
        "answer": {"status": status, "correct": right, "speedup": speedup, "facts": facts, **more},
    }


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    return path


def test_answers_of_an_evaluator_are_samples(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "answers.jsonl",
        answer("OK", 1.3),
        answer("SLOWER", 0.8),
        answer("HACK", None),
        answer("UNMEASURED", None),
        answer("PARSE", None, m=64),
    )
    with path.open("ab") as file:
        file.write(b'{"problem": [1')  # of a killed run
    (llm,) = modes.by_mode(modes.read_answers(path, "llm"))
    assert (llm["problems"], llm["proposals"], llm["correct"], llm["accepted"]) == (2, 4, 2, 1)
    assert (llm["compiled"], llm["hacks"]) == (3, 1)
    one, two = llm["at_k"]
    assert one["speedup"] == pytest.approx((fmean([1.3, 0.8, 0.0]) + 0.0) / 2)
    assert two["speedup"] == pytest.approx(over_subsets([1.3, 0.8, 0.0], 2))
    assert one["efficiency"] == pytest.approx((1.0 / 3 + 0.0) / 2)
    assert llm["win"]["1.2"] == 0.5
    assert llm["fast"]["1"] == pytest.approx(1 / 6)
    assert math.isnan(llm["gpu_seconds"]) and math.isnan(llm["per_accepted"])


def test_the_lines_are_those_that_an_evaluator_writes(tmp_path: Path) -> None:
    path, problem = tmp_path / "answers.jsonl", Problem(256, 1024, 512, "nt", "f16")
    evaluator = Evaluator(SimDevice(1), store=path)
    choices = Space(problem).core[::7][:4]
    answers = [
        evaluator.evaluate(Candidate.of_genome(one.family, one.genome), problem) for one in choices
    ]
    answers.append(evaluator.evaluate(Candidate.of_genome("sm90_none", {}), problem))
    (llm,) = modes.by_mode(modes.read_answers(path, "llm"))
    assert llm["proposals"] == len(answers) == 5
    assert llm["correct"] == sum(each.correct for each in answers) > 0
    best = [each.speedup or 0.0 for each in answers]
    by_k = {x["k"]: x["speedup"] for x in llm["at_k"]}
    assert by_k[2] == pytest.approx(over_subsets(best, 2))
    assert llm["win"]["1"] == float(max(best) > 1.0)
    assert modes.UNMEASURED == UNMEASURED


@pytest.mark.parametrize(
    "record",
    [
        [],
        {"answer": {}},
        {**answer("OK", 1.0), "problem": [1, 2, 3]},
        {**answer("OK", 1.0), "problem": [1, 2, 3, "zz", "f16"]},
        answer("FASTEST", 9.0),
        answer("OK", "fast"),  # type: ignore[arg-type]
    ],
)
def test_other_lines_are_refused(record: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "answers.jsonl", answer("OK", 1.3), record)
    with pytest.raises(ValueError, match=r"answers.jsonl: a line is no answer of an evaluator"):
        modes.read_answers(path, "llm")


def test_tokens_are_those_that_a_budget_spent(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    budget = Budget(ledger=ledger)
    request = Request("some model", (Message("user", "propose"),), 2, 0.0, 0, 100)
    with budget.reserve(request) as held:
        held.settle(Usage(40, 25))
    with budget.reserve(request) as held:
        held.settle(Usage(60, 75))
    assert modes.read_tokens(ledger) == budget.spent_tokens == 200
    with pytest.raises(RuntimeError), budget.reserve(request):
        raise RuntimeError("the server did not answer")  # it may have worked
    assert modes.read_tokens(ledger) == budget.spent_tokens > 200
    with ledger.open("ab") as file:
        file.write(b'{"id": "x", "held": [5')
    assert modes.read_tokens(ledger) == budget.spent_tokens, "the report changes no ledger"
    assert ledger.read_bytes().endswith(b"[5")
    samples = modes.samples_of(store(), {}, {(PROBLEM, "c"), (OTHER, "a")})
    found = {x["mode"]: x for x in modes.by_mode(samples, 200)}
    costs = {m: (x["tokens"], x["tokens_per_accepted"]) for m, x in found.items() if "tokens" in x}
    assert costs == {"llm": (200, 200.0), "mixed": (200, 100.0)}
    lines(ledger, {"id": "x"})
    with pytest.raises(ValueError, match=r"ledger.jsonl is no ledger of a budget"):
        modes.read_tokens(ledger)


def test_the_verb_takes_answers(tmp_path: Path) -> None:
    with Store(tmp_path / "run"):
        pass
    path = lines(tmp_path / "answers.jsonl", answer("OK", 1.25), answer("HACK", None))
    ledger = lines(tmp_path / "ledger.jsonl", {"id": "1", "spent": [30, 12]})
    options = ("--answers", f"llm={path}", "--ledger", ledger)
    code, _, error = generate("report", tmp_path / "run", *options)
    assert (code, error) == (0, "")
    document = json.loads((tmp_path / "run" / "report" / "report.json").read_text())
    (llm,) = document["modes"]
    assert llm["win"] == {"1": 1.0, "1.05": 1.0, "1.1": 1.0, "1.2": 1.0}
    assert llm["hack_rate"] == 0.5
    assert llm["per_accepted"] is None, "no GPU time is known"
    assert llm["tokens_per_accepted"] == 42
    code, _, error = generate("report", tmp_path / "run", "--answers", str(path))
    assert code == 2 and "say llm=FILE.jsonl" in error
