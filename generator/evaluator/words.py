"""The evaluator's answer in words that a model can act on: what was asked, what failed, what
limits.

Called by the evaluator. Words are made of verdicts, times and facts alone; nothing of a gate's
seeds or inputs is among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.report.bottleneck import KINDS
from hgemm_packs.pack.manifest import Timing
from hgemm_packs.problem import Problem

#: What each gate asks of a kernel.
ASKED: Final[Mapping[str, str]] = {
    "record": "genome or launch record must be whole, valid, and admit the problem",
    "static": "the source may use only what a kernel of products needs",
    "build": "the compiler must accept the kernel without spills or serialised wgmma",
    "binary": "the machine code must be what the record declares, with float32 accumulators",
    "dataflow": "operands must flow into products, and products into C, on every path",
    "coverage": "each comparison on sizes must be taken both ways by some problem",
    "isolation": "the kernel must launch, end in time, and leave its process alive",
    "numeric": "values must be right on every tested problem, and nothing outside C be written",
    "state": "a launch must not depend on launches before it, nor leave anything behind",
    "sanitizer": "memcheck and racecheck must be clean",
    "plausibility": "no time may be below what the machine can do",
    "timing": "the kernel must beat torch, with hot and with cold caches",
}
_RESULTS: Final[Mapping[Status, str]] = {
    Status.OK: "It is faster than torch.",
    Status.NOISE: "Its median is ahead of torch, by less than the samples vary: no proven gain.",
    Status.SLOWER: "It is not faster than torch.",
}
MOST_DETAIL: Final = 4000  # characters: compilers can say much


def refusal(verdict: Verdict) -> str:
    """What a gate has against a kernel."""
    asked = ASKED.get(verdict.gate)
    rule = f" The gate asks: {asked}." if asked else ""
    detail = verdict.detail.strip()[:MOST_DETAIL]
    return f"Refused by the {verdict.gate} gate ({verdict.status.value}): {detail}\n{rule.strip()}"


def unmeasured(why: str) -> str:
    """That what was asked was passed, and why nothing was timed."""
    return f"Every gate that was asked has passed; not timed: {why}."


def timed(
    problem: Problem, status: Status, times: Mapping[str, Timing], facts: Mapping[str, Any]
) -> str:
    """What a correct kernel takes, against what, and what limits it."""
    lines = [f"Correct on {problem}. {_RESULTS[status]}"]
    for protocol, each in times.items():
        lines.append(
            f"{protocol} caches: {each.us:.3f} us; torch {each.torch_us:.3f} us, tuned cuBLASLt "
            f"{each.cublaslt_us:.3f} us; {each.speedup:.3f}x torch, at least {each.lcb:.3f}x."
        )
    if "bottleneck" in facts:
        lines.append(f"Limited by {facts['bottleneck']}: {KINDS[facts['bottleneck']]}.")
        share = facts["efficiency"]
        lines.append(f"The machine's measured ceilings allow {share:.0%} of that time.")
    lines.append(_resources(facts))
    return "\n".join(line for line in lines if line)


def _resources(facts: Mapping[str, Any]) -> str:
    """Resources in one sentence, as far as they are known."""
    said = []
    if "registers" in facts:
        said.append(f"{facts['registers']} registers a thread")
    if "threads" in facts:
        said.append(
            f"{facts['threads']} threads and {facts['shared_bytes']} bytes of shared memory"
        )
    if "tile" in facts:
        said.append(f"a tile of {facts['tile'][0]}x{facts['tile'][1]} a CTA")
    return f"It has {', '.join(said)}." if said else ""
