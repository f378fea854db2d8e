"""The run that test_mutants kills, and what stands in for its isolated processes.

`python -m tests.generator.redteam.killed_mutants LINES COUNT` judges slowly and prints each number.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hgemm_packs.generator.redteam.mutation import judge, run

SEED = 5


def line(number: int, outcome: str = judge.UNDECIDED, gate: str = "", **more: Any) -> judge.Line:
    """A line as `judge` writes it."""
    return {
        "number": number,
        "operator": f"operator {number % 3}",
        "kind": ("values", "order")[number % 2],
        "family": "sm90_direct",
        "layout": "nt",
        "dtype": "f16",
        "epilogue": "none",
        "genome": {},
        "where": "load",
        "line": 7,
        "diff": ["-a", "+b"],
        "outcome": outcome,
        "gate": gate,
        "detail": "",
        "planned": [[33, 8, 8]],
        "large": [[1 << 20, 4104, 8]] if number == 6 else [],
        "ways": [[9, 8, 8]],
        "seconds": 0.5,
        **more,
    }


class Judges:
    """Stands in for an isolated process: `judged` has the numbers that were asked."""

    judged: list[int] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.alive = True

    def call(
        self, function: Callable[..., Any], seed: int, number: int, timeout_s: float
    ) -> judge.Line:
        assert (function, seed, timeout_s) == (judge.judge, SEED, run.LIMIT_S)
        self.judged.append(number)
        return line(number)

    def close(self) -> None:
        self.alive = False


class SlowJudges(Judges):
    """The same, told number by number."""

    def call(self, *arguments: Any, **named: Any) -> judge.Line:
        time.sleep(0.05)
        found = super().call(*arguments, **named)
        print(found["number"], flush=True)
        return found


if __name__ == "__main__":
    run.Worker = SlowJudges  # type: ignore[misc, assignment]
    run.run(run.Plan(SEED, int(sys.argv[2]), Path(sys.argv[1]), processes=2))
