"""A run of a few problems on a fake device, and what is in its folder afterwards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import (
    Choice,
    CompiledKernel,
    Job,
    Outcome,
    Reply,
    Status,
    Verdict,
)
from hgemm_packs.generator.run.generate import Budget, Snapshot, Summary, generate
from hgemm_packs.generator.search.rivals.exhaustive import Exhaustive
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests.generator.fake_device import FakeDevice, true_us
from tests.generator.store.sample_store import PROBLEMS, choices, kernel

CHOICES = choices(20)
FOUR = PROBLEMS[:4]
PLENTY = Budget(1000.0, patience=100)


def spaces(problem: Problem) -> Space:
    return Space(problem, only=CHOICES)


class Builder:
    """Builds nothing; `refuses` some."""

    def __init__(
        self, refuses: Sequence[Choice] = (), workers: int = 0, sources: str = "1"
    ) -> None:
        self.workers, self.refuses = workers, refuses
        self.toolchain: Mapping[str, Any] = {"sources": sources}
        self.built: list[Choice] = []
        self.unsound: set[str] = set()
        self.make: Callable[[Choice], CompiledKernel] = kernel

    def build(self, wanted: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        self.built += wanted
        refusal = Verdict("build", Status.BUILD, "spills")
        return {c: refusal if c in self.refuses else self.make(c) for c in wanted}

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        bad = Verdict("binary", Status.BINARY, "fp16 accumulator")
        return {
            k.id: bad if k.id in self.unsound else Verdict("binary", Status.OK) for k in kernels
        }


class Listener(Exhaustive):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: dict[Problem, list[Outcome]] = {}

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        super().tell(space, outcomes)
        self.heard.setdefault(space.problem, []).extend(outcomes)

    def status(self, problem: Problem, choice: Choice) -> Status:
        (found,) = [o for o in self.heard[problem] if o.proposal.choice == choice]
        assert (found.us < math.inf) == (found.status is Status.OK)
        return found.status


def run(
    folder: Path,
    *,
    problems: Sequence[Problem] = FOUR,
    strategy: Listener | None = None,
    device: FakeDevice | None = None,
    budget: Budget = PLENTY,
    builder: Builder | None = None,
    progress: Callable[[Snapshot], None] = lambda snapshot: None,
) -> Summary:
    with Store(folder) as store, Inline(device or FakeDevice()) as evaluator:
        return generate(
            store,
            problems,
            strategy or Listener(),
            builder or Builder(),
            evaluator,
            budget,
            progress,
            spaces=spaces,
            seed=5,
        )


def best(problem: Problem, without: Sequence[Choice] = ()) -> Choice:
    left = [choice for choice in CHOICES if choice not in without]
    return min(left, key=lambda choice: true_us(problem, kernel(choice).id))


def jobs(folder: Path) -> dict[str, int]:
    with Store(folder, readonly=True) as store:
        return dict(Counter(done.kind for done in store.finished_jobs()))


def confirmed(folder: Path) -> dict[Problem | None, tuple[str, ...]]:
    with Store(folder, readonly=True) as store:
        return {done.problem: done.kernels for done in store.finished_jobs("confirm")}


def screens(folder: Path) -> Counter[tuple[Problem | None, str]]:
    with Store(folder, readonly=True) as store:
        return Counter(
            (done.problem, k) for done in store.finished_jobs("screen") for k in done.kernels
        )


class Failing(FakeDevice):
    """Fails `kinds` of jobs on `problem` through none of their kernels."""

    def __init__(self, problem: Problem, kinds: Sequence[str]) -> None:
        super().__init__()
        self.problem, self.kinds = problem, kinds
        self.failed: list[str] = []

    def run(self, job: Job) -> Reply:
        if job.problem == self.problem and job.kind in self.kinds:
            self.failed.append(job.kind)
            return Reply({}, {}, {"failed": "OutOfMemoryError: 64 GiB"}, 0.001)
        return super().run(job)
