"""A device whose answers are lines for a campaign; what goes wrong is decided by a problem's M."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from hgemm_packs.generator.core.spec import DeviceFacts, Job, Reply, Result, Status

ERROR_M, BLAMED_M, LOST_M, DIES_M, FAILED_M = 8, 16, 24, 32, 40


@dataclass
class Answering:
    """`asked`: the jobs that ran here."""

    asked: list[Job] = field(default_factory=list)
    facts = DeviceFacts("Fake 1", "sm_90a", 132, 1 << 26, "u0", {"torch": "0"})

    def run(self, job: Job) -> Reply:
        self.asked.append(job)
        assert job.problem is not None
        m = job.problem.m
        if m == DIES_M:
            os._exit(3)
        if m == LOST_M:
            raise RuntimeError("device lost")
        if m == BLAMED_M:
            return Reply({"k": Result(Status.TIMEOUT, detail="no answer")})
        if m == FAILED_M:
            return Reply({}, evidence={"failed": "no memory"})
        if m == ERROR_M:
            return Reply({}, evidence={"error": "RuntimeError: no"})
        kernels = [kernel.fields["name"] for kernel in job.kernels]
        return Reply({}, evidence={"hot": {"torch": [float(m)]}, "ran": kernels})


def make(index: int) -> Answering:
    return Answering()
