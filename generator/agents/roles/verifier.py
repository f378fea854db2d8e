"""The verifier: every candidate through every gate, once, and nothing by any other way.

The only role that says whether a kernel is right; it believes no model and asks none.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

from hgemm_packs.generator.agents.words import NO_ANSWER, TRIED, Attempt, Proposed, of_answer
from hgemm_packs.generator.evaluator.answer import Answer
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.problem import Problem


class Judge(Protocol):
    """What the verifier needs of `evaluator.Evaluator`."""

    def evaluate(self, candidate: Candidate, problem: Problem) -> Answer: ...


@dataclass
class Verifier:
    """Asks a judge, one candidate at a time and none twice, whatever threads ask it."""

    judge: Judge
    problem: Problem
    _answers: dict[str, Answer] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def verify(
        self, proposed: Proposed, *, round: int, place: int, branch: int, known: set[str]
    ) -> Attempt:
        """What became of a proposed candidate. One whose key is `known` is not evaluated again: it
        is a dead end or an old success. Raises what the judge raises when its device fails."""
        nothing = (round, place, branch, proposed.operator, proposed.parent)
        if proposed.candidate is None:
            return Attempt(*nothing, "", None, NO_ANSWER, "", proposed.words, -1.0)
        try:
            key = proposed.candidate.key
        except (TypeError, ValueError) as error:
            return Attempt(*nothing, "", None, NO_ANSWER, "", f"no JSON: {error}", -1.0)
        if key in known:
            words = "this candidate was tried before"
            return Attempt(*nothing, key, proposed.candidate.document(), TRIED, "", words, -1.0)
        with self._lock:
            answer = self._answers.get(key)
            if answer is None:
                answer = self.judge.evaluate(proposed.candidate, self.problem)
                self._answers[key] = answer
        return of_answer(proposed, answer, round=round, place=place, branch=branch)
