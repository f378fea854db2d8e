"""Problems on their way through the stages behind a search, and what every stage asks for: a job's
answer from the store or a device, the gates of kernels that nobody has gated.

`finals` and `followers` are made of it. A job whose answer is in the store is not done again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from hgemm_packs.generator.core.gains import mean, wins
from hgemm_packs.generator.core.spec import Choice, CompiledKernel
from hgemm_packs.generator.run.jobs import RunJobs
from hgemm_packs.generator.run.rounds import Track

GATE_BATCH = 4


@dataclass(slots=True)
class Entrant:
    """A problem on its way through the stages. `ranking` has the kernels still in, best first;
    `gains` those that ran in the finals and failed nowhere since, with what they won there: hot and
    cold against torch, by medians. `dependent_kernels` has those that read ahead, the fastest
    behind one another first, and `dependent_speedups` torch over each of them so."""

    track: Track
    ranking: list[CompiledKernel] = field(default_factory=list)
    dependent_kernels: list[CompiledKernel] = field(default_factory=list)
    gains: dict[str, tuple[float, float]] = field(default_factory=dict)
    dependent_speedups: dict[str, float] = field(default_factory=dict)
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
    def winners(self) -> list[CompiledKernel]:
        """What looks like a win after the finals."""
        return [k for k in self.ranking if wins(self.gains.get(k.id, (0.0, 0.0)))]


class Counts(NamedTuple):
    """Kernels of a problem: those that race, those in the finals, those that read ahead and are
    tried besides the known, and those of them that are confirmed. `ahead` is as for
    `leave_unproven`."""

    race: int
    finals: int
    dependent: int
    dependent_confirmed: int
    ahead: float | None = None


def leave_unproven(
    kernels: Sequence[CompiledKernel], speedups: Mapping[str, float], ahead: float | None
) -> list[CompiledKernel]:
    """Kernels, the fastest first, without those that are not worth their gates. A kernel that came
    with a proof goes through none. Of all others the fastest stays, if `speedups`, torch over each,
    have it faster than torch and `ahead` times as fast as the fastest with a proof. All stay
    without `ahead` or without a proof to compare with."""
    proven = [kernel for kernel in kernels if kernel.proof is not None]
    if ahead is None or not proven:
        return list(kernels)
    least = max(1.0, ahead * speedups[proven[0].id])
    first = [kernel for kernel in kernels if kernel.proof is None][:1]
    worth = {kernel.id for kernel in (*proven, *(k for k in first if speedups[k.id] >= least))}
    return [kernel for kernel in kernels if kernel.id in worth]


class Stages:
    """What the stages share: all problems of a run, and how they are gone over."""

    def __init__(self, flow: RunJobs, tracks: Sequence[Track], counts: Counts) -> None:
        self._flow, self._counts = flow, counts
        self.entrants = [Entrant(track) for track in tracks]
        self._may_spend: Callable[[], bool] = bool  # whether a stage may start another job
        self._asked_gate: set[str] = set()

    def _keep_to(self, limit: float) -> None:
        """Start jobs while the run has spent less than `limit` GPU-seconds."""
        self._may_spend = lambda: self._flow.spent < limit

    def _by_gain(self) -> list[Entrant]:
        return sorted(self.entrants, key=lambda e: (-e.gain, e.track.order))

    def _rank_screened(self, track: Track) -> list[Choice]:
        """The choices of a problem that may go on from its screens, fastest first."""
        best = sorted(track.times, key=lambda choice: (track.times[choice], choice.key))
        found = {choice: self._flow.find_kernel(choice) for choice in best}
        kernels = {c: one for c, one in found.items() if isinstance(one, CompiledKernel)}
        speedups = {one.id: track.torch_us / track.times[c] for c, one in kernels.items()}
        left = leave_unproven(list(kernels.values()), speedups, self._counts.ahead)
        ids = {kernel.id for kernel in left}
        return [c for c in best if c not in kernels or kernels[c].id in ids]

    def _list_likely(self) -> list[Entrant]:
        return [entrant for entrant in self._by_gain() if entrant.winners]

    def _ask(
        self, kind: str, entrant: Entrant, kernels: Sequence[CompiledKernel], then: object
    ) -> None:
        """Take the answer from the store, or from a device while there is money."""
        problem = entrant.track.problem
        known = self._flow.find_replies(kind, problem, [kernel.id for kernel in kernels])
        if known:
            then(known[-1])  # type: ignore[operator]
        elif self._may_spend():
            self._flow.submit(kind, problem, kernels, then)  # type: ignore[arg-type]

    def _gate(self, limit: float, of: Callable[[Entrant], list[CompiledKernel]]) -> None:
        while wanted := self._find_ungated(of):
            self._asked_gate.update(wanted)
            kernels = list(wanted.values())
            parts = [kernels[i : i + GATE_BATCH] for i in range(0, len(kernels), GATE_BATCH)]

            def start(part: Sequence[CompiledKernel]) -> None:
                if self._flow.spent < limit:
                    run = partial(self._flow.submit, "gate", None, part, lambda reply: None)
                    self._flow.inspect(part, run)

            self._flow.each(parts, start)

    def _find_ungated(
        self, of: Callable[[Entrant], list[CompiledKernel]]
    ) -> dict[str, CompiledKernel]:
        seen = self._flow.store.verdicts("numeric").keys() | self._asked_gate
        demand: Counter[str] = Counter()
        kernels = {}
        for entrant in self.entrants:
            for kernel in of(entrant):
                if kernel.id not in seen:
                    demand[kernel.id] += 1
                    kernels[kernel.id] = kernel
        return {id_: kernels[id_] for id_, _ in demand.most_common()}

    def _find_passed(self) -> set[str]:
        return {k for k, v in self._flow.store.verdicts("numeric").items() if v.passed}

    def _drop_refused(self, kernels: Sequence[CompiledKernel]) -> list[CompiledKernel]:
        return [kernel for kernel in kernels if kernel.id not in self._flow.refused]
