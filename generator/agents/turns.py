"""What a run of agents asked and was answered, turn by turn, with what became of each answer.

Read from the journal in a run's folder, also while the run goes on. Called by exports for trainers,
by the report, and by runs that show kernels of earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hgemm_packs.generator.agents import journal
from hgemm_packs.generator.agents.context import Prompt
from hgemm_packs.generator.agents.words import NO_ANSWER, TRIED, Attempt
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.evaluator.reward import UNMEASURED
from hgemm_packs.generator.llm.words import Message
from hgemm_packs.generator.report.modes import Sample
from hgemm_packs.generator.store.findings import UNBUILT
from hgemm_packs.generator.store.run_folder import StoreError
from hgemm_packs.problem import Problem

_PROBLEM = re.compile(r"(\d+)x(\d+)x(\d+) (nn|nt|tn|tt) (f16|bf16)")


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer: what was `asked` for, as messages, what was `said`, and the attempt that came of
    it. `before` is the turn that it goes on from: the refused one of a repair, else the one whose
    kernel it changed."""

    asked: Sequence[dict[str, Any]]
    said: str
    attempt: Attempt
    before: Turn | None

    @property
    def status(self) -> str:
        """One of the evaluator's: an answer that names no kernel cannot be read."""
        return Status.PARSE.value if self.attempt.status == NO_ANSWER else self.attempt.status


@dataclass(frozen=True, slots=True)
class Run:
    """A run's problem, its model ("" for the built-in rules), and its turns in their order."""

    problem: Problem
    model: str
    turns: Sequence[Turn]


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run of agents."""
    return (folder / journal.FILE).is_file()


def read(folder: Path) -> Run:
    """The turns of a run. A candidate that was tried before is no turn, nor is a request that no
    server answered. Raises OSError, and StoreError for a damaged journal."""
    settings, pieces = journal.read(folder)
    try:
        m, n, k, layout, dtype = _PROBLEM.fullmatch(settings["problem"]).groups()  # type: ignore[union-attr]
        problem = Problem(int(m), int(n), int(k), layout, dtype)
        return Run(problem, str(settings.get("model", "")), _turns(pieces))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"the journal in {folder} is damaged: {error}") from None


def _turns(pieces: dict[str, Any]) -> list[Turn]:
    made: dict[str, Turn] = {}  # by the candidate's key, the first of equals
    last: dict[int, Turn] = {}  # by branch
    found = []
    steps = [tuple(map(int, name[5:].split("."))) for name in pieces if name.startswith("step ")]
    for round, place in sorted(steps):
        step = pieces[f"step {round}.{place}"]
        turn, asked = None, [asdict(each) for each in _prompt(step)]
        for i, each in enumerate(step["proposed"]):
            verdict = pieces.get(f"attempt {round}.{place}.{i}")
            if verdict is None or not each["operator"]:
                continue
            attempt = Attempt.of_document(verdict["attempt"])
            if attempt.status == TRIED or attempt.key in made:
                continue
            repaired = attempt.operator == "repair"
            before = last.get(attempt.branch) if repaired else made.get(attempt.parent)
            turn = Turn(asked, str(each.get("said", "")), attempt, before)
            found.append(turn)
            if attempt.key:
                made[attempt.key] = turn
        if turn is not None:
            last[turn.attempt.branch] = turn
    return found


def _prompt(step: Any) -> Sequence[Message]:
    """The messages of a step's prompt; journals of before have none."""
    return Prompt.of_document(step["asked"]).messages() if "asked" in step else ()


def prompts(folder: Path) -> list[Prompt]:
    """Every prompt of a run's journal, in its order. Raises OSError, and StoreError for a damaged
    journal."""
    _, pieces = journal.read(folder)
    try:
        return [Prompt.of_document(each["asked"]) for each in pieces.values() if "asked" in each]
    except (KeyError, TypeError) as error:
        raise StoreError(f"the journal in {folder} is damaged: {error}") from None


def samples(run: Run, proposer: str) -> list[Sample]:
    """The turns as samples of a report; those that no GPU has judged say nothing. A kernel is
    accepted if it was measured faster than torch."""
    found = []
    for place, turn in enumerate(run.turns):
        attempt = turn.attempt
        if turn.status == UNMEASURED:
            continue
        status = Status(turn.status)
        share = attempt.facts.get("efficiency") if attempt.correct else 0.0
        found.append(
            Sample(
                problem=run.problem,
                proposer=proposer,
                kernel=attempt.key or f"answer {place}",
                compiled=status not in UNBUILT,
                correct=attempt.correct,
                accepted=status is Status.OK,
                hack=status is Status.HACK,
                speedup=attempt.score,
                efficiency=None if share is None else float(share),
                seconds=None,
            )
        )
    return found
