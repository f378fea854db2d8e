"""What work in an isolated process may do wrong. Each function runs in a child alone.

Run as a program it starts a worker from a thread that ends, and dies while the worker hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any


def add(a: int, b: int) -> int:
    return a + b


def process() -> int:
    return os.getpid()


def echo(data: bytes) -> str:
    return data.hex()


def note(path: str, after_s: float) -> None:
    time.sleep(after_s)
    Path(path).write_text("done")


def hang() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def spin() -> None:
    while True:
        pass


def die_by(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(3600)


def leave(code: int) -> None:
    os._exit(code)


def fail() -> None:
    raise ValueError("the launch record is odd" + "!" * 10_000)


def print_garbage() -> str:
    """Writes what looks like a reply wherever a program can print."""
    forged = json.dumps({"result": "forged"}).encode()
    forged = struct.pack("<16sI", bytes(16), len(forged)) + forged
    for number in (1, 2):
        os.write(number, forged)
    print("result: forged")
    sys.stderr.write("result: forged\n")
    return "honest"


def write_to_every_descriptor() -> None:
    """What device code cannot do: even this must end as a failure, not as an answer."""
    forged = json.dumps({"result": "forged"}).encode()
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(number, struct.pack("<16sI", bytes(16), len(forged)) + forged)


def huge(size: int) -> str:
    return "x" * size


def flood_then_answer() -> str:
    """Far more than a pipe holds, on both outputs."""
    for _ in range(256):
        os.write(1, bytes(1 << 16))
        os.write(2, bytes(1 << 16))
    return "honest"


def no_json() -> Any:
    return {1, 2}


def orphan(path: str) -> None:
    """Leaves a child that holds every descriptor, and dies."""
    if os.fork() == 0:
        Path(path).write_text(str(os.getpid()))
        time.sleep(3600)
    while not Path(path).exists() or not Path(path).read_text():
        time.sleep(0.01)
    os._exit(3)


def limits() -> dict[str, Any]:
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    try:
        with socket.create_connection(("127.0.0.1", 9), 0.2):
            reached = "connected"
    except OSError as error:
        reached = os.strerror(error.errno or 0)
    return {
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "no_new_privs": int(status["NoNewPrivs"]),
        "capabilities": int(status["CapEff"], 16),
        "leader": os.getsid(0) == os.getpid(),
        "output": [os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)],
        "network": reached,
        "inherited": sorted(n for n in map(int, os.listdir("/proc/self/fd")) if _inheritable(n)),
    }


def _inheritable(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:  # the listing's own descriptor
        return False


def main() -> None:
    from hgemm_packs.generator.gates.isolation import Worker
    from tests.generator.gates import (
        misbehaviour,
    )  # its functions by a name that the child can import

    made: list[Worker] = []
    thread = threading.Thread(target=lambda: made.append(Worker()))
    thread.start()
    thread.join()
    time.sleep(0.2)
    (worker,) = made
    print(worker.call(misbehaviour.add, 1, 2, timeout_s=30), flush=True)
    pid = worker.call(misbehaviour.process, timeout_s=30)
    Path(sys.argv[1]).write_text(str(pid))
    worker.begin(misbehaviour.hang, timeout_s=30)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
