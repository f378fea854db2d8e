"""kill -9 at random moments: nothing that was committed is lost or done again, and the end is that
of a run that nobody disturbed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.run import generate
from hgemm_packs.generator.run.generate import Summary
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.evaluators import Inline
from tests.generator.fake_device import FakeDevice
from tests.generator.run import killed_run

KILLS = 10


def lines(*paths: Path) -> list[list[Any]]:
    """Whole lines: a killed writer may leave a torn one."""
    text = [line for path in paths for line in path.read_text().split("\n")[:-1]]
    return [json.loads(line) for line in text]


def check(folder: Path, tmp_path: Path) -> Summary:
    """Compare the run in `folder`, which has come to its end, with one that was left alone."""
    whole = killed_run.run(tmp_path / "whole", Inline(FakeDevice()))
    acknowledged = lines(folder / "acknowledged")
    done = lines(*(folder / "jobs").iterdir())
    with Store(folder, readonly=True) as store, Store(tmp_path / "whole", readonly=True) as right:
        stored = {each.id for each in store.finished_jobs()}
        assert {line[0] for line in acknowledged} <= stored
        for kind in ("screen", "race", "finals", "confirm"):
            found, expected = (
                Counter((job.problem, k) for job in each.finished_jobs(kind) for k in job.kernels)
                for each in (store, right)
            )
            assert found == expected
        samples = [
            {(job.problem, k): r.samples for job in each.finished_jobs("confirm")
             for k, r in job.reply.results.items()}
            for each in (store, right)
        ]  # fmt: skip
        assert samples[0] == samples[1] and samples[0]
        assert store.refused_kernels() == {}
    committed = {}
    for _, kind, problem, ids, at in acknowledged:
        if kind not in ("ceilings", "noise"):  # the same job several times
            committed[kind, problem, tuple(ids)] = at
    for kind, problem, ids, _, began, _ in done:
        assert began < committed.get((kind, problem, tuple(ids)), float("inf"))
    return whole


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    rng, folder = random.Random(3), tmp_path / "cut"
    words = [sys.executable, "-m", "tests.generator.run.killed_run", str(folder)]
    folder.mkdir()
    seen: set[str] = set()
    for kill in range(KILLS + 1):
        run = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        guard = threading.Timer(30, run.kill)
        guard.start()
        assert run.stdout is not None
        if kill == KILLS:
            break
        if kill % 4 == 1:  # while it starts, or soon after
            time.sleep(rng.uniform(0.1, 0.6))
        else:
            seen |= {run.stdout.readline() for _ in range(rng.randint(4, 6))}
            time.sleep(rng.uniform(0.0, 0.02))
        assert run.poll() is None
        run.send_signal(signal.SIGKILL)
        run.wait()
        run.stdout.close()
        guard.cancel()
    assert run.wait() == 0
    run.stdout.close()
    guard.cancel()
    assert seen >= {"screen\n", "race\n", "finals\n"}
    check(folder, tmp_path)


def _children() -> list[int]:
    """Processes that the threads of this one have started."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def test_a_run_survives_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "_SHOWN_S", 0.0)
    rng, folder = random.Random(4), tmp_path / "hit"
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while len(killed) < KILLS and not over.wait(rng.uniform(0.1, 0.2)):
            at_work = [pid for pid in _children() if (folder / "jobs" / f"{pid}.jsonl").exists()]
            if at_work:
                killed.append(rng.choice(at_work))
                os.kill(killed[-1], signal.SIGKILL)

    with killed_run.workers(folder, 0.01) as evaluator:
        evaluator.facts()
        thread = threading.Thread(target=kill)
        thread.start()
        summary = killed_run.run(folder, evaluator)
        over.set()
        thread.join()
    assert len(set(killed)) == KILLS
    whole = check(folder, tmp_path)
    assert summary.confirmed == whole.confirmed > 0
    assert summary.speedup == pytest.approx(whole.speedup)
