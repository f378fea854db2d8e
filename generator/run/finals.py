"""From a search's best guesses to confirmed wins: race, numeric gate, finals, kernels that read
ahead, noise, confirmation.

Called by `generate` when the search is over, and by `early` for a problem whose search is over
while that of others goes on. Each stage goes over all problems, most promising first, and starts
nothing once its share of the budget is spent, so that what was begun is of use. A job whose answer
is in the store is not done again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from hgemm_packs.generator.core.gains import ratios
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Reply, Result, Status, Verdict
from hgemm_packs.generator.run.entrants import Counts, Entrant
from hgemm_packs.generator.run.followers import DependentStages, Followers
from hgemm_packs.generator.run.jobs import PASSED, Built, RunJobs
from hgemm_packs.generator.run.rounds import Track
from hgemm_packs.generator.tables import judge
from hgemm_packs.problem import Problem

PROBLEMS_PER_NOISE, MIN_NOISE = 20, 4

#: Verdicts by kernel id, some at a time; none where the gate cannot work.
Judge = Callable[[Sequence[CompiledKernel]], Iterable[Mapping[str, Verdict]]]


@dataclass(frozen=True, slots=True)
class Sanitize:
    """Who judges the confirmed kernels. `prepare` starts what imports beside confirmations."""

    judge: Judge = lambda kernels: ()
    prepare: Callable[[], None] = lambda: None


UNSANITIZED = Sanitize()


#: What each problem's kernels won elsewhere, hot and cold against torch.
Won = Mapping[Problem, Mapping[Choice, tuple[float, float]]]
#: What becomes of a problem when it is through a stage: nothing, where all go together.
Then = Callable[[Entrant], None]


def stay(entrant: Entrant) -> None:
    """The problem waits for the others."""


class FinalStages(DependentStages):
    """The stages, to be called in the order in which they stand here, those of `followers` before
    the noise, each with the GPU-seconds that all of the run may have spent when it starts its last
    job."""

    def __init__(
        self,
        flow: RunJobs,
        tracks: Sequence[Track],
        counts: Counts,
        followers: Followers | None,
    ) -> None:
        super().__init__(flow, tracks, counts, followers)
        self.sanitized = 0  # kernels, in this call

    def race(self, limit: float) -> None:
        """Rank each problem's best by screened time, hot and cold; a few need no race."""
        self._keep_to(limit)
        self._flow.each(self._by_gain(), self._enter)

    def _enter(self, entrant: Entrant, then: Then = stay) -> None:
        best = self._rank_screened(entrant.track)
        # Some below the width stand by: the gate may refuse one that is in.
        self._flow.build(best[: 2 * self._counts.race], partial(self._race, entrant, best, then))

    def _race(self, entrant: Entrant, best: Sequence[Choice], then: Then, built: Built) -> None:
        found = (built[choice] for choice in best if choice in built)
        ready = {
            k.id: k
            for k in found
            if isinstance(k, CompiledKernel) and k.id not in self._flow.refused
        }
        entrant.ranking = list(ready.values())
        # A race of as many as the finals have sends home nobody.
        if len(entrant.ranking) > self._counts.finals < self._counts.race:
            field = entrant.ranking[: self._counts.race]
            self._ask("race", entrant, field, partial(self._take_race, entrant, then))
        else:
            then(entrant)

    def _take_race(self, entrant: Entrant, then: Then, reply: Reply) -> None:
        """Those still in at the end of the race, then those who left it, then those not in it."""
        places = {id_: _place(result) for id_, result in reply.results.items()}
        out = {id_ for id_, result in reply.results.items() if result.status not in PASSED}
        left = [kernel for kernel in entrant.ranking if kernel.id not in out]
        entrant.ranking = sorted(left, key=lambda k: places.get(k.id, (2, 0.0)))
        then(entrant)

    def gate(self, limit: float) -> None:
        """Binary and numeric gate of every kernel that would run in the finals, most wanted first,
        until those left have all passed: when one is refused, the next best takes its place."""
        self._gate(limit, self._list_finalists)

    def _list_finalists(self, entrant: Entrant) -> list[CompiledKernel]:
        """The finalists as far as is known."""
        if entrant.track.problem in self._flow.given_up:
            return []
        return self._drop_refused(entrant.ranking)[: self._counts.finals]

    def finals(self, limit: float) -> None:
        """Finalists that passed the gate against torch and tuned cuBLASLt."""
        self._keep_to(limit)
        self._flow.each(self._by_gain(), partial(self._start_finals, self._find_passed()))

    def _start_finals(self, passed: Container[str], entrant: Entrant, then: Then = stay) -> None:
        ready = [kernel for kernel in self._list_finalists(entrant) if kernel.id in passed]
        if ready:
            self._ask("finals", entrant, ready, partial(self._take_finals, entrant, then))

    def _take_finals(self, entrant: Entrant, then: Then, reply: Reply) -> None:
        entrant.gains = {
            id_: ratios(reply, result)
            for id_, result in reply.results.items()
            if result.status in PASSED and id_ not in self._flow.refused
        }
        then(entrant)

    def won(self, gains: Won) -> None:
        """What earlier runs won stands for the finals."""

        def start(entrant: Entrant) -> None:
            mine = gains[entrant.track.problem]
            self._flow.build(list(mine), partial(self._won, entrant, mine))

        self._flow.each(self.entrants, start)

    def _won(
        self, entrant: Entrant, gains: Mapping[Choice, tuple[float, float]], built: Built
    ) -> None:
        kernels = {choice: one for choice, one in built.items() if isinstance(one, CompiledKernel)}
        entrant.ranking = self._drop_refused(list(kernels.values()))
        entrant.gains = {kernel.id: gains[choice] for choice, kernel in kernels.items()}

    def noise(self, limit: float) -> None:
        """torch against itself, spread over the problems: the floor that a win must clear."""
        problems = [e.track.problem for e in self.entrants]
        problems = [problem for problem in problems if problem not in self._flow.given_up]
        count = max(MIN_NOISE, len(problems) // PROBLEMS_PER_NOISE) if problems else 0
        wanted = Counter(problems[i * len(problems) // count] for i in range(count))
        missing = [
            (problem, i)
            for problem, times in wanted.items()
            for i in range(len(self._flow.find_replies("noise", problem, [])), times)
        ]

        def start(item: tuple[object, int]) -> None:
            problem, i = item
            if self._flow.spent < limit:
                self._flow.submit("noise", problem, [], lambda reply: None, repeat=i)  # type: ignore[arg-type]

        self._flow.each(missing, start)

    def confirm(self, limit: float) -> None:
        """What looks like a win, once more, alone, with a new seed."""
        self._keep_to(limit)
        passed = self._find_passed()

        def start(entrant: Entrant) -> None:
            kernels = self._list_entering(entrant, passed)
            self._ask("confirm", entrant, kernels, partial(self._take_confirmation, entrant))

        self._flow.each(self._list_likely(), start)

    def _list_entering(self, entrant: Entrant, passed: Container[str]) -> list[CompiledKernel]:
        """What a confirmation is asked of, each once: a search may have found one itself."""
        more = (kernel for kernel in self._list_confirmable(entrant) if kernel.id in passed)
        return list({kernel.id: kernel for kernel in (*entrant.winners, *more)}.values())

    def find_unsanitized(self) -> list[CompiledKernel]:
        """Kernels that a table may name and that the sanitizer gate has not seen."""
        seen = self._flow.store.verdicts("sanitizer").keys() | self._flow.refused.keys()
        passed = self._find_passed()
        confirmed = (entrant for entrant in self.entrants if entrant.confirmed)
        wanted = {k.id: k for entrant in confirmed for k in self._list_entering(entrant, passed)}
        return [kernel for id_, kernel in wanted.items() if id_ not in seen]

    def sanitize(self, kernels: Sequence[CompiledKernel], check: Judge) -> None:
        """The sanitizer gate. It costs no budget: none may be left out for want of it."""
        self._flow.busy.note(False, bool(kernels))
        for verdicts in check(kernels) if kernels else ():
            self._flow.judge(verdicts)
            self.sanitized += len(verdicts)
            self._flow.tick()
        self._flow.busy.note(False, False)

    def _take_confirmation(self, entrant: Entrant, reply: Reply) -> None:
        """What failed now has won nothing: the next best stands for the problem."""
        for id_, result in reply.results.items():
            if result.status not in PASSED or id_ in self._flow.refused:
                entrant.gains.pop(id_, None)
        judge.take_bootstraps(reply)
        chosen = reply.results.get(str(entrant.chosen))
        if chosen is not None:
            entrant.confirmed = ratios(reply, chosen)


def _place(result: Result) -> tuple[int, float]:
    """Order of arrival: survivors before the dropped, then by hot times cold."""
    logs = [math.log(median(us)) for us in result.samples.values() if us]
    return int(result.status is not Status.OK), sum(logs) / len(logs) if logs else math.inf
