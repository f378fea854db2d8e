"""A scripted model that proposes every cheat of the red team's corpus, and what became of each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hgemm_packs.generator.agents.ground import Ground
from hgemm_packs.generator.agents.roles.synthesizer import SOURCE, Order, Synthesizer
from hgemm_packs.generator.agents.roles.verifier import Verifier
from hgemm_packs.generator.agents.words import Attempt, Hypothesis
from hgemm_packs.generator.compile.candidate import DEFAULTS, FOREIGN, OPTIONAL, REQUIRED
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.evaluator.reward import UNMEASURED
from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.llm.words import ChatError
from hgemm_packs.generator.redteam.corpus import CPU_GATES, Case, load
from hgemm_packs.problem import Problem


def cheats() -> list[Case]:
    """The cases that must be rejected and have a kernel."""
    return [case for case in load() if not case.honest and case.candidate is not None]


def by_gate(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Cases by the first gate that must reject each."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.expect[0], []).append(case)
    return found


def on_cpu(case: Case) -> bool:
    """Whether a gate that needs no GPU must reject it as free source, though none is taken to be
    fooled."""
    on_cpu = set(case.expect) & set(CPU_GATES)
    return bool(on_cpu) and not (case.fooled or is_held_to_its_family(case))


def is_held_to_its_family(case: Case) -> bool:
    """Whether the binary gate alone rejects it, by what its family declares: its work, its
    launches. Free source declares neither."""
    assert case.candidate is not None
    return case.expect == ("binary",) and case.candidate.fields["family"] != FOREIGN


def says(case: Case) -> str:
    """What a model answers that proposes the case as if it were good."""
    assert case.candidate is not None
    fields = dict(case.candidate.fields)
    record: dict[str, Any] = {
        name: fields[name] for name in (*REQUIRED, *OPTIONAL, *DEFAULTS) if name in fields
    }
    source = case.candidate.source.replace("```", "")
    return f"Faster.\n```cuda\n{source}\n```\nRECORD: {json.dumps(record)}\n"


def problem_of(case: Case) -> Problem:
    """A problem that the case admits: its layout, type and epilogue, sizes within its limits."""
    assert case.candidate is not None
    fields = case.candidate.fields
    m, n, k = (_size(**fields["dims"][d]) for d in "mnk")
    return Problem(m, n, k, fields["layout"], fields["dtype"], epilogue=fields["epilogue"])


def _size(min: int, max: int, multiple_of: int) -> int:
    """The multiple next to 512 within the limits."""
    wanted = 512 if min <= 512 <= max else max if max < 512 else min
    return wanted // multiple_of * multiple_of


def propose(case: Case, model: Chat) -> Attempt:
    """What becomes of a case that a model proposes: through the synthesizer, and all gates that
    need no GPU."""
    problem = problem_of(case)
    here = Ground(Space(problem), SimDevice(1).facts)
    (proposed,) = Synthesizer(here, model, SOURCE).propose(Order(Hypothesis("it is faster")), 1)
    verifier = Verifier(Evaluator(None), problem)
    return verifier.verify(proposed, round=0, place=0, branch=0, known=set())


def bypassed(case: Case, found: Attempt) -> bool:
    """Whether a cheat got where it must not: it counts as right, or passed a gate that rejects it
    here. What only a GPU decides stays undecided, which is no success of anybody."""
    return found.correct or (on_cpu(case) and found.status == UNMEASURED)


def came_of(case: Case, model: Chat) -> dict[str, Any] | None:
    """The candidate that came of a server that fails; None, as it must be."""
    try:
        found = propose(case, model)
    except ChatError:
        return None
    return dict(found.candidate) if found.candidate else None
