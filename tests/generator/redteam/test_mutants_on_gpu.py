"""Mutants on a GPU: every stage stood in for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.core.spec import CompiledKernel, Status, Verdict
from hgemm_packs.generator.gates import sweep
from hgemm_packs.generator.redteam.mutation import compare, judge, on_gpu, run
from hgemm_packs.generator.run import evaluate
from tests.generator.redteam.killed_mutants import SEED, Judges

#: What a GPU makes of mutants by their numbers; others pass all and do the same bit by bit.
BEHAVIOUR = {
    **{1: "numeric", 3: "isolation", 5: "sanitizer", 7: "differs", 9: "no memory"},
    **{6: "large", 13: "state"},
}


class FakeWorker:
    def __init__(self) -> None:
        self.alive = True

    def close(self) -> None:
        self.alive = False

    def call(self, function: Any, one: Any, other: Any, *rest: Any, timeout_s: float) -> Any:
        assert (function, timeout_s) == (compare.on_device, on_gpu.COMPARE_S)
        assert one.fields["name"] == "honest"
        number = int(other.fields["name"])
        return ["large 1x8x8: bits differ"] if BEHAVIOUR.get(number) == "differs" else []


class FakeSpares:
    """Processes that nobody starts."""

    def __init__(self, device: int) -> None:
        assert device == 2

    def __enter__(self) -> FakeSpares:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextlib.contextmanager
    def lend(self) -> Iterator[FakeWorker]:
        yield FakeWorker()


class FakePool:
    """Compilers that compile nothing."""

    def __init__(self, count: int, mp_context: object) -> None:
        assert count >= 1

    def submit(self, function: Any, seed: int, number: int) -> Future[None]:
        assert function in (on_gpu.compile_mutant, on_gpu.compile_pair) and seed == SEED
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def shutdown(self, cancel_futures: bool) -> None:
        assert cancel_futures


def numeric(
    worker: FakeWorker, kernel: CompiledKernel, device: int, limit_s: float, further: Any
) -> Verdict:
    does = BEHAVIOUR.get(int(kernel.fields["name"]), "")
    if "large" in further:
        assert (device, limit_s) == (2, evaluate.GATE_S)
        assert further == {"large": [[1 << 20, 4104, 8]]}, "problems that fill a card"
        return Verdict("numeric", Status.NUMERIC if does == "large" else Status.OK, "far out")
    assert (device, limit_s) == (2, on_gpu.GATE_S)
    assert further == {"planned": [[33, 8, 8]]}, "problems that the size gate asks for"
    if does == "no memory":
        raise RuntimeError("out of memory")
    if does in ("numeric", "isolation"):
        worker.close()
        return Verdict(does, Status.NUMERIC, "wrong")
    return Verdict("numeric", Status.OK)


def state(
    worker: FakeWorker, kernel: CompiledKernel, device: int, limit_s: float, further: dict[str, Any]
) -> Verdict:
    assert (worker.alive, device, limit_s) == (True, 2, on_gpu.GATE_S), "the numeric gate passed it"
    if BEHAVIOUR.get(int(kernel.fields["name"])) == "state":
        return Verdict("state", Status.NUMERIC, "an old product")
    return Verdict("state", Status.OK)


def sanitize(groups: Any, seats: list[None]) -> Iterator[tuple[int, list[Verdict]]]:
    for place, group in enumerate(groups):
        assert all(ways == [(9, 8, 8)] for _, _, ways in group), "what the size gate asks for"
        bad = [BEHAVIOUR.get(int(name)) == "sanitizer" for name, *_ in group]
        said = [(Status.SANITIZER, "hazard") if each else (Status.OK, "") for each in bad]
        yield place, [Verdict("sanitizer", *each) for each in said]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for all that runs kernels."""

    def kernel(seed: int, one: judge.Line) -> CompiledKernel:
        assert seed == SEED
        return CompiledKernel({"name": str(one["number"])}, b"")

    def honest_kernel(seed: int, one: judge.Line) -> CompiledKernel:
        return CompiledKernel({"name": "honest"}, b"")

    monkeypatch.setattr(run, "Worker", Judges)
    monkeypatch.setattr(on_gpu, "kernel", kernel)
    monkeypatch.setattr(on_gpu, "honest_kernel", honest_kernel)
    monkeypatch.setattr(on_gpu, "ProcessPoolExecutor", FakePool)
    monkeypatch.setattr(on_gpu, "Spares", FakeSpares)
    monkeypatch.setattr(sweep, "entry", lambda fields, cubin: fields["name"])
    monkeypatch.setattr(evaluate, "numeric_gate", numeric)
    monkeypatch.setattr(evaluate, "state_gate", state)
    monkeypatch.setattr(sweep, "check_groups", sanitize)


def test_a_gpu_decides_what_the_cpu_did_not(
    gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "mutants.jsonl"
    run.run(run.Plan(SEED, 10, lines, 2))
    found = run.run(run.Plan(SEED, 14, lines, 2, device=2))
    ends = {n: (each["outcome"], each["gate"], each["detail"]) for n, each in found.items()}
    for number, end in {
        1: ("caught", "numeric", "wrong"),
        3: ("caught", "isolation", "wrong"),
        5: ("caught", "sanitizer", "hazard"),
        6: ("caught", "numeric", "far out"),
        7: ("slipped", "", "large 1x8x8: bits differ"),
        9: ("undecided", "", "out of memory"),
        11: ("unseen", "", ""),
        13: ("caught", "state", "an old product"),
    }.items():
        assert ends[number] == end
    assert found[1]["operator"] == "operator 1", "a decided line has all of the first one"
    monkeypatch.delitem(BEHAVIOUR, 9)
    again = run.run(run.Plan(SEED, 14, lines, 2, device=2))
    assert again[9]["outcome"] == "unseen", "what was left is decided by the next call"
    assert {n: e for n, e in again.items() if n != 9} == {n: e for n, e in found.items() if n != 9}


def test_a_killed_run_asks_no_gate_twice(
    gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed in the sanitizer began with the numeric gate again, as had each run of
    more mutants than its time was enough for: lines told of decided mutants alone."""
    asked: list[tuple[str, int]] = []

    def noted(gate: Any, name: str) -> Any:
        def ask(worker: Any, kernel: CompiledKernel, *rest: Any) -> Verdict:
            asked.append((name, int(kernel.fields["name"])))
            return gate(worker, kernel, *rest)

        return ask

    def killed(groups: Any, seats: list[None]) -> Iterator[tuple[int, list[Verdict]]]:
        for place, answer in enumerate(sanitize(groups, seats)):
            if place == 1:
                raise KeyboardInterrupt
            yield answer

    monkeypatch.setattr(evaluate, "numeric_gate", noted(numeric, "numeric"))
    monkeypatch.setattr(evaluate, "state_gate", noted(state, "state"))
    monkeypatch.setattr(sweep, "check_groups", killed)
    monkeypatch.setattr(sweep, "group_size", lambda runs, processes: 4)
    monkeypatch.delitem(BEHAVIOUR, 9)
    lines = tmp_path / "mutants.jsonl"
    plan = run.Plan(SEED, 14, lines, 2, device=2)
    with pytest.raises(KeyboardInterrupt):
        run.run(plan)
    assert sorted(asked) == [
        *(("numeric", number) for number in sorted([*range(14), 6])),
        *(("state", number) for number in range(14) if number not in (1, 3)),
    ]
    asked.clear()
    swept: list[int] = []

    def rest(groups: Any, seats: list[None]) -> Iterator[tuple[int, list[Verdict]]]:
        swept.extend(int(name) for group in groups for name, *_ in group)
        return sanitize(groups, seats)

    monkeypatch.setattr(sweep, "check_groups", rest)
    steps: list[tuple[int, int]] = []
    found = run.run(plan, lambda done, total: steps.append((done, total)))
    assert asked == []
    assert len(swept) == 10 - 4, "a group was through"
    assert found[11]["met"] == ["numeric", "state", "sanitizer"]
    ends = {number: each["outcome"] for number, each in found.items()}
    caught, slipped = {1, 3, 5, 6, 13}, {7}
    assert ends == {
        number: "caught" if number in caught else "slipped" if number in slipped else "unseen"
        for number in range(14)
    }
    assert steps[0][0] < 14 and steps[-1] == (14, 14)


def test_mutants_of_groups_and_batches_meet_the_problems_that_fill_a_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An index in 32 bits got through: the size gate follows no addresses of groups, and asks for
    no problem in which it would show. So did a quotient that is right up to 2^20 products."""
    asked: list[str] = []

    class Warm:
        def call(self, function: Any, *arguments: Any, timeout_s: float) -> None:
            asked.append(function.__name__)

    def gate(name: str) -> Any:
        def answer(*arguments: Any) -> Verdict:
            asked.append(name)
            return Verdict("numeric", Status.OK)

        return answer

    monkeypatch.setattr(evaluate, "large_gate", gate("large_gate"))
    monkeypatch.setattr(evaluate, "numeric_gate", gate("numeric_gate"))
    for family, further, wanted in (
        ("sm90_grouped", [], ["warm_up", "large_gate"]),
        ("sm90_grouped", [[1, 8, 8]], ["warm_up", "large_gate", "numeric_gate"]),
        ("sm90_batched", [], ["warm_up", "large_gate"]),
        ("sm90_wgmma", [[1, 8, 8]], ["numeric_gate"]),
    ):
        asked.clear()
        one = {"number": 1, "family": family, "large": further}
        assert on_gpu._fills(one)
        assert on_gpu.large(Warm(), None, 0, one).passed  # type: ignore[arg-type]
        assert asked == wanted
    assert not on_gpu._fills({"number": 1, "family": "sm90_wgmma", "large": []})
