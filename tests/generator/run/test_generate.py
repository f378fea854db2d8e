"""A run: the fastest kernels are confirmed, gated, and measured once more in fresh processes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.core.gains import ratios, wins
from hgemm_packs.generator.core.spec import (
    CompiledKernel,
    Job,
    Reply,
    Result,
    Status,
    Verdict,
)
from hgemm_packs.generator.run.finals import Sanitize
from hgemm_packs.generator.run.generate import Budget, Snapshot, generate
from hgemm_packs.generator.search.rivals.exhaustive import Exhaustive
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.evaluators import Inline
from tests.generator.fake_device import TORCH_US, FakeDevice, true_us
from tests.generator.run.small_run import (
    CHOICES,
    FOUR,
    PLENTY,
    Builder,
    Listener,
    best,
    confirmed,
    jobs,
    run,
    screens,
    spaces,
)
from tests.generator.store.sample_store import PROBLEMS, kernel


def test_the_fastest_kernels_are_confirmed(tmp_path: Path) -> None:
    listener = Listener()
    summary = run(tmp_path, strategy=listener, budget=Budget(1000.0, patience=100))
    winners = {p: best(p) for p in FOUR if true_us(p, kernel(best(p)).id) < TORCH_US}
    seen = confirmed(tmp_path)
    assert seen.keys() == winners.keys()
    for problem, choice in winners.items():  # the winner, and the others that beat torch as well
        rivals = sorted(seen[problem], key=lambda id_: true_us(problem, id_))
        assert rivals[0] == kernel(choice).id
        assert all(true_us(problem, id_) < TORCH_US for id_ in rivals)
    assert screens(tmp_path) == Counter({(p, kernel(c).id): 1 for p in FOUR for c in CHOICES})
    gains = [TORCH_US / true_us(p, kernel(c).id) for p, c in winners.items()]
    assert summary.confirmed == len(winners) > 1
    assert summary.speedup == pytest.approx(math.prod(gains) ** (1 / len(gains)), rel=1e-3)
    assert (summary.problems, summary.finished, summary.finals) == (4, 4, 4)
    assert (summary.screened, summary.kernels, summary.unconfirmed) == (80, 20, 0)
    told = {o.proposal.choice: o.us for o in listener.heard[FOUR[0]]}
    right = {choice: true_us(FOUR[0], kernel(choice).id) for choice in CHOICES}
    assert told == pytest.approx(right, rel=1e-3)
    with Store(tmp_path, readonly=True) as store:
        finals = {done.problem: done for done in store.finished_jobs("finals")}
        seeds = [done.seed for done in store.finished_jobs()]
        spent = sum(done.reply.gpu_seconds for done in store.finished_jobs())
        proven = store.verdicts("numeric")
    assert all(len(done.kernels) == 3 for done in finals.values())
    for problem in FOUR:
        ranked = sorted(CHOICES, key=lambda c: true_us(problem, kernel(c).id))
        assert set(finals[problem].kernels) == {kernel(choice).id for choice in ranked[:3]}
        assert all(proven[id_].passed for id_ in finals[problem].kernels)
    assert len(set(seeds)) == len(seeds)
    assert summary.spent == pytest.approx(spent)
    counts = jobs(tmp_path)
    assert (counts["ceilings"], counts["race"], counts["finals"], counts["noise"]) == (1, 4, 4, 4)


def test_the_binary_gate_holds_before_the_finals(tmp_path: Path) -> None:
    """Kernels are not disassembled while searching; what the gate refuses then never runs again."""
    builder = Builder()
    builder.unsound = {kernel(best(FOUR[0])).id}
    run(tmp_path, builder=builder)
    with Store(tmp_path, readonly=True) as store:
        ran = {
            k
            for kind in ("gate", "finals", "confirm")
            for j in store.finished_jobs(kind)
            for k in j.kernels
        }
        assert store.refused_kernels() == dict.fromkeys(builder.unsound, Status.BINARY)
    assert ran and not ran & builder.unsound


def test_the_sanitizer_judges_what_was_confirmed(tmp_path: Path) -> None:
    """Once a kernel; one with findings runs no more, and no table names it."""
    asked: list[str] = []
    racy = kernel(best(FOUR[0])).id

    def judge(kernels: Sequence[CompiledKernel]) -> Iterator[dict[str, Verdict]]:
        asked.extend(one.id for one in kernels)
        words = {one.id: Status.SANITIZER if one.id == racy else Status.OK for one in kernels}
        yield {id_: Verdict("sanitizer", status) for id_, status in words.items()}

    for _ in range(2):
        with Store(tmp_path) as store:
            generate(
                store,
                FOUR,
                Listener(),
                Builder(),
                Inline(FakeDevice()),
                PLENTY,
                spaces=spaces,
                sanitize=Sanitize(judge),
            )
            assert store.refused_kernels() == {racy: Status.SANITIZER}
    assert sorted(asked) == sorted(set(asked))
    assert set(asked) >= {id_ for ids in confirmed(tmp_path).values() for id_ in ids[:1]}


@pytest.mark.parametrize("within", [True, False])
def test_verdicts_of_the_sanitizer_are_kept_as_they_come(
    tmp_path: Path, within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage killed after four minutes began again from nothing, and had shown nothing. Now an
    interrupt, while the gate runs or while it waits, costs only what runs."""
    monkeypatch.setattr("hgemm_packs.generator.run.generate._SHOWN_S", 0.0)
    asked: list[list[str]] = []
    shown: list[tuple[int, int, str]] = []
    ended: list[bool] = []

    def judge(kernels: Sequence[CompiledKernel]) -> Iterator[dict[str, Verdict]]:
        asked.append([one.id for one in kernels])
        try:
            for i, one in enumerate(kernels):
                if within and i == 2 and len(asked) == 1:
                    raise KeyboardInterrupt
                yield {one.id: Verdict("sanitizer", Status.OK)}
        finally:
            ended.append(True)

    def progress(snapshot: Snapshot) -> None:
        if snapshot.stage == "sanitize":
            shown.append((snapshot.done, snapshot.total, snapshot.of))
            if not within and snapshot.done == 2 and len(asked) == 1:
                raise KeyboardInterrupt

    def go() -> None:
        with Store(tmp_path) as store:
            args = (store, FOUR, Listener(), Builder(), Inline(FakeDevice()), PLENTY, progress)
            generate(*args, spaces=spaces, seed=5, sanitize=Sanitize(judge))

    with pytest.raises(KeyboardInterrupt):
        go()
    assert ended == [True], "what the gate runs outlived the stage"
    with Store(tmp_path, readonly=True) as store:
        assert list(store.verdicts("sanitizer")) == sorted(asked[0][:2])
    count = len(asked[0])
    assert count > 3 and shown == [(i, count, "kernels sanitized") for i in range(3)]
    go()
    assert asked[1:] == [asked[0][2:]]
    assert shown[3:] == [(i, count - 2, "kernels sanitized") for i in range(count - 1)]
    with Store(tmp_path, readonly=True) as store:
        assert set(store.verdicts("sanitizer")) == set(asked[0])


def test_the_next_best_stands_for_a_winner_that_is_not_confirmed(tmp_path: Path) -> None:
    """The table names it; it once went there without the sanitizer, as if not confirmed at all."""
    run(tmp_path / "whole")
    problem, ids = next((p, k) for p, k in confirmed(tmp_path / "whole").items() if len(k) > 1)
    assert problem is not None
    first, second, *_ = sorted(ids, key=lambda id_: true_us(problem, id_))

    class Late(FakeDevice):
        """Finds out at the confirmation."""

        def run(self, job: Job) -> Reply:
            reply = super().run(job)
            if job.kind == "confirm" and first in reply.results:
                wrong = {first: Result(Status.NUMERIC, {}, "timed launch")}
                reply = replace(reply, results={**reply.results, **wrong})
            return reply

    asked: list[str] = []

    def judge(kernels: Sequence[CompiledKernel]) -> list[dict[str, Verdict]]:
        asked.extend(one.id for one in kernels)
        return [{one.id: Verdict("sanitizer", Status.OK)} for one in kernels]

    found = []
    for _ in range(2):
        with Store(tmp_path / "late") as store:
            args = (store, [problem], Listener(), Builder(), Inline(Late()), PLENTY)
            found.append(generate(*args, spaces=spaces, seed=5, sanitize=Sanitize(judge)))
            assert store.refused_kernels() == {first: Status.NUMERIC}
    assert [(s.likely, s.confirmed, s.unconfirmed) for s in found] == [(1, 1, 0)] * 2
    assert found[0].speedup == pytest.approx(TORCH_US / true_us(problem, second), rel=1e-3)
    assert second in asked and first not in asked


def test_what_is_published_comes_from_fresh_processes(tmp_path: Path) -> None:
    """With a new seed, and after everything that was chosen from."""
    order: list[str] = []

    class Watched(Inline):
        def fresh(self) -> None:
            order.append("fresh")

        def submit(self, job: Job) -> Future[Reply]:
            order.append(job.kind)
            return super().submit(job)

    with Store(tmp_path) as store:
        generate(store, FOUR, Listener(), Builder(), Watched(FakeDevice()), PLENTY, spaces=spaces)
    (cut,) = [i for i, word in enumerate(order) if word == "fresh"]
    assert set(order[:cut]) == {"ceilings", "screen", "race", "gate", "finals"}
    assert set(order[cut + 1 :]) == {"noise", "confirm"}


def test_the_budget_is_kept(tmp_path: Path) -> None:
    """A kernel costs 4 ms here. Every stage gets something, and the next call nothing more."""
    budget = Budget(2.0, patience=100)
    summary = run(tmp_path, problems=PROBLEMS, budget=budget)
    counts = jobs(tmp_path)
    slack = 4 * 8 * 0.004  # what may be under way when the limit is met
    assert 2.0 - slack <= summary.spent <= 2.0 + slack or summary.unconfirmed == 0
    with Store(tmp_path, readonly=True) as store:
        spent = store.spent_gpu_seconds()
    assert spent["screen"] <= 0.7 * 2.0 + slack
    assert counts["finals"] >= 1 and counts["noise"] == 4
    again = run(tmp_path, problems=PROBLEMS, budget=budget)
    assert again.screened == summary.screened and again.spent <= 2.0 + 2 * slack


def test_a_problem_without_progress_stops(tmp_path: Path) -> None:
    budget = Budget(1000.0, batch=2, patience=2)
    summary = run(tmp_path, problems=FOUR[:1], budget=budget)
    us = [true_us(FOUR[0], kernel(choice).id) for choice in CHOICES]
    stopped = next(
        n for n in range(6, 21, 2) if n == 20 or min(us[: n - 4]) * 0.997 <= min(us[n - 4 : n])
    )
    assert summary.screened == stopped < 20
    assert summary.finished == 1


class Slow(Inline):
    """Answers only when it has to: what is under way can be counted."""

    def __init__(self, device: FakeDevice, capacity: int) -> None:
        super().__init__(device)
        self.capacity = capacity
        self.waiting: list[tuple[Job, Future[Reply]]] = []
        self.most: Counter[str] = Counter()
        self.batches: list[int] = []

    def submit(self, job: Job) -> Future[Reply]:
        future: Future[Reply] = Future()
        self.waiting.append((job, future))
        self.most[job.kind] = max(self.most[job.kind], len(self.waiting))
        if job.kind == "screen":
            self.batches.append(len(job.kernels))
        return future

    def answer(self) -> None:
        job, future = self.waiting.pop(0)
        future.set_result(super().submit(job).result())


@pytest.mark.parametrize(("problems", "screening"), [(8, 8), (1, 3)])
def test_every_device_has_work_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problems: int, screening: int
) -> None:
    """Several problems are under way at a time; the last one is spread over the devices."""
    evaluator = Slow(FakeDevice(), 4)

    class Events:
        """A queue that has an answer made when it is empty."""

        def __init__(self) -> None:
            self.items: list[Any] = []

        def put(self, item: Any) -> None:
            self.items.append(item)

        def get(self) -> Any:
            if not self.items:
                evaluator.answer()
            return self.items.pop(0)

    class AtOnce:
        """A pool of threads whose work is done when it is asked for."""

        def __init__(self, *_: object) -> None: ...

        def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
            done: Future[Any] = Future()
            done.set_result(work(*arguments))
            return done

        def shutdown(self, **_: object) -> None: ...

    monkeypatch.setattr("hgemm_packs.generator.run.jobs.SimpleQueue", Events)
    monkeypatch.setattr("hgemm_packs.generator.run.jobs.ThreadPoolExecutor", AtOnce)
    with Store(tmp_path) as store:
        generate(
            store, PROBLEMS[:problems], Exhaustive(), Builder(), evaluator, PLENTY, spaces=spaces
        )
    assert evaluator.most["screen"] == screening
    assert max(evaluator.batches) == 8
    if problems == 8:
        assert evaluator.most["gate"] == 8 and evaluator.most["finals"] == 8


@pytest.mark.parametrize(
    ("hot", "cold", "likely"), [(11.0, 11.0, True), (9.0, 13.0, False), (12.5, 9.0, False)]
)
def test_what_beats_torch_is_confirmed_whatever_cublaslt_could(
    hot: float, cold: float, likely: bool
) -> None:
    baselines = {"torch": {"hot": (12.0,), "cold": (13.0,)}, "cublaslt": {"hot": (10.0,)}}
    result = Result(Status.OK, {"hot": (hot,), "cold": (cold,)})
    gains = ratios(Reply({}, baselines), result)
    assert gains == (12.0 / hot, 13.0 / cold)
    assert wins(gains) is likely
    assert ratios(Reply({}, {"cublaslt": baselines["cublaslt"]}), result) == (0.0, 0.0)
