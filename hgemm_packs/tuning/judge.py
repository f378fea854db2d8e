"""What the jobs of a journal say of problems: who is proven, what stands, what is stale.

Called by `session` and `contribution`. The rule of a win is `WinPolicy.clears`, as for every table:
a row names a kernel that a confirmation, measured after the kernel was chosen, shows ahead hot and
cold by more than the noise floor, and by more than torch strayed from itself in the same blocks: of
a machine that is not quiet a disturbed measurement costs its own row. Of several confirmations the
one with the lowest bound counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from ..measure.evidence import RULE, noise_floor, stray, summarise_times
from ..pack.manifest import Row, WinPolicy
from ..problem import Problem
from .journal import TORCH, Measured, Run, Samples, Source

PROTOCOLS = ("hot", "cold")
#: The quantile of all trials that the noise floor is at least; each row has its own trial, too.
FLOOR_SHARE = 0.9


class Standing(NamedTuple):
    """What is known of a problem: its row, the kernel that came closest, and the packs whose
    kernels it was chosen among."""

    row: Row
    best: str
    packs: tuple[Source, ...]


class Judged(NamedTuple):
    """The problems whose measurement is whole and holds now, with the noise floor of all; and of
    each problem that was measured under other conditions alone, the last job."""

    standing: Mapping[Problem, Standing]
    policy: WinPolicy
    stale: Mapping[Problem, Measured]


def gain(samples: Samples, kernel: str) -> float:
    """The geometric mean of a kernel's hot and cold speed-up over torch."""
    ratios = (
        median(t / us for t, us in zip(samples[p][TORCH], samples[p][kernel], strict=True))
        for p in PROTOCOLS
    )
    return math.sqrt(math.prod(ratios))


def best_of(job: Measured) -> str:
    """The kernel that a job has in front."""
    return max(job.kernels, key=lambda kernel: (gain(job.samples, kernel), kernel))


def is_whole(jobs: Sequence[Measured]) -> bool:
    """Whether nothing is to follow: the last job of a problem is a confirmation, or finals that no
    kernel leads."""
    last = jobs[-1]
    return last.stage == "confirm" or gain(last.samples, best_of(last)) <= 1.0


class Judge:
    """Takes jobs in the order of time and says what they come to under the conditions of `now`. The
    noise floor is that of their own trials, and at least `least_floor`."""

    def __init__(self, now: Run, least_floor: float, jobs: Iterable[Measured] = ()) -> None:
        self._now, self._least = now, least_floor
        self._own: dict[Problem, list[Measured]] = {}
        self._other: dict[Problem, Measured] = {}
        self._trials: list[Mapping[str, Sequence[float]]] = []
        self._strayed: dict[Problem, float] = {}  # in the last trial
        # With the bound that is left of it; to make a row takes a millisecond.
        self._lowest: dict[tuple[Problem, str], tuple[float, Row]] = {}
        self._known: dict[Problem, tuple[float, Standing | None]] = {}  # with the noise floor
        for job in jobs:
            self.add(job)

    def add(self, job: Measured) -> None:
        """One more job."""
        if job.run.changes(self._now):
            if job.stage != "noise":
                self._other[job.problem] = job
        elif job.stage == "noise":
            trial = {protocol: job.evidence[protocol] for protocol in PROTOCOLS}
            self._trials.append(trial)
            self._strayed[job.problem] = max(map(stray, trial.values()))
        else:
            self._own.setdefault(job.problem, []).append(job)
            self._known.pop(job.problem, None)
            for kernel in job.kernels if job.stage == "confirm" else ():
                row = row_of(job, kernel)
                left = min(row.hot.lcb, row.cold.lcb) - self._strayed.get(job.problem, 0.0)
                known = self._lowest.get((job.problem, kernel))
                if known is None or left < known[0]:
                    self._lowest[job.problem, kernel] = left, row

    def judged(self) -> Judged:
        """What stands now."""
        found = {problem: self.standing(problem) for problem in self._own}
        standing = {problem: each for problem, each in found.items() if each is not None}
        stale = {problem: job for problem, job in self._other.items() if problem not in standing}
        return Judged(standing, self._policy(), stale)

    def standing(self, problem: Problem) -> Standing | None:
        """The same of one problem; None where its measurement is not whole, or does not hold."""
        policy = self._policy()
        known = self._known.get(problem)
        if known is None or known[0] != policy.noise_floor:
            jobs = self._own.get(problem, ())
            found = self._stand(jobs, policy) if jobs and is_whole(jobs) else None
            known = self._known[problem] = policy.noise_floor, found
        return known[1]

    def _policy(self) -> WinPolicy:
        floor = noise_floor(self._trials, FLOOR_SHARE) if self._trials else self._least
        return WinPolicy(max(self._least, floor), RULE)

    def _stand(self, jobs: Sequence[Measured], policy: WinPolicy) -> Standing:
        gains: dict[str, float] = {}
        for stage in ("confirm", "finals"):  # the last finals choose, where a kernel had any
            for job in jobs:
                if job.stage == stage:
                    gains |= {kernel: gain(job.samples, kernel) for kernel in job.kernels}
        ranked = sorted(gains, key=lambda kernel: (-gains[kernel], kernel))
        problem, packs = jobs[-1].problem, jobs[-1].run.packs
        for kernel in ranked:
            left, row = self._lowest.get((problem, kernel), (0.0, None))
            if row is not None and gains[kernel] > 1.0 < left and policy.clears(row):
                return Standing(row, kernel, packs)
        best = ranked[0]
        confirmed = self._lowest.get((problem, best))
        figures = confirmed[1] if confirmed else row_of(_last(jobs, best), best)
        return Standing(figures._replace(kernel=None), best, packs)


def _last(jobs: Sequence[Measured], kernel: str) -> Measured:
    return [job for job in jobs if kernel in job.kernels][-1]


def row_of(job: Measured, kernel: str) -> Row:
    """The row that names `kernel` with the figures of one job. cuBLASLt was not asked: torch's
    times stand for its own."""
    hot, cold = (summarise_times(job.samples[protocol], kernel) for protocol in PROTOCOLS)
    p, pairs = job.problem, len(job.samples["hot"][kernel])
    m, n, k, layout, dtype, out_dtype, acc, epilogue = p.key[:8]
    about = (m, n, k, layout, dtype, out_dtype, acc, epilogue)
    profile = job.run.profile
    return Row(*about, kernel, profile, hot, cold, pairs, job.date, base=p.base, packed=p.packed)
