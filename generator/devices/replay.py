"""A device that answers from a recording, and the same without jobs for comparing searches.

Used by the comparison of strategies and by tests. It answers only what was recorded: hot screens.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from zlib import crc32

import numpy as np

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import (
    Choice,
    DeviceFacts,
    Job,
    Outcome,
    Proposal,
    Reply,
    Result,
    Status,
)
from hgemm_packs.generator.devices.fake import choice_of
from hgemm_packs.generator.devices.recording import Screen, Times
from hgemm_packs.problem import Problem

#: What one screened kernel cost the recorded sweep, graphs and checks included.
SECONDS_A_KERNEL = 0.0015


class ReplayDevice:
    """Screens with `samples` of the recorded samples, drawn by the seeds of device and job."""

    def __init__(
        self, screens: Mapping[Problem, Screen], facts: DeviceFacts, seed: int, samples: int = 1
    ) -> None:
        self._screens = screens
        self._facts = facts
        self._seed = seed
        self._count = samples

    @property
    def facts(self) -> DeviceFacts:
        return self._facts

    def optimum(self, problem: Problem) -> tuple[Choice, float]:
        """The choice with the least true time, and that in us."""
        return self._screens[problem].optimum()

    def has(self, choice: Choice, problem: Problem) -> bool:
        """Whether a screen of the choice on the problem was recorded."""
        return problem in self._screens and choice in self._screens[problem].row

    def baselines(self, problem: Problem) -> Mapping[str, Sequence[float]]:
        """The hot times in us of "torch" and "cublaslt", as far as they were recorded. Raises
        KeyError for a problem that was not."""
        return self._screens[problem].baselines

    def run(self, job: Job) -> Reply:
        """Answer a screen. Raises ValueError for other jobs, KeyError for a problem that was not
        recorded."""
        if job.kind != "screen" or job.problem is None:
            raise ValueError(f"a replay only screens, it cannot do {job.kind!r}")
        screen = self._screens[job.problem]
        results = {
            kernel.id: self._result(screen, choice_of(kernel), job) for kernel in job.kernels
        }
        return Reply(results, gpu_seconds=SECONDS_A_KERNEL * len(job.kernels))

    def _result(self, screen: Screen, choice: Choice, job: Job) -> Result:
        row = screen.row.get(choice)
        if row is None:
            return Result(Status.LAUNCH, detail="not recorded")
        if screen.status[row] is not Status.OK:
            return Result(screen.status[row], detail="as recorded")
        recorded = [us for us in screen.samples[row].tolist() if us == us]
        rng = random.Random(f"{self._seed} {job.seed} {job.problem} {choice.key}")
        drawn = rng.sample(recorded, min(self._count, len(recorded)))
        return Result(Status.OK, {"hot": tuple(drawn)})


class ReplayBench:
    """Outcomes straight from a recording: one sample a choice, the same whenever it is asked."""

    def __init__(
        self, screens: Mapping[Problem, Screen], spaces: Mapping[Problem, Space], seed: int
    ) -> None:
        self._screens = screens
        self._seed = seed
        self._drawn: dict[Problem, Times] = {}
        self.spaces = spaces

    def measure(self, problem: Problem, proposals: Sequence[Proposal]) -> list[Outcome]:
        """What telling a strategy takes. Raises KeyError for a choice that was not recorded."""
        screen = self._screens[problem]
        drawn = self._draw(problem)
        rows = [screen.row[proposal.choice] for proposal in proposals]
        return [
            Outcome(proposal, screen.status[row], float(drawn[row]))
            for proposal, row in zip(proposals, rows, strict=True)
        ]

    def share(self, problem: Problem, choice: Choice) -> float:
        """Optimum's true time over the choice's: 1 is the best there is, 0 a failure."""
        screen = self._screens[problem]
        return screen.optimum()[1] / float(screen.us[screen.row[choice]])

    def _draw(self, problem: Problem) -> Times:
        """One of each choice's samples; infinite where it failed."""
        if problem not in self._drawn:
            samples = self._screens[problem].samples
            rng = np.random.default_rng([self._seed, crc32(str(problem).encode())])
            count = np.isfinite(samples).sum(axis=1)
            pick = (rng.random(len(samples)) * count).astype(np.int64)
            drawn = samples[np.arange(len(samples)), pick]
            self._drawn[problem] = np.where(count > 0, drawn, np.inf)
        return self._drawn[problem]


def spaces_of(screens: Mapping[Problem, Screen]) -> dict[Problem, Space]:
    """The space of each recorded problem: what was recorded and nothing else."""
    return {problem: Space(problem, only=screen.choices) for problem, screen in screens.items()}
