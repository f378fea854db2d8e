"""The compiler's role: from a refusal to a request for repair that names the lines at fault.

Works without a model: what a compiler or a gate said is looked up in the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgemm_packs.generator.agents import context
from hgemm_packs.generator.agents.context import Part
from hgemm_packs.generator.agents.words import Attempt

#: Gates after which the same idea, written otherwise, may pass.
MENDABLE = ("record", "static", "build", "binary", "dataflow", "coverage", "numeric", "isolation")
AROUND = 2
MOST_LINES = 12
_DIAGNOSTIC = re.compile(r"\((\d+)\)\s*: *(?:catastrophic |fatal )?(?:error|warning)|line (\d+)\b")


@dataclass(frozen=True, slots=True)
class Repair:
    """A request for repair: what was said, the lines that it is about, and the candidate."""

    words: str
    lines: tuple[str, ...]
    candidate: Mapping[str, Any]

    def parts(self) -> list[Part]:
        """The parts of a prompt."""
        text = f"{self.words}\n{context.code(self.candidate)}" if self.candidate else self.words
        found = [Part("What was refused, and why", text, "the evaluator's answer")]
        if self.lines:
            text = "\n".join(self.lines)
            found.append(Part("The lines at fault", text, "the compiler's diagnostics"))
        return found


def repair_request(attempt: Attempt) -> Repair | None:
    """The request that a refused attempt makes. None where it was not refused, or by a gate that no
    repair is asked of: quarantine is no invitation to try again."""
    if attempt.correct or attempt.gate not in MENDABLE or attempt.status == "HACK":
        return None
    lines = tuple(at_fault(attempt.source, attempt.words))
    return Repair(attempt.words, lines, attempt.candidate or {})


def at_fault(source: str, words: str) -> list[str]:
    """Lines of the source that a diagnostic names, with their neighbours and numbers; `>` marks the
    named ones."""
    lines = source.splitlines()
    named = [int(a or b) for a, b in _DIAGNOSTIC.findall(words)]
    named = [number for number in dict.fromkeys(named) if 1 <= number <= len(lines)]
    wanted = sorted({at for number in named for at in _near(number, len(lines))})
    return [
        f"{'>' if number in named else ' '}{number:5} {lines[number - 1]}"
        for number in wanted[:MOST_LINES]
    ]


def _near(number: int, count: int) -> Sequence[int]:
    return range(max(1, number - AROUND), min(count, number + AROUND) + 1)
