"""Evaluators: jobs come back from several processes, and a process that dies costs a retry."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hgemm_packs.generator.core.spec import Job, Reply, Status
from hgemm_packs.generator.workers.evaluators import Inline
from tests.generator.fake_device import FakeDevice, Make
from tests.generator.store.sample_store import PROBLEMS, choices, kernel
from tests.generator.workers.local_jobs import KERNELS, job, local


def plain(reply: Reply) -> dict[str, tuple[Status, tuple[float, ...]]]:
    return {k: (r.status, r.samples.get("hot", ())) for k, r in reply.results.items()}


def test_processes_answer_as_the_device_in_this_one(tmp_path: Path) -> None:
    jobs = [job(KERNELS[i : i + 2], problem=i, seed=i) for i in range(5)]
    expected = [FakeDevice().run(each) for each in jobs]
    inline = Inline(FakeDevice())
    for each, right in zip(jobs, expected, strict=True):
        assert plain(inline.submit(each).result()) == plain(right)
    assert inline.facts() == FakeDevice().facts
    with local(tmp_path, Make(sleep_s=0.01), 2) as evaluator:
        assert evaluator.facts().name == "Fake 1"
        replies = [f.result(60) for f in [evaluator.submit(each) for each in jobs]]
        # A process that starts late finds no job of these left.
        indices, deadline = {reply.evidence["index"] for reply in replies}, time.monotonic() + 60
        while indices != {0, 1} and time.monotonic() < deadline:
            indices.add(evaluator.submit(jobs[0]).result(60).evidence["index"])
    for right, reply in zip(expected, replies, strict=True):
        assert plain(reply) == plain(right) and reply.baselines == right.baselines
        assert reply.device is not None
        assert reply.device.uuid_hash == f"u{reply.evidence['index']}"
        assert reply.evidence["pid"] != os.getpid()
    assert indices == {0, 1}


@pytest.mark.parametrize("kind", ["screen", "finals"])
def test_the_culprit_of_a_crash_is_found(tmp_path: Path, kind: str) -> None:
    faults = {KERNELS[1].id: "crash"}
    with local(tmp_path, Make(faults)) as evaluator:
        reply = evaluator.submit(job(KERNELS[:4], kind)).result(60)
        after = evaluator.submit(job(KERNELS[:1], "noise")).result(60)
    statuses = [reply.results[k.id].status for k in KERNELS[:4]]
    assert statuses == [Status.OK, Status.LAUNCH, Status.OK, Status.OK]
    assert "signal 11" in reply.results[KERNELS[1].id].detail
    right = FakeDevice().run(job([KERNELS[0], *KERNELS[2:4]], kind))
    for kernel_id, result in right.results.items():
        assert reply.results[kernel_id].samples == result.samples
    assert set(reply.baselines["torch"]) == ({"hot"} if kind == "screen" else {"hot", "cold"})
    # Three deaths were paid for, and for finals the survivors' second, common run.
    assert reply.gpu_seconds > (0.012 if kind == "screen" else 0.024)
    assert after.gpu_seconds == 0.004


def test_a_hang_is_a_timeout(tmp_path: Path) -> None:
    with local(tmp_path, Make({KERNELS[0].id: "hang"}), timeout_s=2.0) as evaluator:
        reply = evaluator.submit(job(KERNELS[:2])).result(60)
    assert reply.results[KERNELS[0].id].status is Status.TIMEOUT
    assert reply.results[KERNELS[0].id].detail == "no answer in 2 s"
    assert reply.results[KERNELS[1].id].status is Status.OK
    assert reply.gpu_seconds >= 4.0


def test_a_lost_device_is_replaced_and_quoted(tmp_path: Path) -> None:
    for evaluator in (
        Inline(FakeDevice(faults={KERNELS[0].id: "raise"})),
        local(tmp_path, Make({KERNELS[0].id: "raise"})),
    ):
        with evaluator:
            reply = evaluator.submit(job(KERNELS[:2], "race")).result(60)
        lost = reply.results[KERNELS[0].id]
        assert lost.status is Status.LAUNCH
        assert lost.detail.startswith("RuntimeError: sticky error")
        assert reply.results[KERNELS[1].id].samples["hot"]
    assert "Traceback" in (tmp_path / "logs" / "worker-0.log").read_text()


def test_a_lost_simulation_is_renewed() -> None:
    bad = choices(1)[0]
    made: list[FakeDevice] = []

    class Once(FakeDevice):
        """Lost for good by one kernel, as a CUDA context is."""

        lost = False

        def run(self, job: Job) -> Reply:
            self.lost |= kernel(bad).id in [k.id for k in job.kernels]
            if self.lost:
                raise RuntimeError("context lost")
            return super().run(job)

    def renew() -> FakeDevice:
        made.append(Once())
        return made[-1]

    reply = Inline(Once(), renew).submit(job(KERNELS[:3])).result()
    assert {k: r.status for k, r in reply.results.items()} == {
        KERNELS[0].id: Status.LAUNCH,
        KERNELS[1].id: Status.OK,
        KERNELS[2].id: Status.OK,
    }
    assert len(made) == 3


def test_a_survivor_keeps_the_baselines_that_ran_beside_it() -> None:
    """After a crash kernels run alone, each with baselines of its own: ratios pair the blocks of
    one job only."""
    first, second = KERNELS[:2]

    class Drifting(FakeDevice):
        """Dies of two kernels at once; the second alone is refused. torch slows down meanwhile."""

        def run(self, job: Job) -> Reply:
            if len(job.kernels) > 1:
                raise RuntimeError("context lost")
            late = job.kernels[0].id == second.id
            torch = {"hot": (20.0 if late else 12.0,)}
            return replace(super().run(job), baselines={"torch": torch})

    device = Drifting(faults={second.id: "launch"})
    reply = Inline(device).submit(job([first, second], "confirm")).result()
    assert [reply.results[k.id].status for k in (first, second)] == [Status.OK, Status.LAUNCH]
    assert reply.baselines == {"torch": {"hot": (12.0,)}}


@dataclass(frozen=True)
class Failing:
    """A factory of devices that fail screens through no kernel: those of one problem always, of
    another unless they come first, as where memory is held by what was measured before."""

    def __call__(self, index: int) -> FakeDevice:
        device, jobs = FakeDevice(index), 0

        def run(job: Job) -> Reply:
            nonlocal jobs
            jobs += 1
            lost = {PROBLEMS[0]: True, PROBLEMS[1]: jobs > 1}.get(job.problem, False)
            evidence = {"failed": "OutOfMemoryError: much", "pid": os.getpid()}
            return Reply({}, {}, evidence, 0.5) if lost else FakeDevice.run(device, job)

        device.run = run  # type: ignore[method-assign]
        return device


def test_a_job_that_fails_blames_no_kernel(tmp_path: Path) -> None:
    """It is believed of a new process, which then ends, whatever it holds."""
    with local(tmp_path, Failing()) as evaluator:
        first = evaluator.submit(job(KERNELS[:2], problem=2)).result(60)
        second = evaluator.submit(job(KERNELS[:2], problem=1)).result(60)
        third = evaluator.submit(job(KERNELS[:2], problem=0)).result(60)
        last = evaluator.submit(job(KERNELS[:2], problem=2)).result(60)
    pids = [reply.evidence["pid"] for reply in (first, second, third, last)]
    assert len(set(pids)) == 4
    assert set(second.results) == {k.id for k in KERNELS[:2]} and "failed" not in second.evidence
    assert second.gpu_seconds == pytest.approx(0.508)
    assert third.results == {} and third.evidence["failed"] == "OutOfMemoryError: much"
    assert third.gpu_seconds == 1.0
    assert plain(last) == plain(first)
    device = FakeDevice(faults={KERNELS[0].id: "crash"})
    device.run = Failing()(0).run  # type: ignore[method-assign]
    reply = Inline(device).submit(job(KERNELS[:2])).result()
    assert reply.results == {} and "failed" in reply.evidence


def test_a_comparison_that_kills_without_a_culprit_fails(tmp_path: Path) -> None:
    """Each kernel runs well alone: none is to blame, and figures of different jobs are none."""

    class Crowded(FakeDevice):
        def run(self, job: Job) -> Reply:
            if len(job.kernels) > 1:
                raise RuntimeError("context lost")
            return super().run(job)

    device = Crowded(faults={KERNELS[2].id: "raise"})
    reply = Inline(device).submit(job(KERNELS[:3], "finals")).result()
    assert reply.evidence["failed"] == "RuntimeError: context lost" and reply.baselines == {}
    assert {k: r.status for k, r in reply.results.items()} == {KERNELS[2].id: Status.LAUNCH}


def test_a_killed_worker_loses_no_job(tmp_path: Path) -> None:
    """kill -9 from outside: the kernels of the job are innocent and are measured after all."""
    with local(tmp_path, Make(sleep_s=0.05)) as evaluator:
        pid = evaluator.submit(job(KERNELS[:1])).result(60).evidence["pid"]
        future = evaluator.submit(job(KERNELS[:4]))
        time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        reply = future.result(60)
    assert {r.status for r in reply.results.values()} == {Status.OK}
    assert len(reply.results) == 4 and reply.evidence["pid"] != pid


def test_a_job_without_kernels_that_kills_fails_as_a_result(tmp_path: Path) -> None:
    class Bad(FakeDevice):
        def run(self, job: Job) -> Reply:
            raise RuntimeError("no cublas")

    reply = Inline(Bad()).submit(Job("noise", PROBLEMS[0], (), 1)).result()
    assert reply.results == {} and reply.evidence["failed"] == "RuntimeError: no cublas"
