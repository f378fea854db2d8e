"""The search of a run: rounds of ask, build, screen and tell over all problems, until the money is
spent or nothing gets better.

Called by `generate`. Every problem has at most one batch under way, so that a strategy always
knows what became of the last; other problems keep the GPUs busy meanwhile.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import (
    Choice,
    CompiledKernel,
    Outcome,
    Proposal,
    Reply,
    Status,
    Verdict,
)
from hgemm_packs.generator.run.jobs import Built, RunJobs
from hgemm_packs.generator.search.base import Strategy
from hgemm_packs.generator.store.run_folder import screened_us
from hgemm_packs.problem import Problem

#: A best time must fall by this much to count as progress: three samples tell no less apart.
PROGRESS = 0.003


@dataclass(slots=True)
class Track:
    """One problem's search. `times` are the screened us of choices that worked; `since` counts the
    outcomes since the last progress; `gain` is the log of what the last round brought."""

    problem: Problem
    spaces: Callable[[Problem], Space]
    order: int
    told: set[Choice] = field(default_factory=set)
    times: dict[Choice, float] = field(default_factory=dict)
    best_us: float = math.inf
    torch_us: float = math.inf
    since: int = 0
    rounds: int = 0
    gain: float = 0.0
    pending: int = 0
    finished: bool = False
    _space: Space | None = None

    @property
    def space(self) -> Space:
        """Made when first asked for: of many problems, one at a time, while GPUs work."""
        if self._space is None:
            self._space = self.spaces(self.problem)
        return self._space

    def learn(self, outcomes: Iterable[Outcome]) -> None:
        """Take in outcomes, in the order in which they came."""
        for outcome in outcomes:
            self.told.add(outcome.proposal.choice)
            if outcome.us < self.best_us * (1.0 - PROGRESS):
                self.since = 0
            else:
                self.since += 1
            if outcome.status is Status.OK:
                self.times[outcome.proposal.choice] = outcome.us
                self.best_us = min(self.best_us, outcome.us)

    @property
    def speedup(self) -> float:
        """Of the best choice over torch by screened times; 1 before either is known."""
        known = math.isfinite(self.best_us) and math.isfinite(self.torch_us)
        return self.torch_us / self.best_us if known else 1.0


class Rounds:
    """The search over `tracks`. `batch` choices make a job; a problem that made no progress in
    `patience` batches is finished, as is one that a screen has `enough` times as fast as torch.
    `over` hears of each that is."""

    def __init__(
        self,
        flow: RunJobs,
        strategy: Strategy,
        tracks: Sequence[Track],
        *,
        batch: int,
        patience: int,
        enough: float | None = None,
        over: Callable[[Track], None] = lambda track: None,
    ) -> None:
        self._flow, self._strategy = flow, strategy
        self._batch, self._patience = batch, patience
        self._enough = math.inf if enough is None else enough
        self._over = over
        self._tracks = tracks
        self._idle: list[tuple[int, float, int]] = []  # round, -gain, order: cheapest lists first

    def run(
        self, may_spend: Callable[[], bool], beside: Callable[[], bool] = lambda: False
    ) -> None:
        """Search while there is money, or until all is done. `beside` starts what else there is to
        do meanwhile and says whether it did."""
        for track in self._tracks:
            self._rest(track)
        self._flow.drain(lambda: beside() or (may_spend() and self._ask()))

    def _rest(self, track: Track) -> None:
        """Put a track back among the waiting, unless it is finished."""
        given_up = track.problem in self._flow.given_up
        goes_on = track.since < self._patience * self._batch and track.speedup < self._enough
        if not given_up and not track.finished and goes_on:
            heapq.heappush(self._idle, (track.rounds, -track.gain, track.order))
        else:
            self._finish(track)

    def _finish(self, track: Track) -> None:
        track.finished = True
        self._over(track)

    def _ask(self) -> bool:
        """Start the next batch; False when no track is waiting."""
        while self._idle:
            active = len(self._idle) + self._flow.under_way
            track = self._tracks[heapq.heappop(self._idle)[2]]
            # The last problems share the GPUs that have nothing else to do.
            jobs = max(1, -(-self._flow.evaluator.capacity // active))
            asked = self._strategy.ask(track.space, jobs * self._batch)
            new = {p.choice: p for p in asked if p.choice not in track.told}
            if new:
                proposals = list(new.values())
                then = partial(self._take_builds, track, proposals)
                self._flow.build([p.choice for p in proposals], then)
                return True
            self._finish(track)
        return False

    def _take_builds(self, track: Track, proposals: Sequence[Proposal], built: Built) -> None:
        """Tell what needs no GPU, send the rest to the GPUs."""
        flow, ready, refused = self._flow, [], []
        with flow.store.transaction():
            for proposal in proposals:
                flow.store.add_candidate(flow.run, track.problem, proposal)
                one = built[proposal.choice]
                if isinstance(one, Verdict):
                    refused.append(Outcome(proposal, one.status, math.inf))
                elif one.id in flow.refused:
                    refused.append(Outcome(proposal, flow.refused[one.id], math.inf, one.facts))
                else:
                    ready.append((proposal, one))
        before = track.best_us
        parts = [ready[i : i + self._batch] for i in range(0, len(ready), self._batch)]
        track.pending = len(parts)
        self._tell(track, refused)
        for part in parts:
            then = partial(self._take_screening, track, part, before)
            flow.submit("screen", track.problem, [kernel for _, kernel in part], then)
        if not parts:
            self._end_round(track, before)

    def _take_screening(
        self,
        track: Track,
        part: Sequence[tuple[Proposal, CompiledKernel]],
        before: float,
        reply: Reply,
    ) -> None:
        outcomes = []
        for proposal, kernel in part:
            result = reply.results.get(kernel.id)
            if result is not None:  # the job may have failed before
                us = screened_us(result)
                outcomes.append(Outcome(proposal, result.status, us, kernel.facts))
        hot = reply.baselines.get("torch", {}).get("hot")
        if hot:
            track.torch_us = min(track.torch_us, median(hot))
        self._tell(track, outcomes)
        track.pending -= 1
        if not track.pending:
            self._end_round(track, before)

    def _tell(self, track: Track, outcomes: Sequence[Outcome]) -> None:
        if outcomes:
            track.learn(outcomes)
            self._strategy.tell(track.space, outcomes)

    def _end_round(self, track: Track, before: float) -> None:
        track.rounds += 1
        known = math.isfinite(before) and math.isfinite(track.best_us)
        track.gain = math.log(before / track.best_us) if known else 0.0
        self._rest(track)


def retell(
    flow: RunJobs,
    strategy: Strategy,
    problems: Sequence[Problem],
    spaces: Callable[[Problem], Space],
    batch: int,
) -> list[Track]:
    """A track for each problem, as far as the store has it; the strategy is told all that the store
    knows under the conditions of this run, of other problems too."""
    torch_us = flow.store.torch_us(flow.facts)
    tracks: list[Track] = []
    for problem in dict.fromkeys([*problems, *flow.store.problems()]):
        outcomes = flow.store.outcomes(problem, flow.toolchain, flow.facts)
        track = Track(problem, spaces, len(tracks))
        track.torch_us = torch_us.get(problem, math.inf)
        track.learn(outcomes)
        track.rounds = -(-len(outcomes) // batch)
        if outcomes:
            strategy.tell(track.space, outcomes)
        tracks.append(track)
    return tracks[: len(dict.fromkeys(problems))]
