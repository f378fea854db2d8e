"""Outputs of timed launches: a kernel must compute in the replay that is timed what it computes in
a check.

Given to a comparison by `contest`. After a block drawn by lot the inputs of some sets are rewritten
and the very graph that is being timed is replayed; its outputs are compared and its time kept apart
from the samples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from hgemm_packs.generator.core.spec import Result, Status
from hgemm_packs.generator.measure.values import Finding, sample_reference
from hgemm_packs.measure.timing import ArmBench
from hgemm_packs.problem import Problem

SETS = 3  # of one audit


class Audit:
    """One audit of each of `names` under each protocol, at blocks that `seed` decides.

    `findings` has (protocol, finding) and `us` the audited replay's time, by name and protocol.
    """

    def __init__(self, problem: Problem, names: Sequence[str], seed: int) -> None:
        self._problem, self._names = problem, names
        self._lot = random.Random(seed)
        self.findings: dict[str, list[tuple[str, Finding]]] = {name: [] for name in names}
        self.us: dict[str, dict[str, float]] = {name: {} for name in names}

    def between(self, protocol: str, blocks: int) -> Callable[[int, ArmBench], None]:
        """What `timing.compare` calls after each of its blocks."""
        due = {name: self._lot.randrange(blocks) for name in self._names}

        def after(block: int, field: ArmBench) -> None:
            for name in self._names:
                if due[name] == block:
                    self._audit(name, protocol, field)

        return after

    def _audit(self, name: str, protocol: str, field: ArmBench) -> None:
        sets = self._lot.sample(list(field.plan.sets), min(SETS, len(field.plan.sets)))
        generator = torch.Generator(sets[0].a.device).manual_seed(self._lot.getrandbits(48))
        for i, one in enumerate(sets):
            one.a.normal_(generator=generator)
            # NaN shows what is not written, the old product what is not computed again.
            if i > 0:
                one.c.fill_(math.nan)
        self.us[name][protocol] = field.block([name])[0][name]
        for one in sets:
            reference = sample_reference(self._problem, one, self._lot.getrandbits(48))
            self.findings[name].append((protocol, reference.check(one.c)))

    def detail(self, name: str) -> str:
        """Empty when every output of `name` was right."""
        wrong = [f"{protocol}: {f.detail}" for protocol, f in self.findings[name] if f.detail]
        return "; ".join(f"timed launch, {text}" for text in wrong)


def apply_audit(result: Result, id_: str, audit: Audit | None) -> Result:
    """The result after the audit, if there was one, of its timed launches."""
    if audit is None:
        return result
    detail = audit.detail(id_)
    status = Status.NUMERIC if detail else result.status
    evidence = {**result.evidence, "audit_us": audit.us[id_]}
    return replace(result, status=status, detail=detail, evidence=evidence)
