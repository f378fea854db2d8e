"""The store: what is committed stays, and what was tried is told again."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.generator.core.spec import Job, Proposal, Reply, Result, Status, Verdict
from hgemm_packs.generator.store.run_folder import Store, StoreError
from tests.generator.store.filled_store import fill
from tests.generator.store.sample_store import FACTS, PROBLEMS, choices, kernel, screen


def test_outcomes_are_told_as_they_were(tmp_path: Path) -> None:
    good, slow, broken, unasked = choices(4)
    with Store(tmp_path) as store:
        run, tool = fill(store, PROBLEMS[0], [good, slow], [5.0, 9.0])
        store.add_candidate(run, PROBLEMS[0], Proposal(broken, "bandit", "tile", (good.key,)))
        store.add_build(broken, tool, Verdict("build", Status.BUILD, "spills"))
        store.add_candidate(run, PROBLEMS[0], Proposal(unasked, "random"))
        store.add_build(unasked, tool, kernel(unasked))
    with Store(tmp_path, readonly=True) as store:
        told = {o.proposal.choice: o for o in store.outcomes(PROBLEMS[0], tool, FACTS)}
        assert set(told) == {good, slow, broken}
        assert (told[good].us, told[slow].us) == (5.0, 9.0)
        assert told[good].facts == {"regs": 64.0}
        assert told[good].proposal == Proposal(good, "random", "seed", ("p",))
        assert told[broken].status is Status.BUILD and told[broken].us == math.inf
        assert told[broken].proposal.parents == (good.key,)
        assert store.outcomes(PROBLEMS[1], tool, FACTS) == []
        assert store.outcomes(PROBLEMS[0], "other sources", FACTS) == []


def test_what_was_measured_under_another_driver_is_not_told(tmp_path: Path) -> None:
    """Screens of two drivers were once pooled; which one of several GPUs it was plays no part."""
    (choice,) = choices(1)
    twin, newer = replace(FACTS, uuid_hash="u1"), replace(FACTS, versions={"torch": "1"})
    with Store(tmp_path) as store:
        run, tool = fill(store, PROBLEMS[0], [choice], [5.0])
        for us, device in ((7.0, twin), (1.0, newer)):
            job, reply = screen(PROBLEMS[0], [kernel(choice)], [us])
            torch = {"torch": {"hot": (2 * us,)}}
            store.add_reply(run, job, replace(reply, baselines=torch, device=device))
        for device, us, torch_us in ((FACTS, (5.05 + 6.93) / 2, 14.0), (newer, 1.0, 2.0)):
            assert [o.us for o in store.outcomes(PROBLEMS[0], tool, device)] == [pytest.approx(us)]
            assert store.torch_us(device) == {PROBLEMS[0]: torch_us}
        other = replace(FACTS, versions={"torch": "2"})
        assert store.outcomes(PROBLEMS[0], tool, other) == [] and store.torch_us(other) == {}
        died = Reply({kernel(choice).id: Result(Status.TIMEOUT, detail="no answer")})
        store.add_reply(run, job, died)  # nobody signed it
        assert store.outcomes(PROBLEMS[0], tool, other)[0].status is Status.TIMEOUT


def test_a_failure_anywhere_counts_everywhere(tmp_path: Path) -> None:
    """A kernel that was wrong on one problem is not told as OK on another; quarantine outranks."""
    wrong, hack, honest = choices(3)
    with Store(tmp_path) as store:
        run, tool = fill(store, PROBLEMS[0], [wrong, hack, honest], [3.0, 1.0, 4.0])
        failed = Reply({kernel(wrong).id: Result(Status.NUMERIC, {}, "17 elements")}, gpu_seconds=1)
        store.add_reply(run, Job("gate", None, (kernel(wrong),), 5), failed)
        store.add_verdict(kernel(hack).id, Verdict("numeric", Status.NUMERIC, "too"))
        why = Verdict("plausibility", Status.HACK, "faster than copying", {"us": 1.0})
        store.add_verdict(kernel(hack).id, why, PROBLEMS[0])
        told = {
            o.proposal.choice: (o.status, o.us) for o in store.outcomes(PROBLEMS[0], tool, FACTS)
        }
        assert told == {
            wrong: (Status.NUMERIC, math.inf),
            hack: (Status.HACK, math.inf),
            honest: (Status.OK, 4.0),
        }
        assert store.quarantine_records() == [(kernel(hack).id, PROBLEMS[0], why)]
        gate = store.verdicts("numeric")
        assert gate[kernel(wrong).id].detail == "17 elements"
        assert store.spent_gpu_seconds() == {"gate": 1.0, "screen": 0.25}


def test_one_failed_launch_is_the_problems_fault_two_are_the_kernels(tmp_path: Path) -> None:
    one = kernel(choices(1)[0])
    lost = Reply({one.id: Result(Status.LAUNCH, {}, "no memory")})
    with Store(tmp_path) as store:
        run = store.add_run({})
        store.add_reply(run, Job("screen", PROBLEMS[0], (one,), 1), lost)
        store.add_reply(run, Job("screen", PROBLEMS[0], (one,), 2), lost)
        assert store.refused_kernels() == {}
        store.add_reply(run, Job("screen", PROBLEMS[1], (one,), 3), lost)
        assert store.refused_kernels() == {one.id: Status.LAUNCH}


def test_want_of_memory_is_never_the_kernels_fault(tmp_path: Path) -> None:
    """Problems too large for the GPU kill their jobs; what else their kernels won stays."""
    one = kernel(choices(1)[0])
    # A worker's word comes first; through ray it is the end of a trace.
    words = "trace\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 GiB."
    lost = Reply({one.id: Result(Status.LAUNCH, {}, words)})
    with Store(tmp_path) as store:
        run = store.add_run({})
        for problem in PROBLEMS[:3]:
            store.add_reply(run, Job("screen", problem, (one,), 1), lost)
        assert store.refused_kernels() == {}


def test_replies_come_back_whole(tmp_path: Path) -> None:
    one, two = (kernel(choice) for choice in choices(2))
    job = Job("finals", PROBLEMS[2], (two, one), 77)
    results = {
        one.id: Result(Status.OK, {"hot": (1.5, 2.5), "cold": (3.25,)}, "", {"error": 2e-4}),
        two.id: Result(Status.NUMERIC, {}, "3 elements wrong"),
    }
    reply = Reply(
        results, {"torch": {"hot": (4.0, 5.0)}}, {"sm_mhz": [1980], "noise": 0.5}, 0.125, FACTS
    )
    with Store(tmp_path) as store:
        run = store.add_run({})
        store.add_reply(run, job, reply)
        (found,) = store.finished_jobs("finals")
        assert found.reply == reply
        assert (found.problem, found.seed, found.run) == (PROBLEMS[2], 77, run)
        assert set(found.kernels) == {one.id, two.id}
        assert len(list(store.finished_jobs("finals", PROBLEMS[2], [one.id, two.id]))) == 1
        assert list(store.finished_jobs("finals", PROBLEMS[2], [one.id])) == []
        assert list(store.finished_jobs("finals", PROBLEMS[1])) == []
        assert list(store.finished_jobs("race")) == []
        assert store.devices() == [FACTS]


def test_ceilings_belong_to_all_gpus_of_a_name(tmp_path: Path) -> None:
    other = replace(FACTS, uuid_hash="u1")
    peaks = {"peak_tflops": 900.0, "peak_gbps": 4000.0}
    with Store(tmp_path) as store:
        run = store.add_run({})
        store.add_reply(run, Job("ceilings", None, (), 1), Reply({}, {}, peaks, 3.0, FACTS))
        noise = Reply({}, gpu_seconds=1.0, device=replace(other, **peaks))
        store.add_reply(run, Job("noise", PROBLEMS[0], (), 2), noise)
        store.add_reply(run, Job("noise", PROBLEMS[0], (), 3), replace(noise, device=other))
        assert store.devices() == [replace(FACTS, **peaks), replace(other, **peaks)]


def test_a_gpu_is_the_same_with_facts_that_an_earlier_run_did_not_record(tmp_path: Path) -> None:
    known = replace(FACTS, theoretical_mem_bw_gbps=4916.7, power_limit_w=700.0)
    capped = replace(known, power_limit_w=500.0)
    with Store(tmp_path) as store:
        ids = [store.add_device(each) for each in (FACTS, known, capped)]
        assert store.devices() == [FACTS, known, capped]
        assert store.alike(FACTS) == {None, *ids}
        assert store.alike(known) == {None, ids[0], ids[1]}
        assert store.alike(capped) == {None, ids[0], ids[2]}


def test_screens_of_two_hosts_are_pooled(tmp_path: Path) -> None:
    (choice,) = choices(1)
    with Store(tmp_path) as store:
        run, tool = fill(store, PROBLEMS[0], [choice], [5.0])
        store.add_reply(run, *screen(PROBLEMS[0], [kernel(choice)], [7.0], seed=2))
        assert store.outcomes(PROBLEMS[0], tool, FACTS)[0].us == pytest.approx((5.05 + 6.93) / 2)


def test_one_writer_and_readers_meanwhile(tmp_path: Path) -> None:
    (choice,) = choices(1)
    with Store(tmp_path) as store:
        fill(store, PROBLEMS[0], [choice], [2.0])
        with pytest.raises(StoreError, match=f"process {os.getpid()}"):
            Store(tmp_path)
        with Store(tmp_path, readonly=True) as reader:
            assert len(list(reader.finished_jobs("screen"))) == 1
            store.add_reply(store.add_run({}), *screen(PROBLEMS[0], [kernel(choice)], [3.0], 9))
            assert len(list(reader.finished_jobs("screen"))) == 2
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                reader.add_run({})
    with Store(tmp_path) as again:
        assert len(again.runs()) == 2


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    (choice,) = choices(1)
    job, reply = screen(PROBLEMS[0], [kernel(choice)], [2.0])
    bad = Reply({**reply.results, "x": Result(Status.OK, {}, "", {"unplain": object()})})
    with Store(tmp_path) as store:
        with pytest.raises(TypeError):
            store.add_reply(store.add_run({}), job, bad)
        assert list(store.finished_jobs()) == []
        assert store.problems() == []


def test_a_full_disk_is_named_and_costs_only_what_did_not_fit(tmp_path: Path) -> None:
    one = kernel(choices(1)[0])
    job, reply = screen(PROBLEMS[0], [one], [2.0])
    large, more = screen(PROBLEMS[1], [one], [3.0], 2)
    more = replace(more, evidence={"words": "x" * 1_000_000})
    with Store(tmp_path) as store:
        run = store.add_run({})
        store.add_reply(run, job, reply)
        pages = store.db.execute("PRAGMA page_count").fetchone()[0]
        store.db.execute(f"PRAGMA max_page_count = {pages + 8}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            store.add_reply(run, large, more)
        store.db.execute("PRAGMA max_page_count = 100000")
        store.add_reply(run, large, more)
        assert [done.reply for done in store.finished_jobs()] == [reply, more]


WRITER = """
import sys
from pathlib import Path
from hgemm_packs.generator.store.run_folder import Store
from tests.generator.store.sample_store import PROBLEMS, choices, kernel, screen
store = Store(Path(sys.argv[1]))
run = store.add_run({})
one = kernel(choices(1)[0])
for seed in range(100000):
    store.add_reply(run, *screen(PROBLEMS[seed % 8], [one], [2.0 + seed], seed))
    print(seed, flush=True)
"""


def test_kill_9_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path)]
    writer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    timer = threading.Timer(30, writer.kill)
    timer.start()
    seen = [int(next(writer.stdout)) for _ in range(200)]
    writer.send_signal(signal.SIGKILL)
    seen += [int(line) for line in writer.stdout]
    writer.wait()
    timer.cancel()
    writer.stdout.close()
    with Store(tmp_path, readonly=True) as reader:
        assert set(seen) <= {done.seed for done in reader.finished_jobs()}
    with Store(tmp_path) as store:
        found = {done.seed: done.reply for done in store.finished_jobs("screen")}
        assert set(seen) <= set(found) and len(found) - len(seen) <= 1
        one = kernel(choices(1)[0]).id
        assert all(reply.results[one].samples["hot"][1] == 2.0 + s for s, reply in found.items())
