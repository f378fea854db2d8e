"""A lock that lives as long as a process holds its file: for run folders and for GPUs.

Called by the store and by the evaluators. The kernel drops the lock when the last process that
inherited the file is gone, however it went; nothing here ever has to be cleaned up.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path


class LockHeld(RuntimeError):
    """Somebody else holds the lock; the message names the file and the process."""


class FileLock:
    """Held from construction to `close`; a child that inherits `fd` holds it as well.

    Raises LockHeld when it is still taken after `wait_s` seconds, OSError when the file cannot be
    opened.
    """

    def __init__(self, path: Path, wait_s: float = 0.0) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.fd = _open(path)
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    owner = os.pread(self.fd, 32, 0).decode(errors="replace").strip()
                    os.close(self.fd)
                    raise LockHeld(f"{path} is held by process {owner or 'unknown'}") from None
                time.sleep(0.05)
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, b"%d\n" % os.getpid(), 0)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _open(path: Path) -> int:
    """Open, or create for everyone: a GPU is shared by the users of a host. A file of another user
    in a sticky folder may be opened but not with O_CREAT."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.fchmod(fd, 0o666)
        return fd
