"""Jobs on their way: what a run that is cut off still keeps of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.core.spec import CompiledKernel, Job, Reply, Status, Verdict
from hgemm_packs.generator.gates.coverage import gate as coverage
from hgemm_packs.generator.run import jobs
from hgemm_packs.generator.run.jobs import HELD_UP, RunJobs
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.evaluators import Inline
from tests.generator.fake_device import FakeDevice
from tests.generator.run.killed_run import Builder
from tests.generator.store.sample_store import PROBLEMS, choices, kernel

ONE = kernel(choices(1)[0])


class Asked(Inline):
    """Answers nothing; the test does."""

    def __init__(self) -> None:
        super().__init__(FakeDevice())
        self.capacity = len(PROBLEMS)
        self.jobs: list[tuple[Job, Future[Reply]]] = []

    def submit(self, job: Job) -> Future[Reply]:
        self.jobs.append((job, Future()))
        return self.jobs[-1][1]

    def reply(self, i: int) -> Reply:
        return super().submit(self.jobs[i][0]).result()


def test_answers_that_nobody_took_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there and those that come at once; one that cannot be written, one that is an
    error and one that never comes keep nobody from leaving."""
    monkeypatch.setattr(jobs, "GRACE_S", 2.0)
    evaluator, heard = Asked(), []
    with Store(tmp_path) as store:
        under_way = RunJobs(store, Builder(), evaluator, run=store.add_run({}), seed=1)
        for problem in PROBLEMS[:5]:
            under_way.submit("screen", problem, [ONE], heard.append)
        futures = [future for _, future in evaluator.jobs]
        futures[0].set_result(Reply({}, evidence={"what": object()}))
        futures[1].set_exception(RuntimeError("lost"))
        futures[2].set_result(evaluator.reply(2))
        threading.Timer(0.1, futures[3].set_result, [evaluator.reply(3)]).start()
        began = time.monotonic()
        under_way.close()
        assert 0.1 < time.monotonic() - began < 30.0
        kept = {done.problem: done.reply for done in store.finished_jobs()}
        assert kept == {PROBLEMS[i]: evaluator.reply(i) for i in (2, 3)}
    assert heard == []


class Threads:
    """A pool of threads; the test has the work done. One for every pool."""

    def __init__(self) -> None:
        self.asked: list[tuple[Callable[[], Any], Future[Any]]] = []

    def __call__(self, *_: object) -> Threads:
        return self

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self.asked.append((partial(work, *arguments), Future()))
        return self.asked[-1][1]

    def work(self) -> None:
        work, future = self.asked.pop(0)
        future.set_result(work())

    def shutdown(self, **_: object) -> None: ...


def test_nothing_is_measured_before_the_first_job_and_compilers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilers did nothing while ceilings were measured, and the GPU waited for them after."""
    monkeypatch.setattr(jobs, "GRACE_S", 0.0)
    monkeypatch.setattr(jobs, "ThreadPoolExecutor", threads := Threads())
    evaluator, heard = Asked(), []
    with Store(tmp_path) as store:
        flow = RunJobs(store, Builder(), evaluator, run=store.add_run({}), seed=1)
        flow.ahead = 2
        flow.submit_first("ceilings", lambda reply: heard.append("ceilings"))
        left = list(PROBLEMS)

        def start() -> bool:
            flow.build([choices(20)[len(left)]], lambda built: None)
            flow.submit("screen", left.pop(), [ONE], lambda reply: heard.append("screen"))
            return True

        def look() -> bool:
            """Called when there is room: never, while the first job is under way."""
            return bool(left) and not heard and start()

        def answer_first() -> None:
            seen.append((flow.under_way, len(threads.asked), len(evaluator.jobs)))
            evaluator.jobs[0][1].set_result(evaluator.reply(0))

        def stop() -> None:
            raise StopIteration

        flow.tick, seen = stop, list[tuple[int, int, int]]()
        threading.Timer(0.2, answer_first).start()
        with pytest.raises(StopIteration):
            flow.drain(look)
        flow.close()
    assert heard == ["ceilings"]
    assert seen == [(2 * HELD_UP, HELD_UP, 1)]
    assert [job.kind for job, _ in evaluator.jobs] == ["ceilings", *["screen"] * HELD_UP]


class Inspectors(Builder):
    """The verdict on what passed is that of the last gate."""

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        return {one.id: Verdict(coverage.GATE, Status.OK) for one in kernels}


def test_a_kernel_is_inspected_once_for_all_who_want_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks while it is inspected hears when it is through, and not before. Behind the size
    gate every kernel was inspected as often as somebody asked."""
    monkeypatch.setattr(jobs, "ThreadPoolExecutor", threads := Threads())
    one, two, three = (kernel(choice) for choice in choices(3))
    heard: list[str] = []
    with Store(tmp_path) as store:
        flow = RunJobs(store, Inspectors(), Asked(), run=store.add_run({}), seed=1)
        flow.inspect([one, two], lambda: heard.append("both"))
        flow.inspect([two], lambda: heard.append("two"))
        flow.inspect([one, three], lambda: heard.append("one and three"))
        assert len(threads.asked) == 2 == flow.builds
        for said in (["both", "two"], ["both", "two", "one and three"]):
            threads.work()
            flow._events.get()()
            assert heard == said
        assert flow.builds == 0
        flow.inspect([three], lambda: heard.append("again"))
        assert heard[-1] == "again" and not threads.asked
        flow.close()
