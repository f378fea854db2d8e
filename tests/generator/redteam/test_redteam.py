"""The red-team corpus: what a CPU can decide of it, and the GPU stage with made-up verdicts."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, sass
from hgemm_packs.generator.core.spec import CompiledKernel, Status, Verdict
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.gates import sweep
from hgemm_packs.generator.gates.sanitizer import SanitizerUnavailable
from hgemm_packs.generator.redteam import corpus, on_gpu, run
from hgemm_packs.generator.redteam.book import Book
from hgemm_packs.generator.run import evaluate

pytestmark = pytest.mark.usefixtures("kept")

CASES = {case.name: case for case in corpus.load()}
BAD = [name for name, case in CASES.items() if not case.honest]


@pytest.fixture(scope="module")
def report(kept: str) -> Iterator[run.Report]:
    """The whole CPU stage."""
    steps: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGEMM_PACKS_CACHE", kept)
        made = run.run("cpu", lambda done, total: steps.append((done, total)))
        assert steps == [(i + 1, len(CASES)) for i in range(len(CASES))]
        yield made


@pytest.mark.parametrize("name", CASES)
def test_each_case_gets_as_far_as_it_must(report: run.Report, name: str) -> None:
    """Rejected by its gate, or passed on to the gates of a GPU by all before them."""
    outcome = next(each for each in report.cases if each.name == name)
    expected = ["pass"] if CASES[name].needs_gpu else outcome.expect
    assert outcome.got_gate in expected, outcome.detail
    assert outcome.undecided == (CASES[name].needs_gpu and name in BAD)


def test_cases_can_be_named() -> None:
    names = ["splitk_deep", "swapab"]
    assert sorted(case.name for case in run.choose(corpus.load(), names)) == names
    assert [case.name for case in run.choose(corpus.load(), ())] == list(CASES)
    with pytest.raises(ValueError, match="no case swapba in the corpus"):
        run.run("cpu", names=["swapab", "swapba"])


def test_the_report_counts_what_was_decided(report: run.Report) -> None:
    document = report.document()
    assert json.loads(json.dumps(document)) == document
    assert report.clean
    assert document["rejected"] == document["total"] >= 44
    assert document["honest_passed"] == document["honest_total"] >= 45
    assert document["undecided"] >= 50
    whole = document["total"] + document["honest_total"] + document["undecided"]
    assert whole == len(document["cases"]) == len(CASES)


def test_a_case_rejected_by_another_gate_is_no_success() -> None:
    cases = [
        run.CaseOutcome("a", "", ["binary"], "binary", "", 0.1),
        run.CaseOutcome("b", "", ["binary"], "static", "", 0.1),
        run.CaseOutcome("c", "", ["binary"], "pass", "", 0.1),
        run.CaseOutcome("d", "", ["pass"], "numeric", "", 0.1),
        run.CaseOutcome("e", "", ["pass"], "pass", "", 0.1),
        run.CaseOutcome("f", "", ["numeric", "sanitizer"], "sanitizer", "", 0.1),
        run.CaseOutcome("g", "", ["numeric"], "pass", "", 0.1, undecided=True),
    ]
    report = run.Report("cpu", tuple(cases))
    document = report.document()
    counts = ("total", "rejected", "honest_total", "honest_passed", "undecided")
    assert [document[name] for name in counts] == [4, 2, 2, 1, 1]
    assert not report.clean


def test_the_corpus_covers_every_gate_and_every_file_is_a_case() -> None:
    gates = [case.expect[0] for case in CASES.values() if case.expect]
    assert set(gates) == set(corpus.GATES)
    least_of = {"static": 15, "build": 4, "binary": 15, "dataflow": 50, "numeric": 30, "state": 10}
    for gate, least in least_of.items():
        assert gates.count(gate) >= least, gate
    files = {path.stem for path in (corpus.HERE / "kernels").glob("*.cu")}
    text = (corpus.HERE / "corpus.toml").read_text()
    assert {
        name for name in files if name not in CASES and f'kernel = "{name}"' not in text
    } == set()
    assert all(case.what.endswith(".") for case in CASES.values())


def test_the_compiler_leaves_in_what_only_tools_see(report: run.Report) -> None:
    """Loads that nothing needs and barriers of one warp are easily optimised away."""
    counts = {}
    for name in ("plain", "reads_behind_a", "reads_c", "divergent_barrier"):
        one = CASES[name].candidate
        assert one is not None
        counts[name] = sass.census(compiler.build_source(one.source, one.fields).cubin).opcodes
    loads = counts["plain"]["LDG"]
    assert counts["reads_behind_a"]["LDG"] == loads + 1
    assert counts["reads_c"]["LDG"] == loads + 4
    assert counts["plain"].get("BAR", 0) == 0
    assert counts["divergent_barrier"]["BAR"] == 4, "two meetings, two branches"


def test_a_source_that_fools_the_static_gate_meets_one_that_reads_the_code() -> None:
    twice = [name for name in CASES if CASES[name].fooled == ("static",)]
    assert len(twice) >= 10
    for name in twice:
        assert CASES[name].expect[0] in ("binary", "dataflow")
        assert CASES[name.removesuffix("_behind")].expect == ("static",)


def test_what_follows_no_operand_is_wrong_without_the_dataflow_gate_as_well() -> None:
    """A kernel that the data-flow gate refuses and a GPU gate refused before is a case twice."""
    twice = [name for name in CASES if CASES[name].fooled[:1] == ("dataflow",)]
    assert len(twice) >= 25
    gates = {"coverage", "numeric", "state", "sanitizer", "isolation"}
    for name in twice:
        assert CASES[name].expect[0] in gates - {*CASES[name].fooled}
        again = name.removesuffix("_behind").removesuffix("_counted")
        assert CASES[again].expect == ("dataflow",)


def test_what_runs_before_the_grid_ahead_has_ended_is_read_off_the_code(
    report: run.Report,
) -> None:
    details = {each.name: each.detail for each in report.cases}
    for name, words in {
        "reads_before_the_grid_ahead": "LDG",
        "lets_the_next_grid_start_first": "PREEXIT",
        "leaves_before_the_grid_ahead": "EXIT",
        "never_waits": "EXIT, LDG, PREEXIT, STG",
        "writes_before_the_grid_ahead": "EXIT, LDG, STG",
        "opens_its_door_first": "PREEXIT",
        "opens_its_door_unasked": "PREEXIT",
    }.items():
        assert details[name] == f"upstream: {words} before the grid ahead has ended"


def test_every_family_has_honest_cases_of_both_types_and_most_layouts() -> None:
    kinds: dict[str, set[tuple[str, str]]] = {}
    for case in CASES.values():
        if case.honest and case.candidate is not None:
            fields = case.candidate.fields
            kinds.setdefault(fields["family"], set()).add((fields["layout"], fields["dtype"]))
    assert kinds.keys() == {*FAMILIES, "foreign"}
    for name, found in kinds.items():
        assert {dtype for _, dtype in found} == {"f16", "bf16"}, name
        layouts = {layout for layout, _ in found}
        assert len(layouts) >= 2, name
    slices = {
        case.candidate.fields["genome"].get("slices", 1)
        for case in CASES.values()
        if case.candidate is not None
    }
    assert slices == {1, 2, 4, 16}


def test_a_change_of_what_a_family_does_not_say_is_refused() -> None:
    assert corpus._change_source("a; b;", [["a;", "c;"], ["b", "d"]]) == "c; d;"
    with pytest.raises(KeyError, match="door"):
        corpus._change_source("a; b;", [["door", ""]])


def test_every_family_that_can_read_ahead_has_honest_cases_that_do() -> None:
    families = {name for name, one in FAMILIES.items() if "reads_ahead" in one.genes}
    fields = [case.candidate.fields for case in CASES.values() if case.honest and case.candidate]
    assert families == {each["family"] for each in fields if each.get("reads_ahead")}
    assert len(families) == 6


def test_stages_are_a_closed_set() -> None:
    with pytest.raises(ValueError, match="'both'"):
        run.run("both")  # type: ignore[arg-type]


class FakeGpu:
    """Stands in for everything that the GPU stage calls: each case does what it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch, behaviour: dict[str, str]) -> None:
        self.behaviour = behaviour
        self.order: list[str] = []
        self.kept: list[str] = []
        self.groups: list[list[str]] = []
        self.ways: dict[str, list[tuple[int, int, int]]] = {}
        self.started = 0
        patch.setattr(on_gpu, "_start_worker", lambda device: self.worker())
        patch.setattr(evaluate, "numeric_gate", self.numeric)
        patch.setattr(evaluate, "state_gate", self.keep)
        patch.setattr(sweep, "check_groups", self.sanitize)
        patch.setattr(evaluate, "measure_facts", lambda worker, device: corpus.device_facts())
        patch.setattr(evaluate, "call_gate", self.measure)

    def worker(self) -> FakeWorker:
        self.started += 1
        return FakeWorker()

    def does(self, kernel: CompiledKernel) -> str:
        return self.behaviour.get(str(kernel.fields["name"]), "")

    def numeric(
        self,
        worker: FakeWorker,
        kernel: CompiledKernel,
        device: int,
        limit_s: float,
        further: Mapping[str, Any],
    ) -> Verdict:
        assert worker.alive, "a process that saw a bad kernel is used again"
        assert further.keys() <= {"planned", "ways"}
        self.order.append(str(kernel.fields["name"]))
        time.sleep(0.001)
        does = self.does(kernel)
        if does == "error":
            raise RuntimeError("out of memory")
        if does not in ("numeric", "isolation"):
            return Verdict("numeric", Status.OK)
        worker.close()
        return Verdict(does, Status.NUMERIC if does == "numeric" else Status.TIMEOUT, "wrong")

    def keep(self, worker: FakeWorker, kernel: CompiledKernel, *_: Any) -> Verdict:
        """The state gate, in the process of the numeric gate."""
        assert worker.alive, "a process that saw a bad kernel is used again"
        self.kept.append(str(kernel.fields["name"]))
        if self.does(kernel) != "state":
            return Verdict("state", Status.OK)
        worker.close()
        return Verdict("state", Status.NUMERIC, "wrong later")

    def sanitize(self, groups: list[Any], seats: list[None]) -> Iterator[tuple[int, list[Verdict]]]:
        assert len(seats) == (os.cpu_count() or 1)
        self.groups = [[entry.name for entry, *_ in group] for group in groups]
        self.ways = {entry.name: ways for group in groups for entry, _, ways in group}
        if "unavailable" in self.behaviour.values():
            raise SanitizerUnavailable("not here")
        for place, names in reversed([*enumerate(self.groups)]):
            found = [self.behaviour.get(name) == "sanitizer" for name in names]
            words = [(Status.SANITIZER, "hazard") if bad else (Status.OK, "") for bad in found]
            yield place, [Verdict("sanitizer", *each) for each in words]

    def measure(self, worker: FakeWorker, *arguments: Any, limit_s: float) -> Verdict:
        us = 1e-6 if self.does(arguments[2]) == "plausibility" else 50.0
        evidence = {"samples": {"hot": [us], "cold": [us]}, "baselines": {}}
        return Verdict("timing", Status.OK, "", evidence)


class FakeWorker:
    def __init__(self) -> None:
        self.alive = True

    def close(self) -> None:
        self.alive = False


def gpu_stage(
    monkeypatch: pytest.MonkeyPatch, book: Book | None = None, **behaviour: str
) -> tuple[FakeGpu, dict[str, Any]]:
    """A GPU stage over a few cases, all of which behave as expected but for `behaviour`."""
    names = (
        "plain",
        "split_k",
        "half_chunks_behind",
        "race_by_luck_behind",
        "spins_behind",
        "no_code",
        "nan_dropped_behind",
        "bomb_in_shared_behind",
    )
    chosen = tuple(CASES[name] for name in names)
    usual = {case.name: case.expect[0] for case in chosen if case.expect}
    gpu = FakeGpu(monkeypatch, usual | behaviour)
    monkeypatch.setattr(corpus, "load", lambda: chosen)
    steps: list[tuple[int, int]] = []
    told = run.run("gpu", lambda done, total: steps.append((done, total)), book=book)
    document = told.document()
    assert [done for done, _ in steps][-1] == len(names)
    return gpu, document


def test_the_gpu_stage_decides_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, document = gpu_stage(monkeypatch)
    counts = ("total", "rejected", "honest_total", "honest_passed", "undecided")
    assert [document[name] for name in counts] == [6, 6, 2, 2, 0]
    assert sorted(gpu.kept) == ["bomb_in_shared_behind", "plain", "split_k"]
    assert sorted(gpu.order) == [
        "bomb_in_shared_behind",
        "half_chunks_behind",
        "nan_dropped_behind",
        "plain",
        "race_by_luck_behind",
        "spins_behind",
        "split_k",
    ]
    assert gpu.order[-1] == "spins_behind", "what kills its process comes last"
    assert gpu.groups == [["race_by_luck_behind"], ["plain", "split_k"]]
    assert {m > 1 for m, _, _ in gpu.ways["plain"]} == {True, False}, "what the size gate asks for"


@pytest.mark.parametrize(
    ("name", "does", "got"),
    [
        ("plain", "numeric", "numeric"),
        ("plain", "isolation", "isolation"),
        ("plain", "state", "state"),
        ("bomb_in_shared_behind", "", "pass"),
        ("bomb_in_shared_behind", "numeric", "numeric"),
        ("split_k", "sanitizer", "sanitizer"),
        ("split_k", "plausibility", "plausibility"),
        ("half_chunks_behind", "", "pass"),
        ("half_chunks_behind", "isolation", "isolation"),
        ("race_by_luck_behind", "", "pass"),
        ("race_by_luck_behind", "unavailable", "unavailable"),
        ("spins_behind", "", "pass"),
        ("nan_dropped_behind", "error", "error"),
    ],
)
def test_what_goes_wrong_on_a_gpu_is_told(
    monkeypatch: pytest.MonkeyPatch, name: str, does: str, got: str
) -> None:
    _, document = gpu_stage(monkeypatch, **{name: does})
    wrong = {
        case["name"]: case["got_gate"]
        for case in document["cases"]
        if case["got_gate"] not in case["expect"]
    }
    assert wrong == {name: got}
    assert document["total"] + document["honest_total"] == 8


def test_the_times_of_honest_kernels_are_of_problems_that_they_admit() -> None:
    for name, case in CASES.items():
        if case.honest and case.candidate is not None:
            kernel = CompiledKernel(case.candidate.fields, b"\0")
            problem = on_gpu._problem(kernel)
            entry = on_gpu.entry(kernel.fields)
            assert entry.admits(problem) is None, name
            assert math.prod((problem.m, problem.n, problem.k)) >= 64**3
