"""Kernels that read ahead, found behind what won the finals, for rows that have a second kernel for
dependent launch.

Part of `finals`, which calls these stages between its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

from hgemm_packs.generator.core.space import admits
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Reply
from hgemm_packs.generator.run.entrants import Counts, Entrant, Stages, leave_unproven
from hgemm_packs.generator.run.jobs import PASSED, Built, RunJobs
from hgemm_packs.generator.run.rounds import Track
from hgemm_packs.generator.search import behind
from hgemm_packs.generator.tables.prune import prune
from hgemm_packs.problem import Problem

MOST_DEPENDENT = 32  # kernels that read ahead, besides the winners' own, that a problem tries

#: Of a problem, kernels that read ahead and were confirmed by earlier runs.
Followers = Callable[[Problem], Sequence[Choice]]


class DependentStages(Stages):
    """The stages of kernels that read ahead: besides the winners' own and those known elsewhere a
    problem tries as many as `counts` says."""

    def __init__(
        self,
        flow: RunJobs,
        tracks: Sequence[Track],
        counts: Counts,
        followers: Followers | None,
    ) -> None:
        super().__init__(flow, tracks, counts)
        self._elsewhere = followers
        self._tried: defaultdict[Problem, set[str]] = defaultdict(set)  # in this call

    def time_dependent(self, limit: float) -> None:
        """To what won the finals come kernels that read ahead, the fastest launched behind one
        another that launched plainly are level with torch (see `_dependent_speedups`): of the
        winners, of what earlier runs confirmed on these sizes or earlier calls tried, each as it
        reads ahead, of those that leave room for the next grid, and then of what is around the
        fastest of these. Launched plainly they are no faster than others, so that no search looks
        for them. None are looked for where there are no `followers`, and only those of winners and
        of `followers` where none else are tried."""
        self._keep_to(limit)
        if self._elsewhere is None:
            return
        self._flow.each(self._list_likely(), self._start_dependent)
        best = self._first() if self._counts.dependent else {}

        def go_on(entrant: Entrant) -> None:
            problem = entrant.track.problem
            if best and self._may_spend():
                choices = dict.fromkeys(
                    [*map(_choice, entrant.dependent_kernels), *behind.around(problem, best)]
                )
                self._flow.build(list(choices), partial(self._time_fresh_builds, entrant))

        self._flow.each(self._list_likely(), go_on)

    def _start_dependent(self, entrant: Entrant) -> None:
        space, flow = entrant.track.space, self._flow
        if not self._may_spend() and not flow.find_replies("behind", space.problem):
            return  # nobody would time what is compiled
        own = map(_choice, entrant.winners)
        before = flow.store.choices("behind", space.problem, flow.toolchain)
        sms, elsewhere = flow.facts.sm_count, self._elsewhere or (lambda problem: ())
        twins = (
            one
            for each in (*own, *elsewhere(space.problem))
            for one in behind.twins(each, space.problem, sms)
        )
        fitting = (one for one in (*before, *twins) if admits(one, space.problem))
        tried = self._counts.dependent
        roomy = behind.candidates(space, sms, tried) if tried else []
        choices = list(dict.fromkeys([*fitting, *roomy]))
        flow.build(choices, partial(self._time_fresh_builds, entrant))

    def _first(self) -> dict[Problem, list[Choice]]:
        """Of each problem the fastest by the first job that asked, refused since or not: a call
        that goes on asks nothing else around them than the call before."""
        flow = self._flow
        choices = {one.id: c for c, one in flow.kernels.items() if isinstance(one, CompiledKernel)}
        found = {}
        for entrant in self.entrants:
            for reply in flow.find_replies("behind", entrant.track.problem)[:1]:
                over = _dependent_speedups(reply)
                timed = sorted(over.keys() & choices.keys(), key=lambda id_: (-over[id_], id_))
                found[entrant.track.problem] = [choices[id_] for id_ in timed]
        return found

    def _time_fresh_builds(self, entrant: Entrant, built: Built) -> None:
        """Time those of `built` that were not timed before, if there is money. A job that failed is
        tried again by the next call."""
        problem = entrant.track.problem
        kernels = self._drop_refused(
            [each for each in built.values() if isinstance(each, CompiledKernel)]
        )
        known = list(self._flow.find_replies("behind", problem))
        seen = self._tried[problem].union(*(reply.results for reply in known))
        fresh = [kernel for kernel in kernels if kernel.id not in seen]
        if fresh and self._may_spend():
            self._tried[problem].update(kernel.id for kernel in fresh)
            then = partial(self._take_dependent_times, entrant, kernels, known)
            self._flow.submit("behind", problem, fresh, then)
        else:
            self._take_dependent_times(entrant, kernels, known)

    def _take_dependent_times(
        self,
        entrant: Entrant,
        kernels: Sequence[CompiledKernel],
        known: Sequence[Reply],
        *fresh: Reply,
    ) -> None:
        over = {
            id_: over
            for reply in (*known, *fresh)
            for id_, over in _dependent_speedups(reply).items()
        }
        timed = {kernel.id: kernel for kernel in kernels if kernel.id in over}
        entrant.dependent_kernels = sorted(timed.values(), key=lambda kernel: -over[kernel.id])
        entrant.dependent_speedups = {
            kernel.id: over[kernel.id] for kernel in entrant.dependent_kernels
        }

    def gate_confirmable(self, limit: float) -> None:
        """The gate for what is confirmed beside the winners."""
        self._gate(limit, self._list_confirmable)

    def choose_few(self, limit: float, each: int) -> dict[Problem, list[CompiledKernel]]:
        """Of each problem the `each` fastest behind one another that passed the gate, among few
        kernels that have nearly all of what all of them gain (`prune`)."""
        fastest: dict[Problem, list[CompiledKernel]] = {}
        refused = -1
        while refused < len(self._flow.refused):  # without those the choice of few is another
            refused = len(self._flow.refused)
            over = {
                e.track.problem: {
                    k.id: e.dependent_speedups[k.id]
                    for k in self._drop_refused(e.dependent_kernels)
                }
                for e in self.entrants
            }
            kept = set(prune(over).kernels)
            fastest = {
                e.track.problem: [
                    k for k in self._drop_refused(e.dependent_kernels) if k.id in kept
                ][:each]
                for e in self.entrants
            }
            self._gate(limit, partial(_fastest_of, fastest))
        passed = self._find_passed()
        return {problem: [k for k in few if k.id in passed] for problem, few in fastest.items()}

    def _list_confirmable(self, entrant: Entrant) -> list[CompiledKernel]:
        """Those of `dependent_kernels` that are confirmed, as far as is known."""
        left = self._drop_refused(entrant.dependent_kernels)
        worth = leave_unproven(left, entrant.dependent_speedups, self._counts.ahead)
        return worth[: self._counts.dependent_confirmed]


def _fastest_of(
    fastest: Mapping[Problem, list[CompiledKernel]], entrant: Entrant
) -> list[CompiledKernel]:
    return fastest[entrant.track.problem]


def _choice(kernel: CompiledKernel) -> Choice:
    return Choice.of(kernel.fields["family"], kernel.fields["genome"])


def _dependent_speedups(reply: Reply) -> dict[str, float]:
    """torch over each kernel launched behind itself, of those that torch does not beat when they
    run alone. A kernel for half of the SMs may be the fastest behind another such; but a graph may
    hold one call of it, with nothing to overlap, and no call is to be slower than torch. What was
    not timed alone is slower behind itself than enough that are level, and may stay."""
    torch_us = median(reply.baselines["torch"]["hot"]) if reply.results else 0.0
    return {
        id_: torch_us / median(one.samples["hot"])
        for id_, one in reply.results.items()
        if one.status in PASSED and one.samples.get("hot")
        if median(one.samples.get("alone", (0.0,))) <= torch_us
    }
