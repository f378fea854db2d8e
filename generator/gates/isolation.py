"""Isolation gate: work that may hang, crash or lose its GPU context runs in a process of its own.

A `Worker` is a fresh interpreter with its privileges dropped, its output thrown away and no way to
answer but a pipe whose write end our code alone holds. It may serve several calls while all goes
well; after a time-out or a crash it and all that it started are killed. Called by `evaluate` and by
the red-team run; knows nothing of kernels.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import secrets
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.gates import privileges

GATE = "isolation"
MAX_REPLY_BYTES = 1 << 20
MAX_WORDS = 2000  # characters of an error message that are kept
START_S = 120.0  # an interpreter on a busy machine
KILL_S = 30.0
_HEAD = struct.Struct("<16sI")  # nonce of the call, bytes of the reply
_MODULE = "hgemm_packs.generator.gates.isolation"


class IsolationError(RuntimeError):
    """The process did not answer: it hung (`Status.TIMEOUT`), or it died or answered nonsense
    (`Status.LAUNCH`)."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status

    def verdict(self) -> Verdict:
        return Verdict(GATE, self.status, str(self))


class Worker:
    """One isolated process. A context manager; `close` kills it whatever it is doing."""

    def __init__(self) -> None:
        """Start the process; returns before it is ready. Raises OSError when none can start."""
        jobs, self._jobs = os.pipe()
        self._replies, replies = os.pipe()
        words = [sys.executable, "-m", _MODULE, str(jobs), str(replies), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                words,
                pass_fds=(jobs, replies),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(jobs)
            os.close(replies)
        self._owed = [(_READY, time.monotonic() + START_S)]  # answers that nobody has read
        self.alive = True

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, function: Callable[..., Any], *arguments: Any, timeout_s: float) -> None:
        """Start a call whose result nobody needs, such as a warm-up; the next `call` waits for its
        end first. `arguments` must be small: nothing reads them before the process has started."""
        self._owed.append((self._send(function, arguments), time.monotonic() + timeout_s))

    def call(self, function: Callable[..., Any], *arguments: Any, timeout_s: float) -> Any:
        """What a module-level function returns there, through JSON. What is still owed, the start
        of the process among it, is waited for first and not counted in `timeout_s`.

        Raises IsolationError when the process hangs, dies or answers nonsense: it is then dead.
        An exception of the function is raised here as RuntimeError with its words.
        """
        if not self.alive:
            raise IsolationError(Status.LAUNCH, "the process is dead")
        try:
            while self._owed:
                self._answer(*self._owed.pop(0))
            nonce = self._send(function, arguments)
            return self._answer(nonce, time.monotonic() + timeout_s)
        except IsolationError:
            self.close()
            raise

    def _send(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
        nonce = secrets.token_bytes(16)
        job = pickle.dumps((nonce, function.__module__, function.__qualname__, arguments))
        try:
            with open(os.dup(self._jobs), "wb") as pipe:
                pipe.write(struct.pack("<I", len(job)) + job)
        except BrokenPipeError:
            raise IsolationError(Status.LAUNCH, self._how_it_died()) from None
        return nonce

    def _answer(self, nonce: bytes, deadline: float) -> Any:
        reply = self._receive(nonce, deadline)
        if not isinstance(reply, dict) or len(reply) != 1:
            raise IsolationError(Status.LAUNCH, "the answer is not one of ours")
        if "raised" in reply:
            raise RuntimeError(str(reply["raised"]))
        return reply.get("result")

    def _receive(self, nonce: bytes, deadline: float) -> Any:
        said, size = _HEAD.unpack(self._read(_HEAD.size, deadline))
        if said != nonce or size > MAX_REPLY_BYTES:
            raise IsolationError(Status.LAUNCH, "the answer is not one of ours")
        try:
            return json.loads(self._read(size, deadline))
        except ValueError:
            raise IsolationError(Status.LAUNCH, "the answer is not JSON") from None

    def _read(self, size: int, deadline: float) -> bytes:
        """`size` bytes of the reply pipe. A child of the process may hold the pipe open for ever,
        so the process itself is watched, not the end of the pipe."""
        data = b""
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise IsolationError(Status.TIMEOUT, "no answer in time")
            if select.select([self._replies], [], [], min(left, 0.05))[0]:
                part = os.read(self._replies, size - len(data))
                if not part:
                    raise IsolationError(Status.LAUNCH, self._how_it_died())
                data += part
            elif self._process.poll() is not None:
                raise IsolationError(Status.LAUNCH, self._how_it_died())
        return data

    def _how_it_died(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        if code is None:
            return "the process closed its pipe"
        if code < 0:
            return f"the process was killed by {signal.Signals(-code).name}"
        return f"the process ended with exit code {code}"

    def close(self) -> None:
        """Kill the process and its group."""
        if not self.alive:
            return
        self.alive = False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may be slow to let go
            self._process.wait(KILL_S)
        os.close(self._jobs)
        os.close(self._replies)


def run(function: Callable[..., Any], *arguments: Any, timeout_s: float) -> Any:
    """One call in a process of its own; see Worker.call."""
    with Worker() as worker:
        return worker.call(function, *arguments, timeout_s=timeout_s)


_READY = b"hgemm_packs ready"[:16]


def _send(pipe: BinaryIO, nonce: bytes, value: Any) -> None:
    body = json.dumps(value).encode()
    if len(body) > MAX_REPLY_BYTES:
        body = json.dumps({"raised": f"a result of {len(body)} bytes"}).encode()
    pipe.write(_HEAD.pack(nonce, len(body)) + body)
    pipe.flush()


def _serve(jobs: BinaryIO, replies: BinaryIO) -> None:
    """Answer calls until the other end closes."""
    _send(replies, _READY, {"result": privileges.drop()})
    while len(head := jobs.read(4)) == 4:
        nonce, module, name, arguments = pickle.loads(jobs.read(struct.unpack("<I", head)[0]))
        try:
            function = getattr(importlib.import_module(module), name)
            answer = {"result": function(*arguments)}
            json.dumps(answer)
        except Exception as error:  # whatever it was, it is told
            answer = {"raised": f"{type(error).__name__}: {error}"[:MAX_WORDS]}
        _send(replies, nonce, answer)


def _end_with(parent: int) -> None:
    """Kill this process when its parent is gone, even in the middle of a call. The kernel's own
    signal for that comes when the parent's *thread* ends, which may be long before."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """The isolated side. The pipe moves to a number of its own that nothing after inherits."""
    threading.Thread(target=_end_with, args=(int(sys.argv[3]),), daemon=True).start()
    given = [int(word) for word in sys.argv[1:3]]
    own = [os.dup(number) for number in given]  # dup'ed by Python: closed on exec
    for number in given:
        os.close(number)
    with open(own[0], "rb") as jobs, open(own[1], "wb") as replies:
        _serve(jobs, replies)


if __name__ == "__main__":
    main()
