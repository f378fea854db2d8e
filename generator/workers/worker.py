"""The process that owns one device: takes jobs from a pipe, answers, dies with its parent.

Started by the local evaluator with `python -c`, so that the environment is set before anything is
imported. Only this module writes to the pipe; what the device or a library prints goes to a log.
"""

from __future__ import annotations

import ctypes
import os
import pkgutil
import signal
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection

from hgemm_packs.generator.core.spec import Device, Job, Reply

Factory = Callable[[int], Device]

_PR_SET_PDEATHSIG = 1
#: What `python -c` runs: fd, parent's pid and module path come as arguments.
BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[3])
from hgemm_packs.generator.workers.worker import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when the thread that started it ends, kill -9 included; end
    it now if that has happened."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def answer(device: Device, job: Job) -> Reply:
    """Run a job and sign the reply."""
    return replace(device.run(job), device=device.facts)


def main(fd: int, parent: int) -> None:
    """Take what makes the device, and which; say "ready", then answer jobs until the pipe ends.

    An exception means that the device is lost: its words are sent and the process ends at once,
    without the destructors that could hang on a lost context.
    """
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what ctrl-C means
    pipe = Connection(fd)
    try:
        given: Factory | str = pipe.recv()  # imports all that it needs
        factory: Factory = pkgutil.resolve_name(given) if isinstance(given, str) else given
        device = factory(pipe.recv())
        pipe.send(("ready", device.facts))
        while True:
            pipe.send(("reply", answer(device, pipe.recv())))
    except EOFError:
        os._exit(0)
    except BaseException as error:
        traceback.print_exc()
        pipe.send(("lost", f"{type(error).__name__}: {error}"))
        os._exit(1)
