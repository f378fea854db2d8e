"""The corpus through the gates: which bad kernels were rejected by the gate that must, which honest
ones passed all.

Called by the CLI and by the tests. The stage "cpu" decides what needs no GPU and shows that
everything else gets as far as the GPU.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hgemm_packs.generator.core.spec import Verdict
from hgemm_packs.generator.gates import plausibility
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.redteam.book import Book
from hgemm_packs.generator.redteam.corpus import PASS, Case
from hgemm_packs.generator.redteam.outcome import CaseOutcome
from hgemm_packs.generator.run import evaluate

#: Of the size gate's evidence: problems of other gates. Those that fill a card run alone.
FURTHER = ("planned", "ways")
Stage = Literal["cpu", "gpu"]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Report:
    """All outcomes of one stage. Undecided cases count neither as bad nor as rejected."""

    stage: Stage
    cases: tuple[CaseOutcome, ...]

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        decided = [case for case in self.cases if not case.undecided]
        bad = [case for case in decided if case.expect != [PASS]]
        honest = [case for case in decided if case.expect == [PASS]]
        return {
            "stage": self.stage,
            "total": len(bad),
            "rejected": sum(case.as_expected for case in bad),
            "honest_total": len(honest),
            "honest_passed": sum(case.as_expected for case in honest),
            "undecided": len(self.cases) - len(decided),
            "cases": [asdict(case) for case in self.cases],
        }

    @property
    def clean(self) -> bool:
        """Whether every decided case went as expected."""
        return all(case.as_expected for case in self.cases if not case.undecided)


def rejection(verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """(gate, detail) of the first verdict that is a rejection, else ("pass", "")."""
    for verdict in verdicts:
        if not verdict.passed:
            return verdict.gate, verdict.detail
    return PASS, ""


def _outcome(case: Case, verdicts: Sequence[Verdict], began: float) -> CaseOutcome:
    gate, detail = rejection(verdicts)
    seconds = round(time.monotonic() - began, 3)
    return CaseOutcome(
        case.name, case.what, list(case.expect or (PASS,)), gate, detail[:600], seconds
    )


def on_cpu(case: Case) -> tuple[CaseOutcome, Any]:
    """The outcome of the gates that need no GPU, and the built kernel when they passed it."""
    began = time.monotonic()
    if case.claim is not None:
        claim = case.claim
        facts = corpus.device_facts()
        verdict = plausibility.check(claim.problem, claim.us_hot, claim.us_cold, facts)
        return _outcome(case, [verdict], began), None
    assert case.candidate is not None, "a case is a kernel or a claim"
    verdicts, built = evaluate.build_gates(case.candidate, case.fooled)
    outcome = _outcome(case, verdicts, began)
    if built is not None:
        outcome.further = {name: verdicts[-1].evidence.get(name, []) for name in FURTHER}
    outcome.undecided = case.needs_gpu and not case.honest and outcome.got_gate == PASS
    return outcome, built


def choose(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """The cases of these names, all where none is named. Raises ValueError for an unknown one."""
    unknown = set(names) - {case.name for case in cases}
    if unknown:
        raise ValueError(f"no case {', '.join(sorted(unknown))} in the corpus")
    return [case for case in cases if not names or case.name in names]


def run(
    stage: Stage,
    progress: Progress = lambda done, total: None,
    device: int = 0,
    names: Sequence[str] = (),
    book: Book | None = None,
) -> Report:
    """Every case of the corpus, or those of these names; `progress(done, total)` after each. What
    gates of a GPU say is written into `book`, and not asked again where the book has it.

    Raises ValueError for no stage or no such case, RuntimeError when the device fails for reasons
    of its own.
    """
    if stage not in ("cpu", "gpu"):
        raise ValueError(f'stage must be "cpu" or "gpu", not {stage!r}')
    cases = choose(corpus.load(), names)
    outcomes: dict[str, CaseOutcome] = {}
    kernels = {}
    # Processes, for gates that follow code in Python would wait for each other in threads.
    count, context = min(os.cpu_count() or 1, len(cases)), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        for case, (outcome, built) in zip(cases, pool.map(on_cpu, cases), strict=True):
            outcomes[case.name] = outcome
            if built is not None:
                kernels[case.name] = built
            if stage == "cpu" or built is None:
                settled = len(outcomes) if stage == "cpu" else len(outcomes) - len(kernels)
                progress(settled, len(cases))
    if stage == "gpu":
        from hgemm_packs.generator.redteam import on_gpu

        left = [case for case in cases if case.name in kernels]
        before = len(cases) - len(left)

        def report_progress(done: int) -> None:
            progress(before + done, len(cases))

        on_gpu.finish(left, kernels, outcomes, device, report_progress, book or Book())
    return Report(stage, tuple(outcomes[case.name] for case in cases))
