"""Kernels that were measured before, as examples to tell apart: fast, middling, slow.

From the store of a run, from answers of an evaluator, and from this run's own attempts. What is in
quarantine, and what failed a gate anywhere, is never among them: a model learns what it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hgemm_packs.generator.agents.words import Attempt
from hgemm_packs.generator.core.spec import Choice, DeviceFacts, Status
from hgemm_packs.generator.evaluator.answer import CORRECT
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.store.reader import StoreReader, screened_us
from hgemm_packs.problem import Problem, regime

RANKS = ("fast", "middling", "slow")
#: What says nothing against a kernel.
NOTHING_WRONG = CORRECT | {"UNMEASURED"}


@dataclass(frozen=True, slots=True)
class Example:
    """A kernel that passed every gate that it met, with its hot time on a problem. `rank` is one of
    RANKS once it was chosen, `source` says where it stands on record, `kind` what limits it."""

    candidate: Mapping[str, Any]
    problem: Problem
    us: float
    speedup: float
    source: str
    kind: str = ""
    rank: str = ""


def of_store(store: StoreReader, name: str, problem: Problem, device: DeviceFacts) -> list[Example]:
    """Screened kernels of a run on problems of the same kind, layout and type. A choice of which
    any kernel was refused or quarantined, on whatever problem, is left out."""
    built: dict[str, Choice] = {}
    for kernel, family, genome in store.db.execute(
        "SELECT kernel, family, genome FROM build JOIN candidate ON candidate.id = candidate"
        " WHERE kernel IS NOT NULL"
    ):
        built[kernel] = Choice.of(family, json.loads(genome))
    bad = {built[kernel] for kernel in store.refused_kernels() if kernel in built}
    torch_us = store.torch_us(device)
    found: dict[tuple[Problem, Choice], float] = {}
    for other in store.problems():
        if other not in torch_us or not _alike(other, problem):
            continue
        for job in store.finished_jobs("screen", other):
            for kernel, result in job.reply.results.items():
                choice = built.get(kernel)
                if choice is not None and choice not in bad and result.status is Status.OK:
                    us = min(screened_us(result), found.get((other, choice), float("inf")))
                    found[other, choice] = us
    return [
        Example(
            {"family": choice.family, "genome": choice.genome},
            other,
            us,
            torch_us[other] / us,
            f"store {name}",
        )
        for (other, choice), us in found.items()
    ]


def _alike(a: Problem, b: Problem) -> bool:
    same = (a.layout, a.dtype, a.epilogue) == (b.layout, b.dtype, b.epilogue)
    return same and regime(a.m, a.n, a.k) == regime(b.m, b.n, b.k)


def of_answers(path: Path, problem: Problem) -> list[Example]:
    """Candidates of an evaluator's file of answers, on problems of the same kind. One that was
    refused in any line is left out of all. Raises OSError, ValueError for another file."""
    records = read_records([path])
    try:
        keys = [json.dumps(each["candidate"], sort_keys=True) for each in records]
        bad = {
            key
            for key, each in zip(keys, records, strict=True)
            if each["answer"]["status"] not in NOTHING_WRONG
        }
        found = []
        for key, each in zip(keys, records, strict=True):
            m, n, k, layout, dtype = each["problem"]
            other = Problem(m, n, k, layout, dtype, epilogue=each["epilogue"])
            answer = each["answer"]
            times = answer["times"] or {}
            if key in bad or not answer["correct"] or "hot" not in times:
                continue
            if _alike(other, problem):
                us, speedup = float(times["hot"]["us"]), float(answer["speedup"])
                kind = str(answer["facts"].get("bottleneck", ""))
                found.append(
                    Example(each["candidate"], other, us, speedup, f"answers {path.name}", kind)
                )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no file of answers: {error}") from None
    return found


def of_run(
    other: Problem, attempts: Iterable[Attempt], name: str, problem: Problem
) -> list[Example]:
    """Attempts of another run of agents that passed, if its problem is of the same kind."""
    found = of_attempts(attempts, other) if _alike(other, problem) else []
    return [replace(each, source=f"agents {name}") for each in found]


def of_attempts(attempts: Iterable[Attempt], problem: Problem) -> list[Example]:
    """This run's own attempts that passed."""
    return [
        Example(
            each.candidate,
            problem,
            each.us,
            each.score,
            f"this run, round {each.round}",
            str(each.facts.get("bottleneck", "")),
        )
        for each in attempts
        if each.correct and each.us is not None and each.candidate is not None
    ]


def contrast(found: Sequence[Example]) -> list[Example]:
    """One fast, one middling, one slow, by their speed-ups over torch; fewer of fewer. Of one
    candidate that stands there twice the better figure counts."""
    best: dict[str, Example] = {}
    for each in found:
        key = json.dumps(each.candidate, sort_keys=True)
        if key not in best or each.speedup > best[key].speedup:
            best[key] = each
    ranked = sorted(best.values(), key=lambda each: -each.speedup)
    if len(ranked) < len(RANKS):
        names = ("fast", "slow")
        return [replace(each, rank=rank) for each, rank in zip(ranked, names, strict=False)]
    picked = (ranked[0], ranked[len(ranked) // 2], ranked[-1])
    return [replace(each, rank=rank) for each, rank in zip(picked, RANKS, strict=True)]
