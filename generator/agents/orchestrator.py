"""The orchestrator: branches hypotheses, steps several at a time, pays those that pay, remembers
dead ends, and stops on time.

Runs in rounds. In a round a bandit picks branches, and each makes a step at the same time as the
others: the synthesizer proposes, the verifier judges. Each step is filed in the journal as it ends,
and the next round begins when all have. So nothing of a killed run is lost, and nothing depends on
who was first.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from typing import Any

from hgemm_packs.generator.agents.ground import Ground
from hgemm_packs.generator.agents.journal import Journal
from hgemm_packs.generator.agents.roles import profiler
from hgemm_packs.generator.agents.roles.compiler import repair_request
from hgemm_packs.generator.agents.roles.profiler import Profile
from hgemm_packs.generator.agents.roles.reasoner import Reasoner
from hgemm_packs.generator.agents.roles.synthesizer import Order, Synthesizer
from hgemm_packs.generator.agents.roles.verifier import Verifier
from hgemm_packs.generator.agents.tree import Branch, Tree
from hgemm_packs.generator.agents.words import TRIED, Attempt, Hypothesis, Proposed
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.llm.words import BudgetSpent, ChatError
from hgemm_packs.generator.store.run_folder import StoreError

#: Rounds in a row in which a server answered nothing, after which it is not asked again.
SILENT = 3
#: For one candidate that a judge is asked about so many answers may name none, or an old one.
IDLE = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """`evaluations` and `seconds` of work, over all calls of a run. A round steps `width` branches
    with `samples` candidates each; `hypotheses` are asked for at a time; a refused candidate is
    repaired `repairs` times in a row at most."""

    evaluations: int = 64
    seconds: float = math.inf
    hypotheses: int = 6
    width: int = 4
    samples: int = 2
    repairs: int = 2
    patience: int = 4


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened: "hypotheses", "step" or "end", with the tree as it is now."""

    what: str
    tree: Tree
    words: str = ""


Watch = Callable[[Event], None]


def _nobody(event: Event) -> None:
    pass


class Orchestrator:
    """One run on one problem. `run` goes on from the journal, and may be called once."""

    def __init__(
        self,
        ground: Ground,
        reasoner: Reasoner,
        synthesizer: Synthesizer,
        verifier: Verifier,
        journal: Journal,
        limits: Limits | None = None,
        seed: int = 0,
        watch: Watch = _nobody,
    ) -> None:
        self._ground, self._reasoner, self._synthesizer = ground, reasoner, synthesizer
        self._verifier, self._journal = verifier, journal
        self._limits = limits or Limits()
        self._seed, self._watch = seed, watch
        self.tree = Tree(self._limits.patience)
        self.spent_s = 0.0

    def run(self) -> str:
        """Work until something ends it; returns what did. Raises what the evaluator raises when its
        device fails; what was done until then is filed."""
        number, silent = 0, 0
        try:
            while not (why := self._over()):
                if len(self.tree.live) < self._limits.width and not self._grow(number):
                    return self._end("no hypothesis is left to try")
                answered = self._round(number)
                silent = 0 if answered else silent + 1
                if silent == SILENT:
                    return self._end("the model's server does not answer")
                number += 1
        except BudgetSpent as error:
            why = str(error)
        return self._end(why)

    def _end(self, why: str) -> str:
        self._watch(Event("end", self.tree, why))
        return why

    def _over(self) -> str:
        if self.evaluations >= self._limits.evaluations:
            return f"{self.evaluations} evaluations are done"
        if self.spent_s >= self._limits.seconds:
            return f"{self._limits.seconds:g} s are over"
        if len(self.tree.attempts) >= IDLE * self._limits.evaluations:
            return "too few answers name a kernel that was not tried"
        return ""

    @property
    def evaluations(self) -> int:
        """Candidates that a judge was asked about."""
        return sum(bool(each.gate) for each in self.tree.attempts)

    def _grow(self, number: int) -> bool:
        """Ask for new hypotheses. Returns whether any branch lives."""
        piece = self._piece(f"hypotheses {number}", lambda: self._hypotheses(number))
        self.spent_s += _seconds(piece)
        try:
            found = [Hypothesis.of_document(each) for each in piece["found"]]
        except (KeyError, TypeError) as error:
            raise StoreError(f"the journal's hypotheses are damaged: {error}") from None
        self.tree.grow(found)
        self._watch(Event("hypotheses", self.tree))
        return bool(self.tree.live)

    def _hypotheses(self, number: int) -> dict[str, Any]:
        tree = self.tree
        found, failed = self._reasoner.hypotheses(
            self.profile(),
            self._limits.hypotheses,
            attempts=tree.attempts,
            closed=tree.dead_ends,
            known=[branch.hypothesis for branch in tree.branches],
            seed=self._seed + number,
        )
        return {"found": [asdict(each) for each in found], "failed": failed}

    def profile(self) -> Profile | None:
        """The profile of the best kernel so far, or of the one that the model likes best."""
        top = self.tree.best
        candidate = top.read() if top else None
        if candidate is not None and top is not None:
            one = candidate.read(self._ground.problem)
            return profiler.profile(one, self._ground.problem, self._ground.device, top)
        ranked: list[Choice] = self._ground.ranked[:1]
        for first in ranked:
            return profiler.profile(first, self._ground.problem, self._ground.device)
        return None

    def _round(self, number: int) -> bool:
        """One step of each of the chosen branches. Returns whether a model answered any."""
        rng = random.Random(f"{self._seed} {self._ground.problem} round {number}")
        left = self._limits.evaluations - self.evaluations
        width = min(self._limits.width, -(-left // self._limits.samples))
        chosen = self.tree.choose(width, rng)
        counts = [
            min(self._limits.samples, left - self._limits.samples * i) for i in range(len(chosen))
        ]
        known = self.tree.keys
        attempts = self.tree.attempts

        def step(i: int) -> tuple[list[Attempt], Any]:
            name = f"step {number}.{i}"
            orders = (chosen[i], number, i, counts[i], known, attempts)
            piece = self._piece(name, lambda: self._step(*orders))
            try:
                return [Attempt(**each) for each in piece["attempts"]], piece
            except (KeyError, TypeError) as error:
                raise StoreError(f"the journal's {name} is damaged: {error}") from None

        with ThreadPoolExecutor(max(1, len(chosen))) as pool:
            futures = [pool.submit(step, i) for i in range(len(chosen))]
            wait(futures)  # for all, so that each is filed
        errors = [error for each in futures if (error := each.exception())]
        for error in sorted(errors, key=lambda each: isinstance(each, BudgetSpent)):
            raise error
        pieces, seen = [], set(known)
        for branch, future in zip(chosen, futures, strict=True):
            found, piece = future.result()
            pieces.append(piece)
            self.tree.add(branch.number, [_unless(each, seen) for each in found])
            seen.update(each.key for each in found)
            self._watch(Event("step", self.tree))
        self.spent_s += max(map(_seconds, pieces), default=0.0)
        return not pieces or not all(piece.get("failed") for piece in pieces)

    def _step(
        self,
        branch: Branch,
        number: int,
        place: int,
        count: int,
        known: set[str],
        attempts: Sequence[Attempt],
    ) -> dict[str, Any]:
        """One step of a branch as a piece of the journal."""
        order = Order(
            branch.hypothesis,
            branch.best or self._parent(branch.hypothesis, attempts),
            self._repair(branch),
            attempts,
            known,
            seed=self._seed + 1000 * number + 10 * place,
        )
        failed = ""
        try:
            proposed = self._synthesizer.propose(order, count)
        except BudgetSpent:
            raise
        except ChatError as error:
            failed = str(error)
            proposed = [Proposed(None, "", failed)]
        found, tried = [], set(known)
        for i, each in enumerate(proposed):
            at = place * 100 + i
            attempt = self._verifier.verify(
                each, round=number, place=at, branch=branch.number, known=tried
            )
            tried.add(attempt.key)
            found.append(attempt.document())
        return {"attempts": found, "failed": failed}

    def _parent(self, hypothesis: Hypothesis, attempts: Sequence[Attempt]) -> Attempt | None:
        """Where a branch without a success starts: the best of all, if it is of its family."""
        same = [
            each
            for each in attempts
            if each.correct
            and each.candidate is not None
            and each.candidate.get("family", "") == hypothesis.family
        ]
        return max(same, key=lambda each: each.score, default=None)

    def _repair(self, branch: Branch) -> Any:
        """The request that the branch's last attempt makes, unless it was repaired often enough."""
        run = 0
        for each in reversed(branch.attempts):
            if each.operator != "repair":
                break
            run += 1
        last = branch.last
        return repair_request(last) if last and run < self._limits.repairs else None

    def _piece(self, name: str, work: Callable[[], dict[str, Any]]) -> Any:
        """The piece on file, or the work done now and filed with the seconds that it took."""
        piece = self._journal.get(name)
        if piece is None:
            began = time.monotonic()
            piece = work()
            piece["seconds"] = round(time.monotonic() - began, 3)
            self._journal.put(name, piece)
        return piece


def _unless(attempt: Attempt, seen: set[str]) -> Attempt:
    """The attempt, unless a branch beside it has made the same in this round."""
    if attempt.key not in seen or not attempt.gate:
        return attempt
    return replace(attempt, status=TRIED, gate="", speedup=None)


def _seconds(piece: Any) -> float:
    """What a piece took, as it says."""
    seconds = piece.get("seconds") if isinstance(piece, dict) else None
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0
