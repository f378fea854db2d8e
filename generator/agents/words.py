"""The words that the roles share: hypothesis, proposed candidate, attempt.

Plain data, written to a run's journal as JSON and read back from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hgemm_packs.generator.evaluator.answer import CORRECT, Answer
from hgemm_packs.generator.evaluator.candidate import Candidate, Unreadable

#: Status of a try that named no candidate, and of one whose candidate was tried before.
NO_ANSWER, TRIED = "NO_ANSWER", "TRIED"
MODEL, RULE = "model", "rule"


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What may make a kernel faster: words, and where it is true or false. `genes` of `family` are
    those that it would change; both are empty where it is about source. `origin` is MODEL or
    RULE."""

    words: str
    family: str = ""
    genes: tuple[str, ...] = ()
    origin: str = RULE

    @property
    def key(self) -> tuple[str, ...]:
        """Two hypotheses with equal keys are one: of a family's genes the words do not matter."""
        if self.family:
            return (self.family, *sorted(self.genes))
        return (" ".join(self.words.lower().split()),)

    @classmethod
    def of_document(cls, document: Any) -> Hypothesis:
        """What `dataclasses.asdict` wrote. Raises KeyError or TypeError."""
        return cls(**{**document, "genes": tuple(document["genes"])})


@dataclass(frozen=True, slots=True)
class Proposed:
    """What a synthesizer made of a hypothesis: a candidate, or None and the words why not.
    `operator` is "seed", "genome", "source", "edit" or "repair", `parent` the key of what was
    changed. `said` is the answer as it was given, empty where nobody answered."""

    candidate: Candidate | None
    operator: str
    words: str = ""
    parent: str = ""
    said: str = ""


_TIME = (float, int, type(None))
#: What the fields of an attempt are.
_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("round", "place", "branch"), (int,)),
    **dict.fromkeys(("operator", "parent", "key", "status", "gate", "words"), (str,)),
    "candidate": (Mapping, type(None)),
    "reward": (float, int),
    **dict.fromkeys(("us", "torch_us", "speedup"), _TIME),
    "facts": (Mapping,),
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate of one branch and what became of it. `speedup` is over torch, None where
    nothing was timed; `us` is hot. `round` and `place` say when it was made."""

    round: int
    place: int
    branch: int
    operator: str
    parent: str
    key: str
    candidate: Mapping[str, Any] | None
    status: str
    gate: str
    words: str
    reward: float
    us: float | None = None
    torch_us: float | None = None
    speedup: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def correct(self) -> bool:
        """Whether it passed every gate and was timed: nothing else may win."""
        return self.status in CORRECT and self.speedup is not None

    @property
    def score(self) -> float:
        """What branches and attempts are compared by."""
        return self.speedup if self.correct and self.speedup is not None else 0.0

    @property
    def source(self) -> str:
        """The CUDA source, where the candidate is one."""
        return str((self.candidate or {}).get("source", ""))

    def read(self) -> Candidate | None:
        """The candidate. None where there is none, or what a damaged journal has for one."""
        try:
            return Candidate.of_document(dict(self.candidate)) if self.candidate else None
        except Unreadable:
            return None

    def document(self) -> dict[str, Any]:
        """The attempt as plain data, for `of_document`."""
        return asdict(self)

    @classmethod
    def of_document(cls, document: Any) -> Attempt:
        """What `document` wrote. Raises TypeError for anything else."""
        made = cls(**document)
        for name, kinds in _KINDS.items():
            value = getattr(made, name)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise TypeError(f"{name}={value!r} of an attempt")
        return made


def of_answer(
    proposed: Proposed, answer: Answer, *, round: int, place: int, branch: int
) -> Attempt:
    """The attempt that an evaluator's answer makes of a proposed candidate."""
    assert proposed.candidate is not None
    hot = answer.times.get("hot")
    said = answer.document()
    return Attempt(
        round,
        place,
        branch,
        proposed.operator,
        proposed.parent,
        proposed.candidate.key,
        proposed.candidate.document(),
        answer.status,
        answer.verdict.gate,
        answer.words,
        said["reward"],
        hot and hot.us,
        hot and hot.torch_us,
        answer.speedup,
        said["facts"],
    )


def best(attempts: Sequence[Attempt]) -> Attempt | None:
    """The fastest of the attempts that passed every gate; the first of equals."""
    correct = [each for each in attempts if each.correct]
    return max(correct, key=lambda each: each.score) if correct else None
