"""Counts the calls by which the cache changes the disk, and lets one of them fail or kill.

Used by the tests of the cache, and by the process that tests kill at every step. `fill_from` is a
fill that writes through the same calls, so that its steps count as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHUNK = 1024

#: What needs room on a disk, and what a read-only one refuses.
ALLOCATING = ("mkdir", "open", "write", "fsync", "rename")
CHANGING = (*ALLOCATING, "unlink", "rmdir", "utime")

#: Stands in for os.NAME: called with the real function, its name and its arguments.
Step = Callable[[Callable[..., Any], str, tuple[Any, ...], dict[str, Any]], Any]


def replace(step: Step, names: tuple[str, ...], put: Callable[[str, Any], None]) -> None:
    """Route calls through `step`; of os.open those that may create a file. `put` replaces an
    attribute of os."""

    def through(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def stand_in(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            return step(real, name, args, kwargs)

        return stand_in

    for name in names:
        put(name, through(name))


def fill_from(source: Path) -> Callable[[Path], None]:
    """A fill that copies a pack's folder, piece by piece."""

    def fill(temp: Path) -> None:
        for file in sorted(source.iterdir()):
            data = file.read_bytes()
            handle = os.open(temp / file.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                for start in range(0, len(data), CHUNK):
                    os.write(handle, data[start : start + CHUNK])
            finally:
                os.close(handle)

    return fill
