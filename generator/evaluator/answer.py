"""What the evaluator says of one candidate on one problem: a value, and the same as JSON.

Made by the evaluator alone; read by models, trainers, the doors and reports.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.evaluator.reward import UNMEASURED
from hgemm_packs.pack.manifest import Timing

#: The closed list of statuses of answers.
STATUSES: Final = (*(status.value for status in Status), UNMEASURED)
#: Those of kernels that passed every gate and were timed.
CORRECT: Final = frozenset((Status.OK.value, Status.SLOWER.value, Status.NOISE.value))


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` is one of STATUSES. `verdict` is that of the last gate which ran, `verdicts` are
    all.

    `times` has, for "hot" and "cold" caches as far as they were measured, the times in us of ours,
    torch and tuned cuBLASLt, and the speed-up over torch with its lower bound; it is empty where
    nothing was timed. `speedup` is the geometric mean of the speed-ups over torch, None likewise.

    `facts`, of the kernel: "registers", "spilled_bytes", "shared_bytes", "threads", "tile",
    "bottleneck" (a kind of `report.bottleneck`), "efficiency" (the least time that the machine's
    measured ceilings allow, as a share of the kernel's), "noise_floor"; each only where it is
    known.

    `words` tells a model what became of its proposal and why.
    """

    status: str
    verdict: Verdict
    reward: float
    words: str
    verdicts: tuple[Verdict, ...] = ()
    times: Mapping[str, Timing] = field(default_factory=dict)
    speedup: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def correct(self) -> bool:
        """Whether it passed every gate and was timed, however slow it is."""
        return self.status in CORRECT

    def document(self) -> dict[str, Any]:
        """The answer as JSON has it, without evidence: seeds of the gates leave no evaluator."""
        return {
            "status": self.status,
            "correct": self.correct,
            "reward": round(self.reward, 6),
            "verdict": plain(self.verdict),
            "gates": [plain(each) for each in self.verdicts],
            "times": {protocol: each._asdict() for protocol, each in self.times.items()} or None,
            "speedup": self.speedup,
            "facts": {name: value for name, value in self.facts.items() if _is_finite(value)},
            "words": self.words,
        }


def plain(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON has it, without evidence."""
    return {
        "passed": verdict.passed,
        "gate": verdict.gate,
        "status": verdict.status.value,
        "detail": verdict.detail,
    }


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
