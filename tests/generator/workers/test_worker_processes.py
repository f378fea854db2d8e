"""Processes of workers: new ones for fresh jobs, a GPU each, gone with their parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hgemm_packs.generator.store.filelock import LockHeld
from hgemm_packs.generator.workers import evaluators
from hgemm_packs.generator.workers.evaluators import DevicesLost
from tests.generator.fake_device import Counted, FakeDevice, Make, broken, true_us
from tests.generator.store.sample_store import PROBLEMS
from tests.generator.workers.local_jobs import KERNELS, job, local


def test_fresh_jobs_run_in_new_processes(tmp_path: Path) -> None:
    with local(tmp_path, Make(), 2) as evaluator:
        old = [evaluator.submit(job(KERNELS[:1], problem=i)) for i in range(4)]
        evaluator.fresh()
        new = [evaluator.submit(job(KERNELS[:1], problem=i)) for i in range(4)]
        pids = [{f.result(60).evidence["pid"] for f in each} for each in (old, new)]
    assert pids[0].isdisjoint(pids[1])


def test_a_process_that_was_prepared_had_no_job_before(tmp_path: Path) -> None:
    """It starts beside the one at work and is the next; the one before is gone by then."""
    log = tmp_path / "starts"
    with local(tmp_path, Counted(log)) as evaluator:
        first = evaluator.submit(job(KERNELS[:1])).result(60).evidence["pid"]
        evaluator.prepare()
        evaluator.prepare()  # takes its GPU now
        evaluator.prepare()  # one is enough
        while len(log.read_text().split()) < 2:
            time.sleep(0.01)
        assert evaluator.submit(job(KERNELS[:1])).result(60).evidence["pid"] == first
        evaluator.fresh()
        second = evaluator.submit(job(KERNELS[:1])).result(60).evidence["pid"]
        assert log.read_text().split() == [str(first), str(second)] and first != second
        evaluator.fresh()  # nothing was prepared: it starts now
        third = evaluator.submit(job(KERNELS[:1])).result(60).evidence["pid"]
        assert log.read_text().split()[2:] == [str(third)]
        evaluator.prepare()
    for pid in map(int, log.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_that_could_not_be_prepared_starts_later(tmp_path: Path) -> None:
    """A GPU in exclusive mode refuses the second process while the first one is there."""
    log = tmp_path / "starts"
    with local(tmp_path, Counted(log, alone=True)) as evaluator:
        first = evaluator.submit(job(KERNELS[:1])).result(60).evidence["pid"]
        evaluator.prepare()
        evaluator.prepare()
        while len(log.read_text().split()) < 2:
            time.sleep(0.01)
        evaluator.fresh()
        second = evaluator.submit(job(KERNELS[:1])).result(60).evidence["pid"]
        started = log.read_text().split()
        assert (started[0], started[2], len(started)) == (str(first), str(second), 3)


def test_a_process_that_imports_takes_no_gpu_yet(tmp_path: Path) -> None:
    """Of the seconds between a search and its confirmations most went into imports. A process that
    made its device at once would do so beside jobs that are timed; and an exclusive GPU would
    refuse it."""
    log = tmp_path / "starts"
    with local(tmp_path, Counted(log, alone=True)) as evaluator:
        first = evaluator.submit(job(KERNELS[:1])).result(60).evidence["pid"]
        evaluator.prepare()
        assert evaluator.submit(job(KERNELS[:1])).result(60).evidence["pid"] == first
        evaluator.fresh()
        second = evaluator.submit(job(KERNELS[:1])).result(60).evidence["pid"]
        assert log.read_text().split() == [str(first), str(second)]


def test_a_problem_stays_with_its_worker(tmp_path: Path) -> None:
    """Which has its operands, whoever has waited for longer. Others take what it leaves."""
    with local(tmp_path, Make(sleep_s=0.01), 2) as evaluator:

        def workers(*problems: int) -> list[int]:
            while len(evaluator._idle) < 2:
                time.sleep(0.001)
            futures = [evaluator.submit(job(KERNELS[:1], problem=i)) for i in problems]
            return [future.result(60).evidence["index"] for future in futures]

        homes = workers(0, 1)
        assert sorted(homes) == [0, 1]
        assert all(workers(i) == [homes[i]] for i in (0, 0, 1, 0, 1, 1, 1, 0))
        assert workers(1, 0) == homes[::-1]
        assert set(workers(*[0] * 8)) == {0, 1}


def test_no_device_is_an_exception(tmp_path: Path) -> None:
    with local(tmp_path, broken) as evaluator:
        futures = [evaluator.submit(job(KERNELS[:1])) for _ in range(3)]
        for future in futures:
            with pytest.raises(DevicesLost, match="no device 0"):
                future.result(60)
        with pytest.raises(DevicesLost):
            evaluator.submit(job(KERNELS[:1])).result(1)
        with pytest.raises(DevicesLost, match="no device 0"):
            evaluator.facts()


def test_what_the_host_refuses_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of ours in a seat's thread once ended the thread, and the run waited for ever."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    with local(tmp_path, Make()) as evaluator:
        assert evaluator.submit(job(KERNELS[:1])).result(60).results
        monkeypatch.setattr(evaluators._Process, "attempt", refuse)
        futures = [evaluator.submit(job(KERNELS[:1])) for _ in range(2)]
        for future in futures:
            with pytest.raises(OSError, match="no more processes"):
                future.result(10)
        monkeypatch.undo()
        assert evaluator.submit(job(KERNELS[:1])).result(60).results
        monkeypatch.setattr(subprocess, "Popen", refuse)
        evaluator.fresh()
        with pytest.raises(DevicesLost, match=r"OSError.*no more processes"):
            evaluator.submit(job(KERNELS[:1])).result(10)


def test_two_runs_never_share_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgemm_packs.generator.workers.evaluators.LOCK_WAIT_S", 0.1)
    with local(tmp_path, Make(), 2), pytest.raises(LockHeld, match=f"process {os.getpid()}"):
        local(tmp_path, Make())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    with local(tmp_path, Make()):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        local(tmp_path, Make()).close()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        with pytest.raises(LockHeld, match="gpu-3"):
            local(tmp_path, Make())
        with pytest.raises(ValueError, match="not among"):
            local(tmp_path, Make(), 2)


PARENT = """
import sys
from pathlib import Path
from hgemm_packs.generator.workers.evaluators import Local
from hgemm_packs.generator.core.spec import Job
from tests.generator.fake_device import Make
from tests.generator.store.sample_store import PROBLEMS, choices, kernel
folder = Path(sys.argv[1])
if __name__ == "__main__":
    one = kernel(choices(1)[0])
    evaluator = Local(Make({one.id: "hang"}), 1, logs=folder / "logs", locks=folder)
    print(evaluator.submit(Job("noise", PROBLEMS[0], (), 1)).result().evidence["pid"], flush=True)
    evaluator.submit(Job("screen", PROBLEMS[0], (one,), 1)).result()
"""


def test_workers_die_with_a_killed_parent(tmp_path: Path) -> None:
    """Also in the middle of a kernel that hangs; the GPU is free at once."""
    words = [sys.executable, "-c", PARENT, str(tmp_path)]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    local(tmp_path, Make()).close()  # waits for the lock
    until = time.monotonic() + 10
    while Path(f"/proc/{worker}").exists() and not _zombie(worker):
        assert time.monotonic() < until
        time.sleep(0.01)


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_close_does_not_wait_for_a_hang(tmp_path: Path) -> None:
    evaluator = local(tmp_path, Make({KERNELS[0].id: "hang"}))
    pid = evaluator.submit(job([KERNELS[1]])).result(60).evidence["pid"]
    running, queued = evaluator.submit(job([KERNELS[0]])), evaluator.submit(job([KERNELS[1]]))
    evaluator.close()
    for future in (running, queued):
        with pytest.raises(DevicesLost, match="closed"):
            future.result(1)
    assert not Path(f"/proc/{pid}").exists()


def test_what_a_worker_prints_goes_to_the_log(tmp_path: Path) -> None:
    with local(tmp_path, Printing(tmp_path)) as evaluator:
        reply = evaluator.submit(job(KERNELS[:1])).result(60)
    assert reply.results[KERNELS[0].id].samples["hot"][0] == pytest.approx(
        true_us(PROBLEMS[0], KERNELS[0].id), rel=2e-4
    )
    assert "hello from device 0" in (tmp_path / "logs" / "worker-0.log").read_text()
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen == {"visible": "0", "torch": False}


class Printing:
    """A factory that says what it sees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, index: int) -> FakeDevice:
        print("hello from device", index)
        os.write(1, b"and from below\n")
        seen = {"visible": os.environ["CUDA_VISIBLE_DEVICES"], "torch": "torch" in sys.modules}
        (self.folder / "seen.json").write_text(json.dumps(seen))
        return FakeDevice(index)
