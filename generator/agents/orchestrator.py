"""The orchestrator: branches hypotheses, steps several at a time, pays those that pay, remembers
dead ends, and stops on time.

Runs in rounds. In a round a bandit picks branches, and each makes a step at the same time as the
others: the synthesizer proposes, the verifier judges. Each piece of it is filed in the journal,
and the next round begins when all have. So nothing of a killed run is lost, and nothing depends on
who was first.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from typing import Any

from hgemm_packs.generator.agents.ground import Ground
from hgemm_packs.generator.agents.journal import Journal
from hgemm_packs.generator.agents.roles import profiler
from hgemm_packs.generator.agents.roles.profiler import Profile
from hgemm_packs.generator.agents.roles.reasoner import Reasoner
from hgemm_packs.generator.agents.roles.synthesizer import Synthesizer
from hgemm_packs.generator.agents.roles.verifier import Verifier
from hgemm_packs.generator.agents.step import Stepper
from hgemm_packs.generator.agents.tree import Tree
from hgemm_packs.generator.agents.words import TRIED, Attempt, Hypothesis
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.llm.words import BudgetSpent
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
        self._ground, self._reasoner = ground, reasoner
        self._limits = limits or Limits()
        self._journal = journal
        self._stepper = Stepper(synthesizer, verifier, journal, self._limits.repairs, seed)
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
        piece = self._journal.piece(f"hypotheses {number}", lambda: self._hypotheses(number))
        try:
            found = [Hypothesis.of_document(each) for each in piece["found"]]
            self.spent_s += float(piece["seconds"])
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"the journal's hypotheses are damaged: {error}") from None
        self.tree.grow(found)
        self._watch(Event("hypotheses", self.tree))
        return bool(self.tree.live)

    def _hypotheses(self, number: int) -> dict[str, Any]:
        tree, profile, count = self.tree, self.profile(), self._limits.hypotheses
        asked = self._reasoner.prompt(profile, count, tree.attempts, tree.dead_ends)
        found, failed = self._reasoner.hypotheses(
            profile,
            count,
            attempts=tree.attempts,
            closed=tree.dead_ends,
            known=[branch.hypothesis for branch in tree.branches],
            seed=self._seed + number,
        )
        return {
            "asked": asdict(asked),
            "found": [asdict(each) for each in found],
            "failed": failed,
        }

    def profile(self) -> Profile | None:
        """The profile of the best kernel so far, or of the one that the model likes best."""
        top = self.tree.best
        candidate = top.read() if top else None
        if candidate is not None and top is not None:
            one = candidate.read(self._ground.problem)
            code = profiler.code_facts(one) if self._ground.compiled else None
            return profiler.profile(one, self._ground.problem, self._ground.device, top, code)
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

        with ThreadPoolExecutor(max(1, len(chosen))) as pool:
            futures = [
                pool.submit(
                    self._stepper.make,
                    branch,
                    attempts,
                    known,
                    round=number,
                    place=place,
                    count=counts[place],
                )
                for place, branch in enumerate(chosen)
            ]
            wait(futures)  # for all, so that each is filed
        errors = [error for each in futures if (error := each.exception())]
        for error in sorted(errors, key=lambda each: isinstance(each, BudgetSpent)):
            raise error
        steps, seen = [each.result() for each in futures], set(known)
        for branch, step in zip(chosen, steps, strict=True):
            self.tree.add(branch.number, [_unless(each, seen) for each in step.attempts])
            seen.update(each.key for each in step.attempts)
            self._watch(Event("step", self.tree))
        self.spent_s += max((step.seconds for step in steps), default=0.0)
        return not steps or not all(step.failed for step in steps)


def _unless(attempt: Attempt, seen: set[str]) -> Attempt:
    """The attempt, unless a branch beside it has made the same in this round."""
    if attempt.key not in seen or not attempt.gate:
        return attempt
    return replace(attempt, status=TRIED, gate="", speedup=None)
