"""The queue behind both doors: nothing is lost but what a dead process had, and nobody sees what is
another's."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.evaluator.served.book import ATTEMPTS, Book, Job
from hgemm_packs.generator.evaluator.served.process import CannotStart
from hgemm_packs.generator.evaluator.served.requests import Asked, Limits, Refusal
from hgemm_packs.generator.evaluator.served.service import Service
from hgemm_packs.generator.evaluator.served.turn import turn
from hgemm_packs.generator.store.filelock import LockHeld
from hgemm_packs.generator.workers import evaluators
from tests.generator.evaluator.proposals import PROBLEM, slow_and_fast
from tests.generator.evaluator.serving import SIM, asked, held

WAIT_S = 60.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service"), [SIM]) as made:
        yield made


@pytest.fixture
def me(request: pytest.FixtureRequest) -> str:
    """An owner of one test."""
    return str(request.node.name)


def until(true: Callable[[], Any]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def ran(service: Service, owner: str, id_: str) -> bool:
    return bool(service.view(owner, id_)["state"] == "running")


def test_an_answer_is_the_evaluators_own(service: Service, me: str) -> None:
    _, fast = slow_and_fast(SimDevice(3))
    (job,) = service.submit(me, [Asked(fast, PROBLEM)])
    seen = service.wait(me, job.id, WAIT_S)
    assert (seen["state"], seen["error"]) == ("done", None)
    assert seen["answer"] == Evaluator(SimDevice(3)).evaluate(fast, PROBLEM).document()
    assert service.view(me, job.id) == seen
    assert list(service.events(me, job.id)) == [seen]


def test_a_job_is_streamed_as_it_goes(service: Service, me: str) -> None:
    lines: list[Any] = []
    with held(service):
        (job,) = service.submit(me, asked())
        reader = threading.Thread(target=lambda: lines.extend(service.events(me, job.id, 0.05)))
        reader.start()
        until(lambda: {"state": "running"} in lines)
    reader.join(WAIT_S)
    told = [line for line in lines if set(line) != {"state"}]
    assert [line.get("gate") for line in told[:-1]] == ["numeric", "plausibility", "timing"]
    assert told[-1]["state"] == "done"
    assert told[:-1] == told[-1]["answer"]["gates"]


def test_what_waits_is_cancelled_without_being_begun(service: Service, me: str) -> None:
    first, second, third = asked(3)
    with held(service) as pid:
        (a,) = service.submit(me, [first])
        b, c = service.submit(me, [second, third])
        until(lambda: ran(service, me, a.id))
        assert [service.view(me, each.id)["ahead"] for each in (b, c)] == [0, 1]
        assert service.cancel(me, b.id)["state"] == "cancelled"
        assert service.view(me, c.id)["ahead"] == 0
        assert service.status()["queued"] == 1
    assert service.wait(me, c.id, WAIT_S)["state"] == "done"
    assert service.view(me, a.id)["state"] == "done"
    assert service.pids() == [pid]
    with pytest.raises(Refusal, match="the job is cancelled already") as refused:
        service.cancel(me, b.id)
    assert refused.value.status == 409


def test_what_runs_is_cancelled_with_its_process(service: Service, me: str) -> None:
    first, second = asked(2)
    with held(service) as pid:
        a, b = service.submit(me, [first, second])
        until(lambda: ran(service, me, a.id))
        seen = service.cancel(me, a.id)
        assert (seen["state"], seen["answer"], seen["error"]) == ("cancelled", None, None)
        assert service.wait(me, b.id, WAIT_S)["state"] == "done"
        assert service.pids() != [pid]


def test_a_killed_process_loses_its_job_and_no_other(service: Service, me: str) -> None:
    with held(service) as pid:
        jobs = service.submit(me, asked(4))
        until(lambda: ran(service, me, jobs[0].id))
        os.kill(pid, signal.SIGKILL)
        seen = [service.wait(me, each.id, WAIT_S) for each in jobs]
    assert [each["state"] for each in seen] == ["failed", "done", "done", "done"]
    assert seen[0]["error"] == {
        "code": "process_died",
        "message": "the evaluator's process was killed by SIGKILL",
    }
    assert service.pids()[0] not in (pid, None)
    assert service.status()["devices"] == [{"device": SIM, "state": "idle"}]


def test_a_process_that_died_over_nothing_is_replaced(service: Service, me: str) -> None:
    (pid,) = service.pids()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    first, second = asked(2)
    (job,) = service.submit(me, [first])
    assert service.wait(me, job.id, WAIT_S)["error"]["code"] == "process_died"
    (job,) = service.submit(me, [second])
    assert service.wait(me, job.id, WAIT_S)["state"] == "done"


def test_who_takes_too_long_is_answered_timeout(tmp_path: Path) -> None:
    first, second = asked(2)
    with Service(tmp_path / "jobs", [SIM], Limits(job_s=2.0)) as service:
        with held(service):
            (job,) = service.submit("me", [first])
            seen = service.wait("me", job.id, WAIT_S)
        assert seen["state"] == "done"
        answer = seen["answer"]
        assert (answer["status"], answer["reward"]) == ("TIMEOUT", -0.6)
        assert answer["verdict"]["detail"] == "no answer in 2 s"
        until(lambda: service.pids() != [None])
        (job,) = service.submit("me", [second])
        assert service.wait("me", job.id, WAIT_S)["answer"]["status"] in ("OK", "SLOWER", "NOISE")


def test_a_service_goes_on_where_one_ended(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    first, *rest = asked(4)
    with Service(folder, [SIM]) as service:
        (done,) = service.submit("me", [first])
        finished = service.wait("me", done.id, WAIT_S)
        with held(service):
            left = service.submit("me", rest)
            until(lambda: ran(service, "me", left[0].id))
            service.close()
    with Service(folder, [SIM]) as service:
        assert service.view("me", done.id) == finished
        seen = [service.wait("me", each.id, WAIT_S) for each in left]
        assert [each["state"] for each in seen] == ["done"] * 3
        expected = [Evaluator(SimDevice(3)).evaluate(*each).document() for each in rest]
        assert [each["answer"] for each in seen] == expected
        assert service.last("me") == [
            {"id": each.id, "state": "done"} for each in (*reversed(left), done)
        ]


def test_a_job_that_servers_die_over_fails_in_the_end(tmp_path: Path) -> None:
    """As if each server had been killed while it ran: the book says "running"."""
    book = Book(tmp_path / "jobs")
    candidate = asked()[0].candidate.document()
    problem = {"m": 64, "n": 512, "k": 512}
    for number in range(2):
        attempts = ATTEMPTS - 1 + number
        book.add([Job(f"job-{number}", "me", "running", candidate, problem, attempts=attempts)])
    book.close()
    with Service(tmp_path / "jobs", [SIM]) as service:
        assert service.wait("me", "job-0", WAIT_S)["state"] == "done"
        seen = service.view("me", "job-1")
    assert (seen["state"], seen["error"]["code"]) == ("failed", "server_died")
    assert seen["error"]["message"] == f"{ATTEMPTS} servers ended while it ran"


def test_jobs_of_others_are_not_there(service: Service, me: str) -> None:
    (job,) = service.submit(me, asked())
    for look in (service.view, service.cancel, lambda *who: list(service.events(*who))):
        with pytest.raises(Refusal, match="there is no such job") as refused:
            look("you", job.id)
        assert refused.value.status == 404
    assert service.last("you") == []


def test_an_owner_may_not_fill_the_queue(tmp_path: Path) -> None:
    with Service(tmp_path / "jobs", [SIM], Limits(waiting=2)) as service:
        with held(service):
            jobs = service.submit("me", asked(2))
            with pytest.raises(Refusal, match="2 jobs are not finished, 2 may be") as refused:
                service.submit("me", asked(1))
            assert refused.value.status == 429
            assert len(service.last("me")) == 2
            others = service.submit("you", asked(1))
        for owner, job in [*(("me", job) for job in jobs), ("you", others[0])]:
            assert service.wait(owner, job.id, WAIT_S)["state"] == "done"
        service.submit("me", asked(1))


def test_the_oldest_answers_are_forgotten(tmp_path: Path) -> None:
    book = Book(tmp_path)
    states = ("done", "running", "failed", "cancelled", "queued", "done")
    book.add(Job(f"job-{at}", "me", state, {}, {}) for at, state in enumerate(states))
    book.prune(2)
    assert [job.id for job in book.last("me", 9)] == ["job-5", "job-4", "job-3", "job-1"]
    book.close()


def test_two_services_do_not_share_a_folder(tmp_path: Path) -> None:
    book = Book(tmp_path)
    with pytest.raises(LockHeld):
        Service(tmp_path, [SIM])
    book.close()


@pytest.mark.parametrize("device", ["sim:x", "replay:/none.npz"])
def test_a_device_that_cannot_be_opened_is_said(tmp_path: Path, device: str) -> None:
    with pytest.raises(CannotStart, match=device.partition(":")[0]):
        Service(tmp_path / "jobs", [device])
    Book(tmp_path / "jobs").close()  # the folder is free again


def test_a_file_that_is_no_book_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    path.write_bytes(b"not a database, but long enough to be looked at" * 40)
    with pytest.raises(ValueError, match="is no book of jobs: file is not a database"):
        Book(tmp_path)
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 7")
    db.close()
    with pytest.raises(ValueError, match="is of version 7, this program reads 1"):
        Book(tmp_path)


def test_several_devices_share_a_queue(tmp_path: Path) -> None:
    given = asked(6)
    with Service(tmp_path / "jobs", [SIM, SIM]) as service:
        with held(service, 0):
            jobs = service.submit("me", given)
            until(lambda: sum(ran(service, "me", j.id) for j in jobs) == 1)
            until(lambda: service.status()["queued"] == 0)
        answers = [service.wait("me", each.id, WAIT_S)["answer"] for each in jobs]
    assert answers == [Evaluator(SimDevice(3)).evaluate(*each).document() for each in given]


def test_the_process_answers_whatever_is_proposed(service: Service, me: str) -> None:
    half = Candidate.of_source("\ud800", {"block": 32, "grid": {"tile_m": 16, "tile_n": 8}})
    (job,) = service.submit(me, [Asked(half, PROBLEM)])
    answer = service.wait(me, job.id, WAIT_S)["answer"]
    assert (answer["status"], answer["reward"]) == ("PARSE", -1.0)
    assert "surrogates not allowed" in answer["words"]


def test_a_gpu_is_waited_for_as_long_as_the_job_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluators.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with turn("sim:1", lambda: False) as granted:
        assert granted
    with turn("gpu:0", lambda: True) as granted:
        assert granted
        looks = iter((True, False))
        with turn("gpu:0", lambda: next(looks)) as second:
            assert not second
    with turn("gpu", lambda: True) as granted:
        assert granted
