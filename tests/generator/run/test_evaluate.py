"""One candidate through the gates of a device: their order, and what ends it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile.candidate import (
    candidate,
)
from hgemm_packs.generator.core.spec import (
    CompiledKernel,
    DeviceFacts,
    Job,
    Reply,
    Status,
    Verdict,
)
from hgemm_packs.generator.devices import in_process
from hgemm_packs.generator.gates import sanitizer, sweep
from hgemm_packs.generator.gates.isolation import IsolationError
from hgemm_packs.generator.gates.numeric import Numeric, NumericError
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.redteam.mutation import bases
from hgemm_packs.generator.run import evaluate
from tests.generator.run.candidate_files import PROBLEM, SOURCE


def case(name: str) -> Any:
    found = next(each for each in corpus.load() if each.name == name)
    assert found.candidate is not None
    return found.candidate


class FakeWorker:
    """Answers as an isolated process would; `answers` by the name of the function."""

    answers: ClassVar[dict[str, Any]] = {}
    calls: ClassVar[list[tuple[str, int]]] = []
    made = 0

    def __init__(self) -> None:
        FakeWorker.made += 1
        self.number = FakeWorker.made
        self.alive = True

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.alive = False

    def call(self, function: Callable[..., Any], *arguments: Any, timeout_s: float) -> Any:
        assert self.alive and timeout_s > 0
        FakeWorker.calls.append((function.__name__, self.number))
        answer = FakeWorker.answers[function.__name__]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def timed(hot: float, cold: float, rival: float = 10.0) -> dict[str, Any]:
    samples = {"hot": [hot] * 5, "cold": [cold] * 5}
    baselines = {
        "torch": {"hot": [rival * 2] * 5, "cold": [rival * 2] * 5},
        "cublaslt": {"hot": [rival] * 5, "cold": [rival] * 5},
    }
    return in_process._answer("timing", Status.OK, samples=samples, baselines=baselines)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, kept: str) -> type[FakeWorker]:
    FakeWorker.calls, FakeWorker.made = [], 0
    facts = {n: getattr(corpus.device_facts(), n) for n in DeviceFacts.__slots__}
    FakeWorker.answers = {
        "warm_up": "here",
        "numeric_gate": in_process._answer("numeric", Status.OK, shapes_tested=90),
        "state_gate": in_process._answer("state", Status.OK, in_a_row=16640),
        "ceilings": facts,
        "measure": timed(5.0, 6.0),
    }
    monkeypatch.setattr(evaluate, "Worker", FakeWorker)
    clean = Verdict("sanitizer", Status.OK)
    monkeypatch.setattr(sweep, "check_groups", lambda groups, seats: [(0, [clean])])
    return FakeWorker


def on_device() -> list[Verdict]:
    return evaluate.evaluate(case("plain"), PROBLEM, device=0)


def test_all_gates_of_a_good_kernel(fake: type[FakeWorker]) -> None:
    verdicts = on_device()
    assert [v.gate for v in verdicts] == [
        "static",
        "build",
        "binary",
        "dataflow",
        "coverage",
        "numeric",
        "state",
        "sanitizer",
        "plausibility",
        "timing",
    ]
    assert all(v.passed and v.detail == "" for v in verdicts)
    found = verdicts[-1].evidence
    assert found["hot"] == {
        **{"us": 5.0, "torch_us": 20.0, "cublaslt_us": 10.0},
        **{"speedup": 4.0, "lcb": 4.0},
    }
    assert found["cold"]["us"] == 6.0
    assert {number for name, number in fake.calls if name == "numeric_gate"} == {1}
    assert {number for name, number in fake.calls if name == "measure"} == {2}


@pytest.mark.parametrize(
    ("answer", "gate", "status"),
    [
        (in_process._answer("numeric", Status.NUMERIC, "wrong"), "numeric", Status.NUMERIC),
        (in_process._answer("isolation", Status.LAUNCH, "lost"), "isolation", Status.LAUNCH),
        (IsolationError(Status.TIMEOUT, "no answer"), "isolation", Status.TIMEOUT),
        (IsolationError(Status.LAUNCH, "killed by SIGSEGV"), "isolation", Status.LAUNCH),
    ],
)
def test_a_bad_kernel_ends_with_its_process(
    fake: type[FakeWorker], answer: Any, gate: str, status: Status
) -> None:
    fake.answers["numeric_gate"] = answer
    verdicts = on_device()
    assert [v.gate for v in verdicts] == ["static", "build", "binary", "dataflow", "coverage", gate]
    assert verdicts[-1].status is status
    assert fake.made == 1


def test_what_is_wrong_later_is_told_by_the_state_gate_in_the_same_process(
    fake: type[FakeWorker],
) -> None:
    words = "A at the end of a mapping, 21x24x344: CUDA error: an illegal memory access"
    fake.answers["state_gate"] = in_process._answer("state", Status.NUMERIC, words)
    verdicts = on_device()
    assert [v.gate for v in verdicts][-2:] == ["numeric", "state"]
    assert (verdicts[-1].status, verdicts[-1].detail) == (Status.NUMERIC, words)
    assert fake.made == 1
    gates = [name for name, _ in fake.calls if name.endswith("gate")]
    assert gates == ["numeric_gate", "state_gate"]


def test_a_device_that_fails_for_its_own_reasons_condemns_no_kernel(
    fake: type[FakeWorker],
) -> None:
    fake.answers["numeric_gate"] = RuntimeError("OutOfMemoryError: 3 GiB")
    with pytest.raises(RuntimeError, match="OutOfMemory"):
        on_device()


def test_findings_of_the_sanitizer_end_it(
    fake: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Verdict("sanitizer", Status.SANITIZER, "racecheck: hazard")
    monkeypatch.setattr(sweep, "check_groups", lambda groups, seats: [(0, [bad])])
    assert on_device()[-1] == bad


def test_a_sanitizer_that_is_not_there_is_said(
    fake: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(groups: object, seats: object) -> None:
        raise sanitizer.SanitizerUnavailable("no compute-sanitizer")

    monkeypatch.setattr(sweep, "check_groups", absent)
    verdicts = {v.gate: v for v in on_device()}
    assert verdicts["sanitizer"].evidence == {"skipped": "no compute-sanitizer"}
    assert verdicts["timing"].passed


@pytest.mark.parametrize(
    ("measured", "status", "words"),
    [
        (timed(18.0, 22.0), Status.SLOWER, "hot 1.111x torch, cold 0.909x torch"),
        (timed(22.0, 22.0), Status.SLOWER, "hot 0.909x torch"),
        (timed(18.0, 18.0), Status.OK, ""),  # cuBLASLt's best takes 10: torch would not use it
    ],
)
def test_a_win_is_hot_and_cold(
    fake: type[FakeWorker], measured: dict[str, Any], status: Status, words: str
) -> None:
    fake.answers["measure"] = measured
    verdict = on_device()[-1]
    assert (verdict.gate, verdict.status) == ("timing", status)
    assert verdict.detail.startswith(words)


def test_a_win_within_its_own_spread_is_noise(fake: type[FakeWorker]) -> None:
    answer = timed(18.0, 18.0)
    answer["evidence"]["samples"]["cold"] = [19.8, 24.0, 19.6, 24.0, 19.8]
    fake.answers["measure"] = answer
    assert on_device()[-1].status is Status.NOISE


def test_times_below_the_floor_are_a_hack(fake: type[FakeWorker]) -> None:
    fake.answers["measure"] = timed(1e-5, 5.0)
    verdict = on_device()[-1]
    assert (verdict.gate, verdict.status) == ("plausibility", Status.HACK)


def test_a_suspect_time_is_measured_again_in_a_fresh_process(
    fake: type[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bound by arithmetic on this made-up device, and 1.5 times the best baseline."""
    slow = DeviceFacts("made up", "sm_90a", 132, 1 << 20, peak_tflops=0.06, peak_gbps=1e6)
    fake.answers["ceilings"] = {n: getattr(slow, n) for n in DeviceFacts.__slots__}
    fake.answers["measure"] = [timed(9.5, 9.5, rival=15.0), timed(9.6, 9.7)]
    verdicts = on_device()
    assert [v.gate for v in verdicts[-2:]] == ["plausibility", "timing"]
    assert verdicts[-1].evidence["hot"]["us"] == 9.6
    assert len({number for name, number in fake.calls if name == "measure"}) == 2


def test_wrong_values_in_a_timed_launch_end_it(fake: type[FakeWorker]) -> None:
    fake.answers["measure"] = in_process._answer("numeric", Status.NUMERIC, "timed launch, hot")
    verdict = on_device()[-1]
    assert (verdict.gate, verdict.detail) == ("numeric", "timed launch, hot")


@pytest.mark.parametrize(
    ("error", "gate", "status"),
    [
        (None, "numeric", Status.OK),
        (NumericError("depth 1x2x3: 4 elements wrong"), "numeric", Status.NUMERIC),
        (RuntimeError("CUDA error: an illegal memory access"), "isolation", Status.LAUNCH),
        (ValueError("N=12: this kernel takes 8 to 64"), "isolation", Status.LAUNCH),
        (PackError("unfit", "no such map", "tma"), "isolation", Status.LAUNCH),
    ],
)
def test_what_the_isolated_process_answers(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, gate: str, status: Status
) -> None:
    given: list[Any] = []

    def check(*arguments: Any) -> Numeric:
        given.extend(arguments)
        if error is not None:
            raise error
        return Numeric(max_rel_err=2e-4, shapes_tested=90)

    monkeypatch.setattr(in_process.numeric, "check", check)
    loaded = SimpleNamespace(max_ctas=264)
    monkeypatch.setattr(in_process.launcher, "load", lambda *_: loaded)
    info = SimpleNamespace(sm_count=132)
    monkeypatch.setattr(in_process.launcher, "device_info", lambda index: info)
    answer = in_process.numeric_gate(CompiledKernel(case("plain").fields, b"cubin"), 0, 7)
    assert (answer["gate"], answer["status"]) == (gate, status.value)
    assert answer["detail"] == ("" if error is None else str(error))
    assert given[3:] == [132, 7, 264, (), (), []]
    assert json.loads(json.dumps(answer)) == answer


def test_batches_and_groups_meet_the_gate_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant of a kernel of batches was launched as a product, and refused for that."""
    asked: list[str] = []
    loaded = SimpleNamespace(max_ctas=264, within=lambda ctas: loaded)
    monkeypatch.setattr(in_process.launcher, "load", lambda *_: loaded)
    info = SimpleNamespace(sm_count=132)
    monkeypatch.setattr(in_process.launcher, "device_info", lambda index: info)
    for name in ("batched", "grouped"):
        gate = getattr(in_process.pack_gate, name)

        def check(*_: Any, name: str = name) -> Numeric:
            asked.append(name)
            return Numeric()

        monkeypatch.setattr(gate, "check", check)
        fields = bases.draw(1, 0, f"sm90_{name}").fields
        answer = in_process.numeric_gate(CompiledKernel(fields, b"cubin"), 0, 7)
        assert (answer["gate"], answer["status"]) == ("numeric", "OK")
    assert asked == ["batched", "grouped"]


def test_records_are_not_shared_between_candidates() -> None:
    first = candidate("a", SOURCE, {"block": 32, "grid": {"tile_m": 16, "tile_n": 8}})
    second = candidate("b", SOURCE, {"block": 64, "grid": {"tile_m": 32, "tile_n": 8}})
    assert (first.fields["grid"]["tile_m"], second.fields["grid"]["tile_m"]) == (16, 32)
    assert first.fields["grid"]["persistent"] is second.fields["grid"]["persistent"] is False


def test_the_noise_of_a_problem_is_the_worse_of_hot_and_cold(fake: type[FakeWorker]) -> None:
    fake.answers["noise"] = {"hot": [1.0, 0.996, 1.003], "cold": [1.001, 0.998, 1.0123]}
    assert evaluate.measure_noise(PROBLEM, 0) == 0.0123
    assert [name for name, _ in fake.calls] == ["warm_up", "noise"]


def test_the_noise_job_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {"hot": (1.0, 0.99, 1.01), "cold": (1.0, 0.98, 1.02)}
    asked: list[Job] = []
    replies = [Reply({}, evidence={**bounds, "seed": 7}), Reply({}, evidence={"failed": "no room"})]

    class Device:
        def run(self, job: Job) -> Reply:
            asked.append(job)
            return replies.pop(0)

    monkeypatch.setattr(in_process, "_device", lambda index: Device())
    assert in_process.noise(PROBLEM, 0, 7) == {p: list(each) for p, each in bounds.items()}
    assert asked == [Job("noise", PROBLEM, (), 7)]
    with pytest.raises(RuntimeError, match="no room"):
        in_process.noise(PROBLEM, 0, 7)


def test_each_verdict_is_there_before_the_next_gate_runs(fake: type[FakeWorker]) -> None:
    """And the turn on the GPU is taken for the gates that run the kernel alone."""
    turns: list[str] = []

    @contextmanager
    def turn() -> Iterator[None]:
        turns.append("taken")
        yield
        turns.append("given back")

    seen = {}
    for verdict in evaluate.each_verdict(case("plain"), PROBLEM, device=0, turn=turn()):
        seen[verdict.gate] = len(fake.calls), list(turns)
    assert seen["coverage"] == (0, [])
    assert seen["numeric"] == (2, ["taken"])
    assert seen["timing"][1] == ["taken"] and turns == ["taken", "given back"]
    assert seen["state"][0] == 3
    last = list(evaluate.each_verdict(case("plain"), PROBLEM, device=0))[-1]
    facts = DeviceFacts(**last.evidence["device"])
    assert facts == corpus.device_facts()
