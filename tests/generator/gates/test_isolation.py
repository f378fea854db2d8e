"""Isolation: whatever the work does, the caller gets its answer or an error, in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates import isolation
from hgemm_packs.generator.gates.isolation import IsolationError, Worker
from tests.generator.gates import misbehaviour

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_one_process_serves_many_calls(worker: Worker) -> None:
    pids = {worker.call(misbehaviour.process, timeout_s=10) for _ in range(3)}
    assert len(pids) == 1
    assert pids != {os.getpid()}
    assert worker.call(misbehaviour.add, 40, 2, timeout_s=10) == 42
    data = os.urandom(1 << 18)  # more than a pipe holds
    assert worker.call(misbehaviour.echo, data, timeout_s=10) == data.hex()


def test_a_call_that_was_begun_ends_before_the_next(worker: Worker, tmp_path: Path) -> None:
    worker.begin(misbehaviour.note, str(tmp_path / "note"), 0.2, timeout_s=10)
    worker.begin(misbehaviour.fail, timeout_s=10)
    with pytest.raises(RuntimeError, match="odd"):
        worker.call(misbehaviour.process, timeout_s=10)
    assert (tmp_path / "note").read_text() == "done"
    assert worker.call(misbehaviour.add, 1, 2, timeout_s=10) == 3
    worker.begin(misbehaviour.hang, timeout_s=0.2)
    with pytest.raises(IsolationError, match="no answer in time"):
        worker.call(misbehaviour.add, 1, 2, timeout_s=10)


def test_an_exception_is_told_and_the_process_lives(worker: Worker) -> None:
    with pytest.raises(RuntimeError, match=r"^ValueError: the launch record is odd") as raised:
        worker.call(misbehaviour.fail, timeout_s=10)
    assert len(str(raised.value)) == isolation.MAX_WORDS
    with pytest.raises(RuntimeError, match=r"^TypeError: .*set is not JSON"):
        worker.call(misbehaviour.no_json, timeout_s=10)
    assert worker.call(misbehaviour.add, 1, 2, timeout_s=10) == 3


@pytest.mark.parametrize("work", [misbehaviour.hang, misbehaviour.spin])
def test_a_hang_ends_with_its_time(worker: Worker, work: object) -> None:
    pid = worker.call(misbehaviour.process, timeout_s=10)
    began = time.monotonic()
    with pytest.raises(IsolationError, match="no answer in time") as raised:
        worker.call(work, timeout_s=0.2)  # type: ignore[arg-type]
    assert time.monotonic() - began < 30
    verdict = raised.value.verdict()
    assert (verdict.gate, verdict.status, verdict.passed) == ("isolation", Status.TIMEOUT, False)
    assert not is_running(pid)
    with pytest.raises(IsolationError, match="the process is dead"):
        worker.call(misbehaviour.add, 1, 2, timeout_s=10)


@pytest.mark.parametrize(
    ("work", "argument", "words"),
    [
        (misbehaviour.die_by, signal.SIGSEGV, "killed by SIGSEGV"),
        (misbehaviour.die_by, signal.SIGABRT, "killed by SIGABRT"),
        (misbehaviour.leave, 0, "exit code 0"),
        (misbehaviour.leave, 7, "exit code 7"),
    ],
)
def test_a_death_is_an_error_at_once(work: object, argument: int, words: str) -> None:
    began = time.monotonic()
    with pytest.raises(IsolationError, match=words) as raised:
        isolation.run(work, argument, timeout_s=60)  # type: ignore[arg-type]
    assert raised.value.status is Status.LAUNCH
    assert time.monotonic() - began < 30


def test_nothing_printed_reaches_the_answer(worker: Worker) -> None:
    assert worker.call(misbehaviour.print_garbage, timeout_s=10) == "honest"
    assert worker.call(misbehaviour.flood_then_answer, timeout_s=10) == "honest"
    assert worker.call(misbehaviour.add, 1, 2, timeout_s=10) == 3


def test_a_forged_answer_lacks_the_nonce(worker: Worker) -> None:
    with pytest.raises(IsolationError, match="the answer is not one of ours") as raised:
        worker.call(misbehaviour.write_to_every_descriptor, timeout_s=10)
    assert raised.value.status is Status.LAUNCH


def test_an_answer_has_a_limit(worker: Worker) -> None:
    size = isolation.MAX_REPLY_BYTES // 2
    assert len(worker.call(misbehaviour.huge, size, timeout_s=10)) == size
    with pytest.raises(RuntimeError, match=r"a result of \d{8} bytes"):
        worker.call(misbehaviour.huge, 1 << 24, timeout_s=10)


def test_a_child_that_holds_the_pipe_does_not_hold_the_caller(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(IsolationError, match="exit code 3"):
        isolation.run(misbehaviour.orphan, str(tmp_path / "pid"), timeout_s=60)
    assert time.monotonic() - began < 30
    orphan = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not is_running(orphan):
            break
        time.sleep(0.05)
    assert not is_running(orphan)


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    """Not with the thread that started it."""
    words = [sys.executable, "-m", "tests.generator.gates.misbehaviour", str(tmp_path / "pid")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "3\n", done.stderr
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not is_running(pid):
            break
        time.sleep(0.05)
    assert not is_running(pid)


def test_the_process_has_given_up_what_it_could(worker: Worker) -> None:
    found = worker.call(misbehaviour.limits, timeout_s=10)
    assert found["core"] == 0
    assert found["no_new_privs"] == 1
    assert found["capabilities"] == 0
    assert found["leader"] is True
    assert found["output"] == ["/dev/null"] * 3
    assert found["inherited"] == [0, 1, 2]
    if os.geteuid() == 0:
        assert found["network"] == "Network is unreachable"
