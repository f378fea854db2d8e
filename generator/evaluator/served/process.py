"""A process with one evaluator: jobs in, verdicts and an answer out, as JSON through a socket.

Started by the service, one a device. What a candidate does to the process, or the compiler over it,
costs that process alone; the service starts another. Nothing that comes out of it is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hgemm_packs.generator.evaluator.answer import plain
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.evaluator.served.requests import Limits, problem
from hgemm_packs.generator.workers.worker import die_with_parent

START_S = 180.0
KILL_S = 10.0
MOST_BYTES = 1 << 24  # of a message
_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[4])
from hgemm_packs.generator.evaluator.served.process import main
main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
"""


class Died(RuntimeError):
    """The process is gone, and with it the job; the message says how."""


class TooLong(RuntimeError):
    """No answer in time; the process was ended."""


class CannotStart(RuntimeError):
    """The process could not open its device; the message has its words."""


class Process:
    """One evaluator's process. All calls but `kill` come from one thread."""

    def __init__(self, device: str, log: Path) -> None:
        """Start it and wait for its device. Raises CannotStart."""
        ours, theirs = socket.socketpair()
        words = [str(theirs.fileno()), str(os.getpid()), device, json.dumps(sys.path)]
        with theirs, log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", _BOOT, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._pipe = Connection(ours.detach())
        try:
            said = self._receive(time.monotonic() + START_S)
        except (Died, TooLong) as error:
            self.close()
            raise CannotStart(f"{device}: {error}; its log is {log}") from None
        if "ready" not in said:
            self.close()
            raise CannotStart(f"{device}: {said.get('raised')}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def evaluate(
        self,
        candidate: dict[str, Any],
        problem: dict[str, Any],
        told: Callable[[dict[str, Any]], None],
        limit_s: float,
    ) -> dict[str, Any]:
        """The answer to a job; `told` hears of each gate.

        Raises Died or TooLong, after which the process is gone, and RuntimeError with the words of
        an evaluator whose device failed for reasons of its own.
        """
        deadline = time.monotonic() + limit_s
        try:
            self._pipe.send_bytes(json.dumps({"candidate": candidate, "problem": problem}).encode())
            while True:
                said = self._receive(deadline)
                if "gate" in said:
                    told(said["gate"])
                elif "raised" in said:
                    raise RuntimeError(str(said["raised"]))
                else:
                    answer: dict[str, Any] = said["answer"]
                    return answer
        except (Died, TooLong):
            self.close()
            raise
        except (KeyError, OSError) as error:
            self.close()
            raise Died(f"{self._how()}: {error}") from None

    def _receive(self, deadline: float) -> dict[str, Any]:
        try:
            if not self._pipe.poll(max(0.0, deadline - time.monotonic())):
                raise TooLong("no answer in time")
            said = json.loads(self._pipe.recv_bytes(MOST_BYTES))
        except (EOFError, OSError):
            raise Died(self._how()) from None
        except ValueError:
            raise Died("the evaluator's process answered nonsense") from None
        if not isinstance(said, dict):
            raise Died("the evaluator's process answered nonsense")
        return said

    def _how(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        if code is not None and code < 0:
            return f"the evaluator's process was killed by {signal.Signals(-code).name}"
        return f"the evaluator's process ended with exit code {code}"

    def kill(self) -> None:
        """End the process and all that it started, from any thread; a call in progress raises
        Died."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and let go of it."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver may be slow to let go
            self._process.wait(KILL_S)
        self._pipe.close()


def main(fd: int, parent: int, device: str) -> None:
    """Open the device, then answer jobs until the pipe ends. The parent holds the GPU's lock."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what ctrl-C means
    with contextlib.suppress(OSError):  # memory that a compiler eats is not the server's
        Path("/proc/self/oom_score_adj").write_text("1000")
    pipe = Connection(fd)

    def send(**said: Any) -> None:
        pipe.send_bytes(json.dumps(said).encode())

    import torch

    torch.set_num_threads(1)  # several of these share the CPUs, and a candidate asks for little
    from hgemm_packs.generator.evaluator.evaluator import Evaluator
    from hgemm_packs.generator.evaluator.places import open_device

    try:
        evaluator = Evaluator(open_device(device), alone=True)
    except Exception as error:
        send(raised=f"{type(error).__name__}: {error}")
        return
    send(ready=True)
    with contextlib.suppress(EOFError):
        while True:
            job = json.loads(pipe.recv_bytes(MOST_BYTES))
            candidate = Candidate.of_document(job["candidate"])
            try:
                answer = evaluator.evaluate(
                    candidate,
                    problem(job["problem"], _NO_LIMITS),
                    lambda verdict: send(gate=plain(verdict)),
                )
            except Exception as error:  # the device's, not the candidate's
                send(raised=f"{type(error).__name__}: {error}")
            else:
                send(answer=answer.document())


_NO_LIMITS = Limits(dim=2**31, operand_bytes=1 << 62)  # the door has seen to them
