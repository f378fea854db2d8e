"""What the gates that need no GPU make of a mutant, as a line of the run's file.

`judge` runs in an isolated process; a compiler that dies or hangs takes that process alone. The
rules by which a mutant is equivalent here: its instructions and its launch record are those of the
honest kernel, byte by byte (`same_code`); or, of one that the gates pass, its record is, and its
instructions where both are compiled with what every launch keeps (`facts`); or its code is that of
an honest kernel, which is made for all that its record allows (`launches`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.candidate import Candidate, CandidateError, entry, of_choice
from hgemm_packs.generator.compile.compiler import BuildError, Built
from hgemm_packs.generator.core.spec import Choice, Verdict
from hgemm_packs.generator.redteam.mutation import facts, launches, same_code
from hgemm_packs.generator.redteam.mutation.draw import Mutant, NoPlace, draw
from hgemm_packs.generator.run import evaluate

#: What became of a mutant. The first five are no planted faults: there was no place, the honest
#: kernel was refused itself, the compiler refused the change, nothing has changed, or our own code
#: failed.
NO_PLACE, BASE, UNBUILT, EQUIVALENT = "no place", "base refused", "not compiled", "equivalent"
ERROR = "error"
NOT_PLANTED = (NO_PLACE, BASE, UNBUILT, EQUIVALENT, ERROR)
#: A gate refused it, or those of a GPU must decide. Of what passes all: its bits differ from those
#: of the honest kernel, or were not seen to.
CAUGHT, UNDECIDED, SLIPPED, UNSEEN = "caught", "undecided", "slipped", "unseen"

#: Lists of further problems that the size gate asks for: of the numeric gate, of the same where
#: they fill a card, and of the sanitizer.
ASKED = ("planned", "large", "ways")
WORDS = 600  # characters of a verdict that are kept

Line = dict[str, Any]


def judge(seed: int, number: int) -> Line:
    """The line of mutant `number`: what it is, and `outcome`, `gate` and `detail`."""
    began = time.monotonic()
    try:
        mutant = draw(seed, number)
    except NoPlace as error:
        return {"number": number, "outcome": NO_PLACE, "detail": str(error), "gate": ""}
    decided = decide(mutant)
    return mutant.document() | {
        "outcome": decided.outcome,
        "gate": decided.gate,
        "detail": decided.detail[:WORDS],
        **{name: [*decided.asked.get(name, ())] for name in ASKED},
        "seconds": round(time.monotonic() - began, 3),
    }


class Decided(NamedTuple):
    """What the gates of the CPU make of a mutant; `asked` has the lists of ASKED."""

    outcome: str
    gate: str = ""
    detail: str = ""
    asked: Mapping[str, Any] = MappingProxyType({})


def decide(mutant: Mutant) -> Decided:
    """A mutant before the gates of a GPU."""
    refused = _refusal(mutant.base.choice)
    if refused:
        return Decided(BASE, detail=refused)
    made = mutant.candidate
    try:
        entry(made.fields)
    except CandidateError as error:
        return Decided(CAUGHT, "record", str(error))
    try:
        built = compiler.build_source(made.source, made.fields)
    except BuildError as error:
        return Decided(UNBUILT, detail=str(error))
    if is_same(built, mutant):
        return Decided(EQUIVALENT, detail="the same instructions and the same launch record")
    *_, verdict = gates(made)
    if not verdict.passed:
        return Decided(CAUGHT, verdict.gate, verdict.detail)
    if facts.are_one(mutant):
        return Decided(EQUIVALENT, detail="the same instructions with what every launch keeps")
    if mutant.own is not None and launches.are_allowed(mutant.own, made.fields):
        return Decided(EQUIVALENT, detail="an honest kernel, launched as its own record allows")
    return Decided(UNDECIDED, asked=verdict.evidence)


def is_same(built: Built, mutant: Mutant) -> bool:
    """Whether a built mutant is the honest kernel in every instruction and in its record."""
    if mutant.candidate.fields != mutant.base.fields:
        return False
    honest = compiler.build_source(mutant.base.source, mutant.base.fields)
    return same_code.run_the_same(built.cubin, honest.cubin)


def gates(one: Candidate) -> list[Verdict]:
    """Verdicts of the gates of the CPU, the cheap ones first, up to the first rejection."""
    return evaluate.build_gates(one)[0]


@cache
def _refusal(choice: Choice) -> str:
    """Why the honest kernel is refused; empty where it passes."""
    verdict = next((each for each in gates(of_choice(choice)) if not each.passed), None)
    return f"{verdict.gate}: {verdict.detail}"[:WORDS] if verdict is not None else ""
