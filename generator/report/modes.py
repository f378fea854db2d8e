"""Figures of each mode of search: genome search, learned policy, language model, and mixed.

Called by the report's numbers. A mode is who proposed: its samples are the answers to its own
proposals. Screened times compare proposals with each other, in each mode in the same way;
speed-ups that are published come from finals and confirmation. Nothing here reads a file but the
lines of an evaluator.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates.plausibility import floor_us
from hgemm_packs.generator.report import metrics
from hgemm_packs.generator.store.findings import CORRECT, UNBUILT, Attempt, Findings
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.problem import Problem

KS = (1, 2, 4, 8, 16, 32, 64)

GENOME, POLICY, MODEL, MIXED = "genome", "policy", "llm", "mixed"
#: The status of an answer that no GPU has had a say in.
UNMEASURED = "UNMEASURED"
MODES = (GENOME, POLICY, MODEL, MIXED)


@dataclass(frozen=True, slots=True)
class Sample:
    """One proposal for a problem and its answer.

    `speedup` over torch and `efficiency`, the share of the roofline, are 0 for a failure and None
    where they are not known. `accepted` is a kernel that a table names for the problem. `seconds`
    are GPU-seconds, None where nobody counted them.
    """

    problem: Problem
    proposer: str
    kernel: str
    compiled: bool
    correct: bool
    accepted: bool
    hack: bool
    speedup: float | None
    efficiency: float | None
    seconds: float | None


def mode_of(proposer: str) -> str:
    """The mode of a proposer: "policy" is its own, "llm" and "llm-..." are a language model, every
    other name is a search over genomes."""
    if proposer == POLICY:
        return POLICY
    return MODEL if proposer.partition("-")[0] == MODEL else GENOME


def correct(found: Findings, attempt: Attempt) -> bool:
    """Whether an attempt passed every gate that it met, then and later."""
    return attempt.status in CORRECT and attempt.kernel not in found.refused


def samples_of(
    found: Findings,
    torch_us: Mapping[Problem, float],
    won: Collection[tuple[Problem, str]] = (),
) -> list[Sample]:
    """The attempts of a store. Speed-ups are over torch in the hot finals, `torch_us`, so that they
    are unknown on a problem that waits for these; `won` are the rows of the table, each a problem
    with the id of its kernel."""
    alive = {a.problem for a in found.attempts if correct(found, a)}
    ceilings = found.device.peak_tflops > 0

    def worth(attempt: Attempt, least: float | None) -> float | None:
        if correct(found, attempt):
            return None if least is None else least / attempt.us
        return None if least is None and attempt.problem in alive else 0.0

    return [
        Sample(
            problem=a.problem,
            proposer=a.proposer,
            kernel=a.kernel,
            compiled=a.status not in UNBUILT,
            correct=correct(found, a),
            accepted=(a.problem, a.kernel) in won,
            hack=found.refused.get(a.kernel, a.status) is Status.HACK,
            speedup=worth(a, torch_us.get(a.problem)),
            efficiency=worth(a, floor_us(a.problem, found.device, cold=False))
            if ceilings
            else None,
            seconds=a.seconds,
        )
        for a in found.attempts
    ]


def read_answers(path: Path, proposer: str) -> list[Sample]:
    """The lines of an evaluator's store as samples of `proposer`; those that no GPU has judged say
    nothing. A kernel is accepted if it was measured faster than torch. Raises ValueError for lines
    that are none of an evaluator's, and OSError."""
    found = []
    for record in read_records([path]):
        try:
            answer, candidate = record["answer"], record["candidate"]
            if answer["status"] == UNMEASURED:
                continue
            m, n, k, layout, dtype = record["problem"]
            status, right = Status(answer["status"]), answer["correct"] is True
            timed = answer["speedup"] if right else 0.0
            share = answer["facts"].get("efficiency") if right else 0.0
            found.append(
                Sample(
                    problem=Problem(m, n, k, layout, dtype, epilogue=record["epilogue"]),
                    proposer=proposer,
                    kernel=str(sorted(candidate.items())),
                    compiled=status not in UNBUILT,
                    correct=right,
                    accepted=status is Status.OK,
                    hack=status is Status.HACK,
                    speedup=None if timed is None else float(timed),
                    efficiency=None if share is None else float(share),
                    seconds=None,
                )
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError(f"{path}: a line is no answer of an evaluator") from None
    return found


def at_k(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """pass@k, compile@k, speedup@k and efficiency@k, each the mean over the problems with at least
    k samples of which it is known. On a problem that nothing correct was found for, all are 0."""
    by_problem = _divide(samples, lambda sample: sample.problem).values()
    passed = metrics.mean_at_k([[float(s.correct) for s in each] for each in by_problem], KS)
    compiled = metrics.mean_at_k([[float(s.compiled) for s in each] for each in by_problem], KS)
    faster = metrics.mean_at_k(_known(by_problem, lambda sample: sample.speedup), KS)
    efficient = metrics.mean_at_k(_known(by_problem, lambda sample: sample.efficiency), KS)
    none = (0.0, math.nan, 0)
    return [
        {
            "k": k,
            "problems": passed[k][2],
            "pass": passed[k][0],
            "compile": compiled[k][0],
            "speedup": faster.get(k, none)[1],
            "efficiency": efficient.get(k, none)[1],
        }
        for k in passed
    ]


def read_tokens(path: Path) -> int:
    """The tokens that a budget's ledger has as spent, prompts and completions together; requests
    without an end count in full. Raises ValueError for a file that is no ledger, and OSError."""
    spent: dict[str, int] = {}
    for record in read_records([path]):
        try:
            prompt, completion = record.get("spent") or record["held"]
            spent[str(record["id"])] = int(prompt) + int(completion)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError(f"{path} is no ledger of a budget") from None
    return sum(spent.values())


def by_mode(samples: Sequence[Sample], tokens: int | None = None) -> list[dict[str, Any]]:
    """The figures of each mode that proposed something. Where a language model and another mode
    did, all samples together are the mode "mixed". `tokens` are what the model cost, where it is
    known."""
    parts = _divide(samples, lambda sample: mode_of(sample.proposer))
    if MODEL in parts and len(parts) > 1:
        parts[MIXED] = list(samples)
    found = [_figures(mode, parts[mode]) for mode in MODES if mode in parts]
    for one in found:
        if tokens is not None and one["mode"] in (MODEL, MIXED):
            cost = metrics.cost_per_accepted(tokens, one["accepted"])
            one |= {"tokens": tokens, "tokens_per_accepted": cost}
    return found


def _figures(mode: str, samples: Sequence[Sample]) -> dict[str, Any]:
    by_problem = _divide(samples, lambda sample: sample.problem).values()
    speedups = _known(by_problem, lambda sample: sample.speedup)
    best = [max(each) for each in speedups]
    accepted = {sample.kernel for sample in samples if sample.accepted}
    costs = [sample.seconds for sample in samples]
    seconds = math.nan if None in costs else math.fsum(each or 0.0 for each in costs)
    hacks = sum(sample.hack for sample in samples)
    return {
        "mode": mode,
        "proposers": sorted({sample.proposer for sample in samples}),
        "problems": len(by_problem),
        "proposals": len(samples),
        "compiled": sum(sample.compiled for sample in samples),
        "correct": sum(sample.correct for sample in samples),
        "at_k": at_k(samples),
        "win": {f"{bar:g}": metrics.win_at(best, bar) for bar in metrics.WIN_BARS},
        "fast": {f"{bar:g}": metrics.fast_at(speedups, bar) for bar in metrics.WIN_BARS},
        "accepted": len(accepted),
        "gpu_seconds": seconds,
        "per_accepted": metrics.cost_per_accepted(seconds, len(accepted)),
        "hacks": hacks,
        "hack_rate": metrics.hack_rate(hacks, len(samples)),
    }


def _divide(samples: Iterable[Sample], key: Callable[[Sample], Any]) -> dict[Any, list[Sample]]:
    parts: dict[Any, list[Sample]] = defaultdict(list)
    for sample in samples:
        parts[key(sample)].append(sample)
    return dict(parts)


def _known(
    by_problem: Iterable[Sequence[Sample]], worth: Callable[[Sample], float | None]
) -> list[list[float]]:
    """Values of the problems of which all are known."""
    listed = ([worth(sample) for sample in each] for each in by_problem)
    return [[x for x in each if x is not None] for each in listed if None not in each]
