"""One step of a branch: a synthesizer's proposals, and what the verifier makes of each.

Called by the orchestrator, several at a time. Proposals and verdicts are pieces of the journal of
their own, so that a kill in the middle of a step loses no measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hgemm_packs.generator.agents.journal import Journal
from hgemm_packs.generator.agents.roles.compiler import Repair, repair_request
from hgemm_packs.generator.agents.roles.synthesizer import Order, Synthesizer
from hgemm_packs.generator.agents.roles.verifier import Verifier
from hgemm_packs.generator.agents.tree import Branch
from hgemm_packs.generator.agents.words import Attempt, Hypothesis, Proposed
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.llm.words import BudgetSpent, ChatError
from hgemm_packs.generator.store.run_folder import StoreError


@dataclass(frozen=True, slots=True)
class Step:
    """What a step came to. `failed` says why no model answered; `seconds` is what it took when it
    was made."""

    attempts: tuple[Attempt, ...]
    failed: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Stepper:
    """Makes steps. A refused candidate is repaired `repairs` times in a row at most."""

    synthesizer: Synthesizer
    verifier: Verifier
    journal: Journal
    repairs: int
    seed: int

    def make(
        self,
        branch: Branch,
        attempts: Sequence[Attempt],
        known: set[str],
        *,
        round: int,
        place: int,
        count: int,
    ) -> Step:
        """Step number `place` of a round, of `count` candidates, made now or on file. `attempts`
        and the keys `known` are those of the rounds before. Raises BudgetSpent, StoreError for a
        damaged piece, and what the judge raises when its device fails."""
        name = f"step {round}.{place}"
        piece = self.journal.piece(
            name, lambda: self._propose(branch, attempts, known, round, place, count)
        )
        try:
            proposed = [_proposed(each) for each in piece["proposed"]]
            seconds, failed = float(piece["seconds"]), str(piece["failed"])
            found, tried = [], set(known)
            for i, each in enumerate(proposed):
                verdict = self._judge(each, branch, round, place, i, tried)
                found.append(Attempt.of_document(verdict["attempt"]))
                seconds += float(verdict["seconds"])
                tried.add(found[-1].key)
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"the journal's {name} is damaged: {error}") from None
        return Step(tuple(found), failed, seconds)

    def _propose(
        self,
        branch: Branch,
        attempts: Sequence[Attempt],
        known: set[str],
        round: int,
        place: int,
        count: int,
    ) -> dict[str, Any]:
        order = Order(
            branch.hypothesis,
            branch.best or _best_of_family(branch.hypothesis, attempts),
            self._repair(branch),
            attempts,
            known,
            seed=self.seed + 1000 * round + 10 * place,
        )
        failed = ""
        try:
            proposed = self.synthesizer.propose(order, count)
        except BudgetSpent:
            raise
        except ChatError as error:
            failed = str(error)
            proposed = [Proposed(None, "", failed)]
        return {
            "asked": asdict(self.synthesizer.prompt(order)),
            "proposed": [_document(each) for each in proposed],
            "failed": failed,
        }

    def _judge(
        self, proposed: Proposed, branch: Branch, round: int, place: int, i: int, tried: set[str]
    ) -> Any:
        """The piece of one verdict."""

        def verify() -> dict[str, Any]:
            found = self.verifier.verify(
                proposed, round=round, place=100 * place + i, branch=branch.number, known=tried
            )
            return {"attempt": found.document()}

        return self.journal.piece(f"attempt {round}.{place}.{i}", verify)

    def _repair(self, branch: Branch) -> Repair | None:
        """The request that the branch's last attempt makes, unless it was repaired often enough."""
        run = 0
        for each in reversed(branch.attempts):
            if each.operator != "repair":
                break
            run += 1
        last = branch.last
        return repair_request(last) if last and run < self.repairs else None


def _best_of_family(hypothesis: Hypothesis, attempts: Sequence[Attempt]) -> Attempt | None:
    """Where a branch without a success starts: the best of all of its family, or of all source."""
    same = [
        each
        for each in attempts
        if each.correct
        and each.candidate is not None
        and each.candidate.get("family", "") == hypothesis.family
    ]
    return max(same, key=lambda each: each.score, default=None)


def _document(proposed: Proposed) -> dict[str, Any]:
    candidate = proposed.candidate and proposed.candidate.document()
    return {
        "candidate": candidate,
        "operator": proposed.operator,
        "words": proposed.words,
        "parent": proposed.parent,
        "said": proposed.said,
    }


def _proposed(document: Any) -> Proposed:
    """Raises KeyError, TypeError or Unreadable."""
    candidate = document["candidate"]
    return Proposed(
        None if candidate is None else Candidate.of_document(candidate),
        str(document["operator"]),
        str(document["words"]),
        str(document["parent"]),
        str(document.get("said", "")),  # journals of before have none
    )
