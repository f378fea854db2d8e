"""From a search's best guesses to confirmed wins: race, numeric gate, finals, kernels that read
ahead, noise, confirmation.

Called by `orchestrate` when the search is over. Each stage goes over all problems, most promising
first, and starts nothing once its share of the budget is spent, so that what was begun is of use.
A job whose answer is in the store is not done again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from hgemm_packs.generator.flow import PASSED, Built, Flow
from hgemm_packs.generator.gains import mean, ratios, wins
from hgemm_packs.generator.prune import prune
from hgemm_packs.generator.rounds import Track
from hgemm_packs.generator.search import behind
from hgemm_packs.generator.space import admits
from hgemm_packs.generator.spec import (
    Choice,
    Kernel,
    Reply,
    Result,
    Status,
    Verdict,
)
from hgemm_packs.problem import Problem

GATE_BATCH = 4
PROBLEMS_PER_NOISE, MIN_NOISE = 20, 4
FOLLOWERS = 32  # kernels that read ahead, besides the winners' own, that a problem tries

#: Verdicts by kernel id, some at a time; none where the gate cannot work.
Sanitize = Callable[[Sequence[Kernel]], Iterable[Mapping[str, Verdict]]]
#: Of a problem, kernels that read ahead and were confirmed by earlier runs.
Followers = Callable[[Problem], Sequence[Choice]]
#: What each problem's kernels won elsewhere, hot and cold against torch.
Won = Mapping[Problem, Mapping[Choice, tuple[float, float]]]


@dataclass(slots=True)
class Entrant:
    """A problem on its way through the stages. `ranking` has the kernels still in, best first;
    `gains` those that ran in the finals and failed nowhere since, with what they won there: hot and
    cold against torch, by medians. `ahead` has those that read ahead, the fastest behind one
    another first, and `behind` torch over each of them so."""

    track: Track
    ranking: list[Kernel] = field(default_factory=list)
    ahead: list[Kernel] = field(default_factory=list)
    gains: dict[str, tuple[float, float]] = field(default_factory=dict)
    behind: dict[str, float] = field(default_factory=dict)
    confirmed: tuple[float, float] | None = None

    @property
    def chosen(self) -> str | None:
        """The kernel of the finals that wins both ways, if one does, and by most."""
        return max(
            self.gains, key=lambda k: (wins(self.gains[k]), mean(self.gains[k])), default=None
        )

    @property
    def gain(self) -> float:
        """What is known of this problem's win: from the finals, before that from the screen."""
        chosen = self.chosen
        return mean(self.gains[chosen]) if chosen is not None else self.track.speedup

    @property
    def winners(self) -> list[Kernel]:
        """What looks like a win after the finals."""
        return [k for k in self.ranking if wins(self.gains.get(k.id, (0.0, 0.0)))]


class Finalists:
    """The stages, to be called in the order in which they stand here, each with the GPU-seconds
    that all of the run may have spent when it starts its last job."""

    def __init__(
        self, flow: Flow, tracks: Sequence[Track], width: int, count: int, followers: Followers
    ) -> None:
        self._flow, self._width, self._count = flow, width, count
        self._elsewhere = followers
        self.entrants = [Entrant(track) for track in tracks]
        self._asked_gate: set[str] = set()
        self.sanitized = 0  # kernels, in this call

    def race(self, limit: float) -> None:
        """Rank each problem's best by screened time, hot and cold; a few need no race."""
        self._limit = limit
        self._flow.each(self._by_gain(), self._enter)

    def _by_gain(self) -> list[Entrant]:
        return sorted(self.entrants, key=lambda e: (-e.gain, e.track.order))

    def _enter(self, entrant: Entrant) -> None:
        times = entrant.track.times
        best = sorted(times, key=lambda choice: (times[choice], choice.key))
        # Some below the width stand by: the gate may refuse one that is in.
        self._flow.build(best[: 2 * self._width], partial(self._race, entrant, best))

    def _race(self, entrant: Entrant, best: Sequence[Choice], built: Built) -> None:
        found = (built[choice] for choice in best if choice in built)
        ready = {k.id: k for k in found if isinstance(k, Kernel) and k.id not in self._flow.refused}
        entrant.ranking = list(ready.values())
        if len(entrant.ranking) > self._count:
            field = entrant.ranking[: self._width]
            self._ask("race", entrant, field, partial(self._raced, entrant))

    def _raced(self, entrant: Entrant, reply: Reply) -> None:
        """Those still in at the end of the race, then those who left it, then those not in it."""
        places = {id_: _place(result) for id_, result in reply.results.items()}
        out = {id_ for id_, result in reply.results.items() if result.status not in PASSED}
        left = [kernel for kernel in entrant.ranking if kernel.id not in out]
        entrant.ranking = sorted(left, key=lambda k: places.get(k.id, (2, 0.0)))

    def _ask(self, kind: str, entrant: Entrant, kernels: Sequence[Kernel], then: object) -> None:
        """Take the answer from the store, or from a device while there is money."""
        problem = entrant.track.problem
        known = self._flow.known(kind, problem, [kernel.id for kernel in kernels])
        if known:
            then(known[-1])  # type: ignore[operator]
        elif self._flow.spent < self._limit:
            self._flow.submit(kind, problem, kernels, then)  # type: ignore[arg-type]

    def gate(self, limit: float) -> None:
        """Binary and numeric gate of every kernel that would run in the finals, most wanted first,
        until those left have all passed: when one is refused, the next best takes its place."""
        self._gate(limit, self._allowed)

    def _gate(self, limit: float, of: Callable[[Entrant], list[Kernel]]) -> None:
        while wanted := self._ungated(of):
            self._asked_gate.update(wanted)
            kernels = list(wanted.values())
            parts = [kernels[i : i + GATE_BATCH] for i in range(0, len(kernels), GATE_BATCH)]

            def start(part: Sequence[Kernel]) -> None:
                if self._flow.spent < limit:
                    run = partial(self._flow.submit, "gate", None, part, lambda reply: None)
                    self._flow.inspect(part, run)

            self._flow.each(parts, start)

    def _ungated(self, of: Callable[[Entrant], list[Kernel]]) -> dict[str, Kernel]:
        seen = self._flow.store.verdicts("numeric").keys() | self._asked_gate
        demand: Counter[str] = Counter()
        kernels = {}
        for entrant in self.entrants:
            for kernel in of(entrant):
                if kernel.id not in seen:
                    demand[kernel.id] += 1
                    kernels[kernel.id] = kernel
        return {id_: kernels[id_] for id_, _ in demand.most_common()}

    def _allowed(self, entrant: Entrant) -> list[Kernel]:
        """The finalists as far as is known."""
        if entrant.track.problem in self._flow.given_up:
            return []
        return self._left(entrant.ranking)[: self._count]

    def finals(self, limit: float) -> None:
        """Finalists that passed the gate against torch and tuned cuBLASLt."""
        self._limit = limit
        passed = self._passed()

        def start(entrant: Entrant) -> None:
            ready = [kernel for kernel in self._allowed(entrant) if kernel.id in passed]
            if ready:
                self._ask("finals", entrant, ready, partial(self._finished, entrant))

        self._flow.each(self._by_gain(), start)

    def _finished(self, entrant: Entrant, reply: Reply) -> None:
        entrant.gains = {
            id_: ratios(reply, result)
            for id_, result in reply.results.items()
            if result.status in PASSED and id_ not in self._flow.refused
        }

    def _passed(self) -> set[str]:
        return {k for k, v in self._flow.store.verdicts("numeric").items() if v.passed}

    def won(self, gains: Won) -> None:
        """What earlier runs won stands for the finals."""

        def start(entrant: Entrant) -> None:
            mine = gains[entrant.track.problem]
            self._flow.build(list(mine), partial(self._won, entrant, mine))

        self._flow.each(self.entrants, start)

    def _won(
        self, entrant: Entrant, gains: Mapping[Choice, tuple[float, float]], built: Built
    ) -> None:
        kernels = {choice: one for choice, one in built.items() if isinstance(one, Kernel)}
        entrant.ranking = self._left(list(kernels.values()))
        entrant.gains = {kernel.id: gains[choice] for choice, kernel in kernels.items()}

    def behind(self, limit: float) -> None:
        """To what won the finals come kernels that read ahead, the fastest launched behind one
        another that launched plainly are level with torch (see `_behind`): of the winners, of
        what earlier runs confirmed on these sizes or earlier calls tried, each as it reads ahead,
        of those that leave room for the next grid, and then of what is around the fastest of these.
        Launched plainly they are no faster than others, so that no search looks for them."""
        self._limit = limit

        def start(entrant: Entrant) -> None:
            space, flow = entrant.track.space, self._flow
            if flow.spent >= limit and not flow.known("behind", space.problem):
                return  # nobody would time what is compiled
            own = map(_choice, entrant.winners)
            before = flow.store.choices("behind", space.problem, flow.toolchain)
            sms = flow.facts.sm_count
            twins = (
                one
                for each in (*own, *self._elsewhere(space.problem))
                for one in behind.twins(each, space.problem, sms)
            )
            fitting = (one for one in (*before, *twins) if admits(one, space.problem))
            roomy = behind.candidates(space, sms, FOLLOWERS)
            choices = list(dict.fromkeys([*fitting, *roomy]))
            flow.build(choices, partial(self._follow, entrant))

        self._flow.each(self._likely(), start)
        best = self._first()

        def go_on(entrant: Entrant) -> None:
            problem = entrant.track.problem
            if self._flow.spent < limit:
                choices = dict.fromkeys(
                    [*map(_choice, entrant.ahead), *behind.around(problem, best)]
                )
                self._flow.build(list(choices), partial(self._follow, entrant))

        self._flow.each(self._likely(), go_on)

    def _first(self) -> dict[Problem, list[Choice]]:
        """Of each problem the fastest by the first job that asked, refused since or not: a call
        that goes on asks nothing else around them than the call before."""
        flow = self._flow
        choices = {one.id: c for c, one in flow.kernels.items() if isinstance(one, Kernel)}
        found = {}
        for entrant in self.entrants:
            for reply in flow.known("behind", entrant.track.problem)[:1]:
                over = _behind(reply)
                timed = sorted(over.keys() & choices.keys(), key=lambda id_: (-over[id_], id_))
                found[entrant.track.problem] = [choices[id_] for id_ in timed]
        return found

    def _follow(self, entrant: Entrant, built: Built) -> None:
        """Time those of `built` that were not timed before, if there is money."""
        problem = entrant.track.problem
        kernels = self._left([each for each in built.values() if isinstance(each, Kernel)])
        known = list(self._flow.known("behind", problem))
        seen = {id_ for reply in known for id_ in reply.results}
        fresh = [kernel for kernel in kernels if kernel.id not in seen]
        if fresh and self._flow.spent < self._limit:
            then = partial(self._followed, entrant, kernels, known)
            self._flow.submit("behind", problem, fresh, then)
        else:
            self._followed(entrant, kernels, known)

    def _followed(
        self, entrant: Entrant, kernels: Sequence[Kernel], known: Sequence[Reply], *fresh: Reply
    ) -> None:
        over = {id_: over for reply in (*known, *fresh) for id_, over in _behind(reply).items()}
        timed = {kernel.id: kernel for kernel in kernels if kernel.id in over}
        entrant.ahead = sorted(timed.values(), key=lambda kernel: -over[kernel.id])
        entrant.behind = {kernel.id: over[kernel.id] for kernel in entrant.ahead}

    def confirmable(self, limit: float) -> None:
        """The gate for what is confirmed beside the winners."""
        self._gate(limit, self._followers)

    def few(self, limit: float, each: int) -> dict[Problem, list[Kernel]]:
        """Of each problem the `each` fastest behind one another that passed the gate, among few
        kernels that have nearly all of what all of them gain (`prune`)."""
        fastest: dict[Problem, list[Kernel]] = {}
        refused = -1
        while refused < len(self._flow.refused):  # without those the choice of few is another
            refused = len(self._flow.refused)
            over = {
                e.track.problem: {k.id: e.behind[k.id] for k in self._left(e.ahead)}
                for e in self.entrants
            }
            kept = set(prune(over).kernels)
            fastest = {
                e.track.problem: [k for k in self._left(e.ahead) if k.id in kept][:each]
                for e in self.entrants
            }
            self._gate(limit, lambda e, now=fastest: now[e.track.problem])
        passed = self._passed()
        return {problem: [k for k in few if k.id in passed] for problem, few in fastest.items()}

    def _followers(self, entrant: Entrant) -> list[Kernel]:
        """Those of `ahead` that are confirmed, as far as is known."""
        return self._left(entrant.ahead)[: self._count]

    def _left(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        return [kernel for kernel in kernels if kernel.id not in self._flow.refused]

    def noise(self, limit: float) -> None:
        """torch against itself, spread over the problems: the floor that a win must clear."""
        problems = [e.track.problem for e in self.entrants]
        problems = [problem for problem in problems if problem not in self._flow.given_up]
        count = max(MIN_NOISE, len(problems) // PROBLEMS_PER_NOISE) if problems else 0
        wanted = Counter(problems[i * len(problems) // count] for i in range(count))
        missing = [
            (problem, i)
            for problem, times in wanted.items()
            for i in range(len(self._flow.known("noise", problem, [])), times)
        ]

        def start(item: tuple[object, int]) -> None:
            problem, i = item
            if self._flow.spent < limit:
                self._flow.submit("noise", problem, [], lambda reply: None, repeat=i)  # type: ignore[arg-type]

        self._flow.each(missing, start)

    def confirm(self, limit: float) -> None:
        """What looks like a win, once more, alone, with a new seed."""
        self._limit = limit
        passed = self._passed()

        def start(entrant: Entrant) -> None:
            kernels = self._entering(entrant, passed)
            self._ask("confirm", entrant, kernels, partial(self._confirmed, entrant))

        self._flow.each(self._likely(), start)

    def _entering(self, entrant: Entrant, passed: Container[str]) -> list[Kernel]:
        """What a confirmation is asked of, each once: a search may have found one itself."""
        more = (kernel for kernel in self._followers(entrant) if kernel.id in passed)
        return list({kernel.id: kernel for kernel in (*entrant.winners, *more)}.values())

    def _likely(self) -> list[Entrant]:
        return [entrant for entrant in self._by_gain() if entrant.winners]

    def unsanitized(self) -> list[Kernel]:
        """Kernels that a table may name and that the sanitizer gate has not seen."""
        seen = self._flow.store.verdicts("sanitizer").keys() | self._flow.refused.keys()
        passed = self._passed()
        confirmed = (entrant for entrant in self.entrants if entrant.confirmed)
        wanted = {k.id: k for entrant in confirmed for k in self._entering(entrant, passed)}
        return [kernel for id_, kernel in wanted.items() if id_ not in seen]

    def sanitize(self, kernels: Sequence[Kernel], check: Sanitize) -> None:
        """The sanitizer gate. It costs no budget: none may be left out for want of it."""
        for verdicts in check(kernels) if kernels else ():
            self._flow.judge(verdicts)
            self.sanitized += len(verdicts)
            self._flow.tick()

    def _confirmed(self, entrant: Entrant, reply: Reply) -> None:
        """What failed now has won nothing: the next best stands for the problem."""
        for id_, result in reply.results.items():
            if result.status not in PASSED or id_ in self._flow.refused:
                entrant.gains.pop(id_, None)
        chosen = reply.results.get(str(entrant.chosen))
        if chosen is not None:
            entrant.confirmed = ratios(reply, chosen)


def _choice(kernel: Kernel) -> Choice:
    return Choice.of(kernel.fields["family"], kernel.fields["genome"])


def _behind(reply: Reply) -> dict[str, float]:
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


def _place(result: Result) -> tuple[int, float]:
    """Order of arrival: survivors before the dropped, then by hot times cold."""
    logs = [math.log(median(us)) for us in result.samples.values() if us]
    return int(result.status is not Status.OK), sum(logs) / len(logs) if logs else math.inf
