"""Mutants: drawn by a seed, judged, gone on with after a kill, summed up by a rule."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile.candidate import Candidate
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.gates.isolation import IsolationError
from hgemm_packs.generator.redteam.mutation import (
    bases,
    draw,
    judge,
    report,
    run,
)
from hgemm_packs.generator.redteam.mutation.operators import OPERATORS
from tests.generator.redteam.killed_mutants import SEED, Judges, line
from tests.generator.redteam.planted import BY_NAME, planted

pytestmark = pytest.mark.usefixtures("kept")


def test_a_mutant_follows_from_seed_and_number_alone() -> None:
    """In a fresh process too, whatever was drawn before."""
    numbers = (7, 18, 65, 3 * len(OPERATORS) + 40)
    program = (
        "import json, sys; from hgemm_packs.generator.redteam.mutation.draw import draw\n"
        "for n in json.loads(sys.argv[1])[::-1]:\n"
        "  m = draw(11, n)\n"
        "  print(json.dumps([m.document(), m.candidate.source, m.candidate.fields]))"
    )
    words = [sys.executable, "-c", program, json.dumps(numbers)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    for number, text in zip(numbers[::-1], done.stdout.splitlines(), strict=True):
        mutant = draw.draw(11, number)
        found = [mutant.document(), mutant.candidate.source, mutant.candidate.fields]
        assert json.loads(text) == json.loads(json.dumps(found))
        assert draw.draw(12, number).document() != mutant.document()


def test_mutants_go_evenly_over_operators_and_over_families() -> None:
    drawn = [draw.draw(2, number) for number in range(3 * len(OPERATORS))]
    operators = [mutant.operator for mutant in drawn]
    assert operators == [operator.name for operator in OPERATORS] * 3
    families = [mutant.base.choice.family for mutant in drawn]
    assert {*families} == {*bases.EVERY}
    assert min(families.count(name) for name in bases.EVERY) >= 6
    kinds = {(m.base.fields["layout"], m.base.fields["dtype"]) for m in drawn}
    assert len(kinds) == 8
    assert len({m.base.fields["epilogue"] for m in drawn}) >= 5


@pytest.mark.parametrize(
    ("name", "text", "family", "gate", "words"),
    [
        ("clip_result", "fminf", "sm90_direct", "dataflow", "compare: a sum"),
        ("round_otherwise", "cvt.rz.", "sm90_direct", "dataflow", "rounding: a sum"),
        ("drop_sign_of_zero", "+ 0.0f", "sm90_unaligned", "dataflow", "arithmetic: a finished"),
        ("not_cleared", "+  Accumulator acc", "sm90_direct", "dataflow", "product: added to what"),
        ("keep_sums", "1);", "sm90_splitk", "dataflow", "product: added to what some path has"),
        ("drop_product", "mma16816", "sm90_direct", "binary", "mma: no tensor-core instruction"),
        ("drop_wait", "-  wait_for_upstream();", "sm90_direct", "binary", "upstream: "),
        (
            "wait_by_one",
            "0) barrier_wait(&barriers.full",
            "sm90_tokens",
            "dataflow",
            "product: some",
        ),
    ],
)
def test_a_gate_of_the_cpu_catches(
    name: str, text: str, family: str, gate: str, words: str
) -> None:
    outcome, by, detail, *_ = judge.decide(planted(name, text, family))
    assert (outcome, by) == (judge.CAUGHT, gate)
    assert words in detail


def test_what_only_a_gpu_can_tell_stays_undecided() -> None:
    """How a family lays tiles by sizes is its own; a block by its number is not, and is among the
    problems that a GPU is asked."""
    mutant = planted("skip_product", "blockIdx.x != 131", "sm90_direct")
    decided, fields = judge.decide(mutant), mutant.candidate.fields
    assert decided[:3] == (judge.UNDECIDED, "", "")
    assert not decided.asked["large"]
    for name in ("planned", "ways"):
        rows = max(m for m, *_ in decided.asked[name])
        assert -(-rows // fields["grid"]["tile_m"]) * fields["genome"]["cluster_k"] > 131


def test_a_line_keeps_what_the_size_gate_asks_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = Verdict("coverage", Status.OK, "", {"planned": [[33, 8, 8]], "ways": [[9, 8, 8]]})
    monkeypatch.setattr(judge, "gates", lambda one: [passed])
    monkeypatch.setattr(judge, "is_same", lambda built, mutant: False)
    kept = [each for each in (judge.judge(1, n) for n in range(6)) if "planned" in each]
    assert judge.UNDECIDED in {each["outcome"] for each in kept}
    for each in kept:
        asked = [[33, 8, 8]] if each["outcome"] == judge.UNDECIDED else []
        assert each["planned"] == asked
        assert bool(each["ways"]) is bool(asked)


def test_only_the_same_instructions_and_the_same_record_are_equivalent() -> None:
    """A comment changes no byte; a tile declared smaller changes no byte of the cubin either."""
    base = bases.draw(1, 0, "sm90_direct")
    said = "the same instructions and the same launch record"

    def mutant(source: str, fields: Any) -> draw.Mutant:
        made = Candidate(source, fields)
        return draw.Mutant(1, 0, "", "values", base, "", 1, (), made)

    same = mutant(base.source + "\n// nothing\n", dict(base.fields))
    assert judge.decide(same)[:3] == (judge.EQUIVALENT, "", said)
    half = base.fields["grid"]["tile_n"] // 2
    smaller = draw.with_value(base.fields, "grid.tile_n", half)
    assert judge.decide(mutant(base.source, smaller))[:2] == (judge.CAUGHT, "coverage")
    odd = draw.with_value(base.fields, "grid.slices", 2)
    assert judge.decide(mutant(base.source, odd))[:2] == (judge.CAUGHT, "record")


def test_what_the_compiler_refuses_is_not_planted() -> None:
    mutant = planted("drop_wait", "-  wait_for_upstream();")
    broken = Candidate(mutant.candidate.source + "\nint;;x", mutant.candidate.fields)
    outcome, gate, detail, *_ = judge.decide(
        draw.Mutant(1, 0, "", "order", mutant.base, "", 1, (), broken)
    )
    assert (outcome, gate) == (judge.UNBUILT, "")
    assert "compilation failed" in detail


def test_a_fault_in_what_is_refused_anyway_is_not_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_refusal", lambda choice: "binary: spills")
    mutant = planted("clip_result", "fminf")
    assert judge.decide(mutant)[:3] == (judge.BASE, "", "binary: spills")


class Dying:
    """A process that the compiler takes down, or that our own code fails in."""

    alive = True

    def __init__(self, error: Exception) -> None:
        self.error = error

    def call(self, *arguments: Any, timeout_s: float) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "outcome", "detail"),
    [
        (IsolationError(Status.TIMEOUT, "no answer"), judge.UNBUILT, "no end after 180 s"),
        (IsolationError(Status.LAUNCH, "SIGSEGV"), judge.UNBUILT, "the compiler died: SIGSEGV"),
        (RuntimeError("KeyError: 'x'"), judge.ERROR, "KeyError: 'x'"),
    ],
)
def test_a_lost_process_is_a_line(error: Exception, outcome: str, detail: str) -> None:
    found = run.judge_apart(Dying(error), 1, 4)  # type: ignore[arg-type]
    assert found == {"number": 4, "outcome": outcome, "gate": "", "detail": detail}


def test_a_killed_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "mutants.jsonl"
    words = [sys.executable, "-m", "tests.generator.redteam.killed_mutants", str(lines), "40"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(6):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    before = {each["number"] for each in map(json.loads, lines.read_text().splitlines()[1:])}
    assert 4 <= len(before) < 40
    with lines.open("a") as file:
        file.write('{"number": 39, "outco')  # torn
    monkeypatch.setattr(run, "Worker", Judges)
    monkeypatch.setattr(Judges, "judged", [])
    seen: list[tuple[int, int]] = []
    found = run.run(run.Plan(SEED, 40, lines, 2), lambda done, total: seen.append((done, total)))
    assert sorted(found) == [*range(40)]
    assert sorted(Judges.judged) == sorted({*range(40)} - before)
    assert seen[0] == (len(before), 40)
    assert seen[-1] == (40, 40)
    kept = [json.loads(text) for text in lines.read_text().splitlines()]
    assert sorted(each["number"] for each in kept if "number" in each) == [*range(40)]


def test_lines_of_another_run_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = tmp_path / "mutants.jsonl"
    monkeypatch.setattr(run, "Worker", Judges)
    run.run(run.Plan(SEED, 3, lines, 1))
    with pytest.raises(ValueError, match=rf"mutants\.jsonl has the mutants of seed {SEED}$"):
        run.run(run.Plan(SEED + 1, 3, lines, 1))
    monkeypatch.setattr(run, "of_what", lambda: "others")
    with pytest.raises(ValueError, match="mutants of other sources or operators"):
        run.run(run.Plan(SEED, 3, lines, 1))


LINES = [
    line(0, "caught", "dataflow"),
    line(1, "caught", "numeric", gpu_seconds=2.0),
    line(2, "slipped", detail="bits differ"),
    line(3, "unseen", operator="drop_hint", diff=["-  hint();", "+  ;"]),
    line(4, "unseen", operator="drop_hint", diff=["-  wait();", "+  ;"]),
    line(5, "undecided"),
    line(6, "equivalent"),
    line(7, "not compiled"),
    line(8, "slipped", operator="drop_hint", diff=["-  hint();", "+  ;"]),
    {"number": 9, "outcome": "no place", "gate": "", "detail": "", "seconds": 0.1},
]


def test_the_report_sums_by_gate_kind_and_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument makes a mutant equivalent only where no bit was seen to differ."""
    argument = report.Argument("drop_hint", "hint();", "a hint")
    monkeypatch.setattr(report, "arguments", lambda: (argument,))
    found = report.document(LINES, 5)
    assert json.loads(json.dumps(found)) == found
    names = ("drawn", "planted", "caught", "caught_share", "slipped", "unseen", "undecided")
    assert [found[name] for name in names] == [10, 6, 2, 0.3333, 2, 1, 1]
    assert found["by_gate"] == {"dataflow": 1, "numeric": 1}
    assert found["not_planted"] == {
        "no place": 1,
        "base refused": 0,
        "not compiled": 1,
        "equivalent": 1,
        "error": 0,
        "equivalent, argued": 1,
    }
    assert found["by"]["kind"]["order"]["caught"] == 1
    assert found["by"]["kind"]["values"]["planted"] == 4
    assert found["by"]["kind"]["values"]["caught_share"] == 0.25
    assert found["by"]["operator"]["drop_hint"]["by_gate"] == {}
    assert found["operators"]["drop_hint"] == {"equivalent, argued": 1, "slipped": 1, "unseen": 1}
    assert [each["number"] for each in found["through"]] == [2, 4, 8]
    assert found["through"][0]["family"] == "sm90_direct"
    assert found["seconds"] == {"seconds": 4.6, "gpu_seconds": 2.0}


def test_an_argument_may_hold_for_a_smaller_number_alone() -> None:
    argument = report.Argument("depth", "-stages: ", "room", falls=True)
    fewer, more = (
        line(0, operator="depth", diff=[f"-stages: {was}", f"+stages: {is_}"])
        for was, is_ in ((12, 6), (6, 12))
    )
    assert argument.holds(fewer) and not argument.holds(more)
    assert not argument.holds({**fewer, "operator": "another"})


def test_an_argument_may_hold_for_one_change_of_a_line_alone() -> None:
    argument = report.Argument("swap_sides", "a < 1 << 20", "a limit", after="(20) << (1)")
    limit, quotient = (
        line(0, operator="swap_sides", diff=["-a < 1 << 20 ? q : a / b", f"+{now}"])
        for now in ("a < ((20) << (1)) ? q : a / b", "a < 1 << 20 ? q : ((b) / (a))")
    )
    assert argument.holds(limit) and not argument.holds(quotient)


def test_an_argument_may_hold_for_some_genes_alone() -> None:
    argument = report.Argument("drop_clamp", "min_of", "one", genome={"group": 1})
    one, two = (
        line(0, operator="drop_clamp", diff=["-min_of", "+"], genome={"group": n, "stages": 4})
        for n in (1, 2)
    )
    assert argument.holds(one) and not argument.holds(two)


@pytest.mark.parametrize(
    ("name", "value", "other"),
    [("where", "announce", "store"), ("family", "sm90_splitk", "sm90_wgmma")],
)
def test_an_argument_may_hold_in_one_function_or_family_alone(
    name: str, value: str, other: str
) -> None:
    argument = report.Argument("drop_wait", "wait", "one", **{name: value})
    known = {"where": "announce", "family": "sm90_splitk"}
    there, elsewhere = (
        line(0, operator="drop_wait", diff=["-wait();", "+;"], **{**known, name: is_at})
        for is_at in (value, other)
    )
    assert argument.holds(there) and not argument.holds(elsewhere)


def test_every_argument_is_of_an_operator_and_has_a_reason() -> None:
    for argument in report.arguments():
        assert argument.operator in BY_NAME
        assert argument.before.strip()
        assert argument.reason.endswith(".")
