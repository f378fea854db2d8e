"""Where tests of the roles stand: a simulated device, a problem, models that say what they are told
to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from hgemm_packs.generator.agents.ground import Ground
from hgemm_packs.generator.agents.journal import Journal
from hgemm_packs.generator.agents.orchestrator import Limits, Orchestrator, Watch
from hgemm_packs.generator.agents.roles.reasoner import Reasoner
from hgemm_packs.generator.agents.roles.synthesizer import GENOME, Synthesizer
from hgemm_packs.generator.agents.roles.verifier import Judge, Verifier
from hgemm_packs.generator.agents.words import Attempt
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.devices.sim import Faults, SimDevice
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.llm.chat import Chat, Patience
from hgemm_packs.generator.llm.server import Failure
from hgemm_packs.generator.llm.words import Answer, Reply, Request, Usage
from hgemm_packs.problem import Problem

PROBLEM = Problem(512, 1024, 512, "nt", "f16")
FAULTS = Faults(launch=0.03, numeric=0.05, subtle=0.05, lost=0.02, hack=0.05)

Says = Callable[[Request], str]


class Scripted:
    """A transport without a network: `says` is asked for each sample's text."""

    def __init__(self, says: Says) -> None:
        self._says = says
        self.requests: list[Request] = []

    def send(self, request: Request) -> Answer | Failure:
        self.requests.append(request)
        replies = tuple(Reply(self._says(request)) for _ in range(request.n))
        return Answer(replies, Usage(2000, 50))


def chat(says: Says, **more: Any) -> Chat:
    """A chat with such a model."""
    return Chat(Scripted(says), "scripted", patience=Patience(2, sleep=lambda _: None), **more)


def asked_of(request: Request) -> str:
    """ "reasoner" or "synthesizer", by the schema of what is asked."""
    properties = (request.schema or {}).get("properties", {})
    return "reasoner" if "hypotheses" in properties else "synthesizer"


@cache
def ground(problem: Problem = PROBLEM, seed: int = 3) -> Ground:
    """Nothing in it changes: one serves all tests."""
    return Ground(Space(problem), SimDevice(seed).facts)


def orchestrator(
    journal: Journal | None = None,
    *,
    model: Chat | None = None,
    limits: Limits | None = None,
    faults: Faults = FAULTS,
    judge: Judge | None = None,
    kind: str = GENOME,
    seed: int = 0,
    watch: Watch | None = None,
    problem: Problem = PROBLEM,
    here: Ground | None = None,
) -> Orchestrator:
    """A run on the simulated device, by rules unless there is a model."""
    here = here or ground(problem)
    return Orchestrator(
        here,
        Reasoner(here, model, None if kind == GENOME else ()),
        Synthesizer(here, model, kind),
        Verifier(judge or Evaluator(SimDevice(3, faults)), problem),
        journal or Journal(None, {}),
        limits or Limits(evaluations=12),
        seed,
        watch or (lambda event: None),
    )


def attempt(number: int = 0, **fields: Any) -> Attempt:
    """An attempt that passed, but for what is said."""
    made: dict[str, Any] = {
        "round": number,
        "place": 0,
        "branch": 0,
        "operator": "genome",
        "parent": "",
        "key": f"key{number}",
        "candidate": {"family": "sm90_gemv", "genome": {"warps_n": number}},
        "status": "OK",
        "gate": "timing",
        "words": "Correct.",
        "reward": 0.1,
        "us": 4.0,
        "torch_us": 5.0,
        "speedup": 1.25,
    }
    return Attempt(**{**made, **fields})


def as_json(**fields: Any) -> str:
    return json.dumps(fields)


def statuses(attempts: Sequence[Attempt]) -> list[str]:
    return [each.status for each in attempts]
