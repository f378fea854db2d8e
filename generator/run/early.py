"""Problems whose search is over go on to race, gate and finals while compilers work for the others.

Called by `generate` beside the search: a GPU that waits for compilers has something to do. The
stages behind the search would ask for the same jobs with the same seeds. They find the answers in
the store and do what was not reached here. Confirmations come after all of it, in processes that
never selected anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from hgemm_packs.generator.core.spec import CompiledKernel, Reply
from hgemm_packs.generator.run.entrants import GATE_BATCH, Counts, Entrant
from hgemm_packs.generator.run.finals import FinalStages
from hgemm_packs.generator.run.followers import Followers
from hgemm_packs.generator.run.jobs import QUEUED, RunJobs
from hgemm_packs.generator.run.rounds import Track

KINDS = ("race", "gate", "finals", "behind")


class EarlyStages(FinalStages):
    """The stages, and a problem's own way through the first of them, which may spend `share`
    GPU-seconds in this call."""

    def __init__(
        self,
        flow: RunJobs,
        tracks: Sequence[Track],
        counts: Counts,
        followers: Followers | None,
        share: float,
    ) -> None:
        super().__init__(flow, tracks, counts, followers)
        self._may_spend = lambda: self.spent < share
        self._ready: deque[Entrant] = deque()
        self._held: list[Entrant] = []  # wait for gates of kernels that others want as well

    @property
    def spent(self) -> float:
        """GPU-seconds of these stages in this call."""
        return sum(self._flow.spent_here[kind] for kind in KINDS)

    def add(self, track: Track) -> None:
        """The search of a problem is over. It is ready when its fastest are through the gates that
        read code, for which no GPU waits then; a pack's kernels have been. One without a likely win
        waits for the others: they are more promising."""
        if track.speedup > 1.0:
            best = self._rank_screened(track)[: self._counts.finals]
            built = (self._flow.kernels.get(one) for one in best)
            proven = self._flow.store.verdicts("numeric").keys()
            kernels = [
                one for one in built if isinstance(one, CompiledKernel) and one.id not in proven
            ]
            self._flow.inspect(kernels, partial(self._ready.append, self.entrants[track.order]))

    def start_next(self) -> bool:
        """Start the next problem on its way where a GPU is about to have nothing to do; False when
        none is started."""
        room = QUEUED * self._flow.evaluator.capacity - self._flow.jobs
        if not self._ready or room <= 0 or not self._may_spend():
            return False
        self._enter(self._ready.popleft(), self._pass_gate)
        return True

    def _pass_gate(self, entrant: Entrant) -> None:
        """Ask for the gates of what would run in the finals and go on when all have passed."""
        wanted = {kernel.id: kernel for kernel in self._list_finalists(entrant)}
        left = wanted.keys() - self._flow.store.verdicts("numeric").keys()
        if not left:
            self._start_finals(self._find_passed(), entrant, self._go_behind)
            return
        self._held.append(entrant)
        fresh = [wanted[id_] for id_ in wanted if id_ in left - self._asked_gate]
        for first in range(0, len(fresh) if self._may_spend() else 0, GATE_BATCH):
            part = fresh[first : first + GATE_BATCH]
            self._asked_gate.update(kernel.id for kernel in part)
            run = partial(self._flow.submit, "gate", None, part, self._take_gate)
            self._flow.inspect(part, run)

    def _take_gate(self, reply: Reply) -> None:
        held, self._held = self._held, []
        for entrant in held:
            self._pass_gate(entrant)

    def _go_behind(self, entrant: Entrant) -> None:
        if entrant.winners and self._elsewhere is not None:
            self._start_dependent(entrant)

    def _take_dependent_times(
        self,
        entrant: Entrant,
        kernels: Sequence[CompiledKernel],
        known: Sequence[Reply],
        *fresh: Reply,
    ) -> None:
        """What is confirmed besides the winners is inspected at once."""
        super()._take_dependent_times(entrant, kernels, known, *fresh)
        self._flow.inspect(self._list_confirmable(entrant), lambda: None)
