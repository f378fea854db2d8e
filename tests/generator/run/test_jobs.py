"""Jobs on their way: what a run that is cut off still keeps of them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from hgemm_packs.generator.core.spec import Job, Reply
from hgemm_packs.generator.run import jobs
from hgemm_packs.generator.run.jobs import RunJobs
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
    monkeypatch.setattr(jobs, "GRACE_S", 0.5)
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
        assert 0.1 < time.monotonic() - began < 5.0
        kept = {done.problem: done.reply for done in store.finished_jobs()}
        assert kept == {PROBLEMS[i]: evaluator.reply(i) for i in (2, 3)}
    assert heard == []
