"""A GPU whose times the test decides, a pack that the stand-in driver runs, and tuning on both.

Kernels are right, for the stand-in computes; only times are made up. `main` tunes in a process of
its own, which may be killed at any step.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.pack.folder import Pack
from hgemm_packs.problem import Problem
from hgemm_packs.tuning import tune
from hgemm_packs.tuning.bench import Compared, Screened
from hgemm_packs.tuning.candidates import Candidate
from hgemm_packs.tuning.journal import AGAIN, TORCH
from tests import fake_driver, packs

TORCH_US = 10.0
CLOCKS = {
    **{"calls": 10, "sets": 1, "flushed": False, "repeated": 0, "led": True},
    **{"sm_mhz": [1980.0], "power_w": [400.0]},
}
NAMES = ("slow", "good", "best", "other")
LAYOUTS = dict(zip(NAMES, ("ptr_v1", "tma2_v1", "tma3_v1", "tma2_v1"), strict=True))

#: Problems of the tests; no pack has a row of them.
FIRST = Problem(64, 64, 128, "nn", "f16")
SECOND = Problem(128, 64, 128, "nn", "f16")
THIRD = Problem(256, 64, 128, "nn", "f16")
PROBLEMS = (FIRST, SECOND, THIRD)


def kernels(names: Iterable[str] = NAMES) -> list[packs.FakeBuilt]:
    """Kernels that the stand-in runs, each with a genome of its own."""
    return [
        packs.built(
            name,
            LAYOUTS[name],
            cubin=fake_driver.image(name, LAYOUTS[name]),
            genome={"tile_m": 64 + NAMES.index(name)},
        )
        for name in names
    ]


def write(
    place: Path, names: Iterable[str] = NAMES, rows: Sequence[Any] = (), **changes: Any
) -> Pack:
    """A pack of these kernels."""
    made = kernels(names)
    source = packs.source(made, list(rows), **changes)
    return write_pack(place, source, made, generator_info=packs.GENERATOR)  # type: ignore[arg-type]


@dataclass
class FakeBench:
    """`speedups` by problem and kernel name, 0.5 where nothing is said; `confirmed` are other ones
    for confirmations. `stray` is by how much torch is off itself, of all problems or of some. `did`
    lists the jobs."""

    speedups: Mapping[Problem, Mapping[str, float]] = field(default_factory=dict)
    confirmed: Mapping[Problem, Mapping[str, float]] = field(default_factory=dict)
    stray: float | Mapping[Problem, float] = 0.0
    before: Callable[[], object] = lambda: None
    did: list[tuple[str, Problem, tuple[str, ...]]] = field(default_factory=list)

    def gbps(self) -> float:
        return 4000.0

    def _us(self, problem: Problem, name: str, confirm: bool = False) -> float:
        known = self.confirmed if confirm and problem in self.confirmed else self.speedups
        return TORCH_US / known.get(problem, {}).get(name, 0.5)

    def _note(self, what: str, problem: Problem, candidates: Sequence[Candidate]) -> None:
        self.before()
        self.did.append((what, problem, tuple(each.entry.name for each in candidates)))

    def screen(self, problem: Problem, candidates: Sequence[Candidate], until: float) -> Screened:
        self._note("screen", problem, candidates)
        times = {each.entry.id: self._us(problem, each.entry.name) for each in candidates}
        return Screened(TORCH_US, times)

    def finals(
        self, problem: Problem, candidates: Sequence[Candidate], seed: int
    ) -> Compared | None:
        self._note("finals", problem, candidates)
        arms = {each.entry.id: self._us(problem, each.entry.name) for each in candidates}
        return _compared({TORCH: TORCH_US, **arms}, 7)

    def confirm(self, problem: Problem, candidate: Candidate, seed: int) -> Compared | None:
        self._note("confirm", problem, [candidate])
        own = {candidate.entry.id: self._us(problem, candidate.entry.name, confirm=True)}
        stray = self.stray if isinstance(self.stray, float) else self.stray.get(problem, 0.0)
        again = TORCH_US * (1.0 + stray)
        return _compared({TORCH: TORCH_US, AGAIN: again, **own}, 21)


def _compared(us: Mapping[str, float], blocks: int) -> Compared:
    """Every block the same but for a wobble that all arms share, so that ratios are exact."""
    samples = {
        arm: [each * (1.0 + 0.01 * math.sin(block)) for block in range(blocks)]
        for arm, each in us.items()
    }
    return Compared({"hot": samples, "cold": samples}, {"hot": CLOCKS, "cold": CLOCKS})


def run(bench: FakeBench, asked: object = PROBLEMS, **options: Any) -> tune.Tuned:
    """Tune device 0 with a bench."""
    seconds = options.pop("seconds", 60.0)
    options.setdefault("show", lambda done, of, found: None)
    return tune.tune_device(asked, seconds, options.pop("index", 0), lambda: bench, **options)


def speedups(**by_name: float) -> dict[Problem, dict[str, float]]:
    """The same for each of PROBLEMS."""
    return {problem: dict(by_name) for problem in PROBLEMS}


class Killer:
    """Ends the process at the n-th time that a step of the file system is about to be done."""

    def __init__(self, at: int) -> None:
        self._left = at

    def patch(self) -> None:
        for name in ("fsync", "replace", "rename", "write", "ftruncate"):
            setattr(os, name, self._before(getattr(os, name)))

    def _before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                os._exit(9)
            return function(*arguments, **options)

        return call


def main(driver: str, kill_at: int, slow_s: float) -> None:
    """Tune in this process, which HGEMM_PACKS_PATH tells the pack."""
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        fake_driver.start(patch, Path(driver))
        bench = FakeBench(speedups(best=1.3), before=lambda: time.sleep(slow_s))
        if kill_at:
            Killer(kill_at).patch()
        run(bench)
        print(sum(what == "finals" for what, _, _ in bench.did))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
