"""How long a run's compilers and GPUs were at work, and how long both were: what waits for what.

Counted by `run`, a line for each call in the run's folder, read by the report. A call that was
killed has no line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

FILE = "busy.jsonl"


class BusySeconds(NamedTuple):
    """Seconds of a call: all of them, and those in which a compiler, a GPU or both had work."""

    wall: float
    compilers: float
    gpus: float
    both: float

    def share(self, part: float) -> float:
        """A part of the wall time; 0 before there is any."""
        return part / self.wall if self.wall else 0.0


#: Before anything was counted.
NOTHING = BusySeconds(0.0, 0.0, 0.0, 0.0)


class Busy:
    """Counts the seconds of a call, by a clock that only goes on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._compilers = self._gpus = False
        self._seconds = [0.0, 0.0, 0.0]

    def note(self, compilers: bool, gpus: bool) -> None:
        """From now on compilers, GPUs, both or neither have work."""
        self._count()
        self._compilers, self._gpus = compilers, gpus

    def seconds(self) -> BusySeconds:
        """What was counted up to now."""
        self._count()
        return BusySeconds(self._last - self._began, *self._seconds)

    def _count(self) -> None:
        now = self._clock()
        at_work = (self._compilers, self._gpus, self._compilers and self._gpus)
        for place, busy in enumerate(at_work):
            self._seconds[place] += (now - self._last) * busy
        self._last = now


def add(folder: Path, run: str, seconds: BusySeconds) -> None:
    """Put a call's line into a run's folder. Raises OSError."""
    line = {"run": run, **{name: round(value, 3) for name, value in seconds._asdict().items()}}
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(f"\n{json.dumps(line)}\n")  # behind a torn line, a line of its own


def read(folder: Path) -> dict[str, BusySeconds]:
    """The calls that came to an end, by id. What is no line of such a call does not count."""
    path = folder / FILE
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    found = map(_parse, text.splitlines())
    return dict(each for each in found if each is not None)


def _parse(text: str) -> tuple[str, BusySeconds] | None:
    names = BusySeconds._fields
    try:
        line: Any = json.loads(text)
    except json.JSONDecodeError:
        return None
    if not isinstance(line, dict) or line.keys() != {"run", *names}:
        return None
    values = [line[name] for name in names]
    if not all(type(value) in (int, float) and 0 <= value < 1e9 for value in values):
        return None
    return str(line["run"]), BusySeconds(*map(float, values))
