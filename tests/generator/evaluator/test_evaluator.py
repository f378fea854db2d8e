"""The evaluator: on a simulation, on a recording and without a device, an answer to anything that
is proposed, with the reward of the design."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile.candidate import candidate
from hgemm_packs.generator.core.spec import Choice, Status, Verdict
from hgemm_packs.generator.devices.sim import Faults, SimDevice
from hgemm_packs.generator.evaluator.answer import STATUSES
from hgemm_packs.generator.evaluator.candidate import Candidate, Unreadable
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.evaluator.places import OnGpu, open_device
from hgemm_packs.generator.evaluator.reward import REWARDS, reward
from hgemm_packs.generator.run import evaluate
from hgemm_packs.generator.store.filelock import LockHeld
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.problem import Problem
from tests.generator.evaluator import proposals
from tests.generator.evaluator.proposals import PROBLEM, of_case, of_choice, problem_of

RECORD = {"block": 32, "grid": {"tile_m": 16, "tile_n": 8}}


def test_rewards_of_the_design() -> None:
    """design/generator.md, section 5."""
    paid = {status: reward(status) for status in STATUSES if status in REWARDS}
    assert paid == {
        **{"PARSE": -1.0, "STATIC": -1.0, "BUILD": -0.8, "BINARY": -0.8, "DATAFLOW": -0.8},
        **{"COVERAGE": -0.8, "LAUNCH": -0.6, "TIMEOUT": -0.6, "SANITIZER": -0.6, "NUMERIC": -0.5},
        **{"HACK": -1.5, "UNMEASURED": -0.4},
    }
    assert set(STATUSES) - set(REWARDS) == {"OK", "SLOWER", "NOISE"}


@pytest.mark.parametrize(
    ("lcb", "floor", "paid"),
    [
        (1.0, 0.0, 0.1),
        (2**0.5, 0.0, 0.6),
        (2.0, 0.0, 1.0),
        (0.5, 0.0, -0.4),
        (2**-0.25, 0.0, -0.15),
        (1.02, 0.03, 0.1),
        (1.02, 0.01, 0.1 + math.log2(1.02)),
    ],
)
def test_correct_kernels_are_paid_by_their_lower_bound(
    lcb: float, floor: float, paid: float
) -> None:
    for status in ("OK", "SLOWER", "NOISE"):
        assert reward(status, lcb, floor) == pytest.approx(paid, abs=1e-12)


def test_no_reward_without_a_bound_or_for_an_unknown_status() -> None:
    for lcb in (None, 0.0, math.nan):
        with pytest.raises(ValueError, match="OK with a lower bound of"):
            reward("OK", lcb)
    with pytest.raises(ValueError, match="no status 'GOOD'"):
        reward("GOOD", 2.0)


def test_a_recording_answers_with_its_times() -> None:
    device, listed = proposals.recorded()
    evaluator = Evaluator(device)
    fast, level, slow, wrong, unknown = (
        evaluator.evaluate(of_choice(choice), PROBLEM) for choice in listed[:5]
    )
    assert (fast.status, fast.correct, fast.reward) == ("OK", True, 1.0)
    assert fast.times["hot"]._asdict() == {
        **{"us": 5.0, "torch_us": 10.05, "cublaslt_us": 10.05, "speedup": 2.01, "lcb": 2.01}
    }
    assert fast.speedup == 2.01
    assert (fast.verdict.passed, fast.verdict.gate) == (True, "timing")
    # torch strays from itself by 1/101 there: a gain of 0.6% is none
    assert level.facts["noise_floor"] == pytest.approx(1 - 10.0 / 10.1, abs=1e-4)
    assert (level.status, level.reward) == ("OK", 0.1)
    assert (slow.status, slow.reward) == ("SLOWER", -0.4)
    assert slow.speedup == 0.5025
    assert (wrong.status, wrong.verdict.gate, wrong.reward) == ("NUMERIC", "numeric", -0.5)
    assert (unknown.status, unknown.correct, unknown.reward) == ("UNMEASURED", False, -0.4)
    assert "no time of this kernel on this problem was recorded" in unknown.words


def test_a_problem_without_a_recording_is_unmeasured() -> None:
    device, listed = proposals.recorded()
    other = Problem(64, 512, 1024, "nt", "f16")
    assert Evaluator(device).evaluate(of_choice(listed[0]), other).status == "UNMEASURED"


def test_a_simulation_answers_as_a_gpu_does() -> None:
    device = SimDevice(3)
    slow, fast = proposals.slow_and_fast(device)
    heard: list[str] = []
    answer = Evaluator(device).evaluate(fast, PROBLEM, lambda verdict: heard.append(verdict.gate))
    assert heard == [v.gate for v in answer.verdicts] == ["numeric", "plausibility", "timing"]
    assert (answer.status, set(answer.times)) == ("OK", {"hot", "cold"})
    assert answer.times["hot"].us == pytest.approx(device.optimum(PROBLEM)[1], rel=0.02)
    gain = min(t.torch_us / t.us for t in answer.times.values())
    best = min(t.vs_best for t in answer.times.values())
    assert answer.reward == pytest.approx(min(1.0, 0.1 + math.log2(best)), abs=0.02)
    assert answer.speedup is not None and answer.speedup >= gain * 0.99
    worse = Evaluator(device).evaluate(slow, PROBLEM)
    assert worse.status == "SLOWER" and worse.reward < 0
    assert "It is not faster than torch." in worse.words
    assert "Limited by " in worse.words and 0 < worse.facts["efficiency"] < 1


def test_one_candidate_has_one_answer_on_a_simulation() -> None:
    _, fast = proposals.slow_and_fast(SimDevice(3))
    answers = [Evaluator(SimDevice(3)).evaluate(fast, PROBLEM).document() for _ in range(2)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("fault", "status", "gate", "paid"),
    [
        ("launch", "LAUNCH", "isolation", -0.6),
        ("numeric", "NUMERIC", "numeric", -0.5),
        ("subtle", "NUMERIC", "numeric", -0.5),
        ("hang", "TIMEOUT", "isolation", -0.6),
        ("lost", "LAUNCH", "isolation", -0.6),
        ("hack", "HACK", "plausibility", -1.5),
    ],
)
def test_every_fault_of_a_simulation_is_refused(
    fault: str, status: str, gate: str, paid: float
) -> None:
    device = SimDevice(3, Faults(**{fault: 1.0}))
    evaluator = Evaluator(device)
    for choice in proposals.choices(2):  # a lost device is another one for the next
        answer = evaluator.evaluate(of_choice(choice), PROBLEM)
        assert (answer.status, answer.verdict.gate, answer.reward) == (status, gate, paid)
        assert answer.speedup is None and not answer.times


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Candidate.of_genome("sm90_none", {}), "no kernel family 'sm90_none'"),
        (Candidate.of_genome("sm90_gemv", {"x": []}), "genes must be"),
        (Candidate.of_genome("sm90_gemv", {"computes": ["bias"]}), "computes=['bias'] is not one"),
        (Candidate.of_genome("sm90_gemv", {1: 2}), "'<' not supported"),  # type: ignore[dict-item]
        (Candidate.of_genome("", {}), "no kernel family ''"),
        (Candidate.of_source("", RECORD), "entry: no __global__ function"),
        (Candidate.of_source("x", {}), "the launch record must say 'block'"),
        (Candidate.of_source("x", {**RECORD, "family": "sm90_gemv"}), "'family' is no field"),
        (Candidate.of_source("x", {**RECORD, "block": 2**70}), "block"),
        (Candidate.of_source("x", {**RECORD, "grid": {"tile_m": "x", "tile_n": 8}}), "tile_m"),
        (Candidate.of_source("x", {**RECORD, "tma": [[[[]]]]}), "tma"),
        (Candidate.of_source("x", {**RECORD, "layout": "nn"}), "layout"),
        (Candidate.of_source("x", {**RECORD, "smem_bytes": float("nan")}), "smem_bytes"),
        (Candidate.of_source("x", RECORD, "../../etc"), "name"),
    ],
)
def test_nonsense_is_answered_never_raised(given: Candidate, words: str) -> None:
    for device in (SimDevice(1), None):
        answer = Evaluator(device).evaluate(given, PROBLEM)
        assert (answer.status, answer.reward) in (("PARSE", -1.0), ("STATIC", -1.0))
        assert words in answer.words, answer.words
        assert not answer.verdict.passed
        json.dumps(answer.document(), allow_nan=False)


@pytest.mark.parametrize(
    "document",
    [
        *(None, [], "x", 7, {}, {"family": "x"}, {"family": 1, "genome": {}}),
        *({"family": "x", "genome": []}, {"source": "", "record": []}, {"source": 1, "record": {}}),
        {"family": "x", "genome": {}, "source": "x", "record": {}},
        {"source": "x", "record": {}, "name": None},
    ],
)
def test_documents_of_no_candidate_are_unreadable(document: Any) -> None:
    with pytest.raises(Unreadable, match="candidate"):
        Candidate.of_document(document)


def test_a_candidate_is_its_document() -> None:
    for one in (of_choice(proposals.choices()[0]), Candidate.of_source("x", RECORD, "mine")):
        again = Candidate.of_document(json.loads(json.dumps(one.document())))
        assert again == one and again.key == one.key
    assert Candidate.of_source("x", RECORD).key != Candidate.of_source("y", RECORD).key


def test_free_source_meets_the_gates_that_need_no_gpu_and_is_not_timed() -> None:
    plain, cheat = of_case("plain"), of_case("clock_by_a_macro")
    for device in (None, SimDevice(1), proposals.recorded()[0]):
        answer = Evaluator(device).evaluate(plain, problem_of(plain))
        gates = [verdict.gate for verdict in answer.verdicts]
        assert gates == ["static", "build", "binary", "dataflow", "coverage"]
        assert (answer.status, answer.reward, answer.speedup) == ("UNMEASURED", -0.4, None)
        assert answer.facts["registers"] > 0 and answer.facts["spilled_bytes"] == 0
        refused = Evaluator(device).evaluate(cheat, problem_of(cheat))
        assert (refused.status, refused.reward) == ("STATIC", -1.0)


def test_what_spills_says_how_much() -> None:
    spills = of_case("spills")
    answer = Evaluator().evaluate(spills, problem_of(spills))
    assert (answer.status, answer.verdict.gate) == ("BUILD", "build")
    assert answer.facts["spilled_bytes"] > 0
    assert f"{answer.facts['spilled_bytes']} bytes spill stores" in answer.words


def test_answers_are_kept_in_a_store(tmp_path: Path) -> None:
    device, listed = proposals.recorded()
    store = tmp_path / "answers.jsonl"
    evaluator = Evaluator(device, store)
    given = [of_choice(choice) for choice in listed[:2]]
    answers = [evaluator.evaluate(each, PROBLEM) for each in given]
    kept = read_records([store])
    assert [line["candidate"] for line in kept] == [each.document() for each in given]
    assert [line["answer"] for line in kept] == [each.document() for each in answers]
    assert kept[0]["problem"] == [64, 512, 512, "nt", "f16"]


def on_gpu(monkeypatch: pytest.MonkeyPatch, hot: float, turns: list[str]) -> Evaluator:
    """An evaluator on a GPU whose gates pass, and whose samples are made up."""
    samples = {"hot": [hot] * 5, "cold": [8.0] * 5}
    baselines = {
        "torch": {"hot": [10.0] * 5, "cold": [10.0] * 5},
        "cublaslt": {"hot": [8.0] * 5, "cold": [9.0] * 5},
    }

    def gates(kernel: Any, problem: Problem, device: int, further: Any) -> Any:
        turns.append(f"gates on {device}")
        seen = {"samples": samples, "baselines": baselines, "device": asdict(proposals.FACTS)}
        yield Verdict("numeric", Status.OK)
        yield evaluate.judge_timing(Verdict("timing", Status.OK, "", seen))

    class Lock:
        def __init__(self, gpu: str, wait_s: float) -> None:
            turns.append(f"lock {gpu}")

        def close(self) -> None:
            turns.append("unlock")

    def noise(problem: Problem, device: int) -> float:
        turns.append("noise")
        return 0.02

    monkeypatch.setattr(evaluate, "_on_device", gates)
    monkeypatch.setattr(evaluate, "measure_noise", noise)
    monkeypatch.setattr("hgemm_packs.generator.evaluator.places.gpu_lock", Lock)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Evaluator(1)


def test_a_gpu_is_locked_while_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, turns = of_case("plain"), list[str]()
    evaluator = on_gpu(monkeypatch, 5.0, turns)
    answer = evaluator.evaluate(plain, problem_of(plain))
    measured = ["lock 1", "gates on 1", "unlock"]
    assert turns == [*measured, "lock 1", "noise", "unlock"]
    assert answer.status == "OK"
    # cold it gains 9 / 8 over cuBLASLt, hot 8 / 5: the lesser one pays
    assert answer.reward == pytest.approx(0.1 + math.log2(9 / 8))
    assert answer.facts["noise_floor"] == 0.02
    evaluator.evaluate(plain, problem_of(plain))
    assert turns[6:] == measured  # the noise is known


def test_a_loser_costs_no_noise_job(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, turns = of_case("plain"), list[str]()
    answer = on_gpu(monkeypatch, 12.0, turns).evaluate(plain, problem_of(plain))
    assert (answer.status, turns) == ("SLOWER", ["lock 1", "gates on 1", "unlock"])
    assert answer.reward == pytest.approx(max(-0.4, 0.1 + math.log2(8 / 12)))


def test_a_refused_source_takes_no_turn_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cheat, turns = of_case("clock_by_a_macro"), list[str]()
    assert on_gpu(monkeypatch, 5.0, turns).evaluate(cheat, problem_of(cheat)).status == "STATIC"
    assert turns == []


def test_who_waits_too_long_for_a_gpu_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from hgemm_packs.generator.evaluator import places
    from hgemm_packs.generator.workers import evaluators

    monkeypatch.setattr(evaluators.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(places, "TURN_S", 0.1)
    held = evaluators.gpu_lock("0")
    try:
        plain = of_case("plain")
        with pytest.raises(LockHeld, match="is held by process"):
            list(OnGpu(0).verdicts(plain.read(problem_of(plain)), problem_of(plain)))
    finally:
        held.close()


def test_devices_by_their_words(tmp_path: Path) -> None:
    made = tmp_path / "made.npz"
    proposals.write_recording(made)
    assert (open_device("gpu"), open_device("gpu:3"), open_device("none")) == (0, 3, None)
    simulated = open_device("sim:5")
    assert isinstance(simulated, SimDevice) and simulated.facts.uuid_hash == f"{5:016x}"
    replay = open_device(f"replay:{made}")
    fast = of_choice(proposals.choices()[0])
    answer = Evaluator(replay).evaluate(fast, PROBLEM)
    assert answer.times["hot"].us == pytest.approx(5.0, rel=4e-4)
    for words in ("", "gpu:x", "sim:", "sim:-1", "cuda", "none:1"):
        with pytest.raises(ValueError, match="is no device"):
            open_device(words)
    with pytest.raises(OSError, match="No such file"):
        open_device("replay:none.npz")
    with pytest.raises(TypeError, match="is no device of an evaluator"):
        Evaluator("gpu")  # type: ignore[arg-type]


def test_a_choice_that_no_family_makes_is_refused() -> None:
    answer = Evaluator().judge(Choice.of("sm90_none", {}), PROBLEM)
    assert (answer.status, answer.verdict.gate) == ("PARSE", "record")


def test_a_source_that_names_other_types_than_the_problem_is_refused() -> None:
    made = candidate("mine", "x", {**RECORD, "dtype": "bf16", "layout": "nt"})
    assert Evaluator().judge(made, PROBLEM).status == "PARSE"
