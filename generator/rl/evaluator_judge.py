"""Actions answered by the evaluator: on a GPU, or on what stands for one.

Called by environments whose kernels are to be compiled, gated and timed as they are proposed.
"""

from __future__ import annotations

from dataclasses import dataclass

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.rl.actions import ActionSpace
from hgemm_packs.generator.rl.judges import Judged, check_family, refused
from hgemm_packs.problem import Problem


@dataclass
class EvaluatorJudge:
    """`space` holds the actions that a model may take, as of a catalogue."""

    evaluator: Evaluator
    space: ActionSpace

    def judge(self, problem: Problem, text: str, only: str | None = None) -> Judged:
        """Raises what `Evaluator.evaluate` raises."""
        try:
            choice = self.space.parse(text, problem)
            check_family(choice.family, only)
        except ValueError as error:
            return refused(Status.PARSE, str(error))
        candidate = Candidate.of_genome(choice.family, choice.genome)
        answer = self.evaluator.evaluate(candidate, problem)
        hot = answer.times.get("hot")
        us = hot.us if hot else None
        return Judged(answer.status, answer.words, answer.reward, us, answer.speedup, choice.key)
