"""Several kernels of one problem beside one another, in a process of their own.

`benchmarks.agents.byhand` sends `contest` to an `isolation.Worker`: what a kernel breaks is that
process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hgemm_packs.generator.core.spec import CompiledKernel, Job
from hgemm_packs.generator.devices.gpu import GpuDevice
from hgemm_packs.problem import Problem


def contest(
    kernels: Sequence[CompiledKernel], problem: Problem, index: int, seed: int
) -> dict[str, Any]:
    """A confirm job of all of them on GPU `index`: "status" and "detail" by kernel id, and
    "samples", us by arm (a kernel's id, "torch", "cublaslt") and protocol. Raises RuntimeError
    where the job failed."""
    reply = GpuDevice(index).run(Job("confirm", problem, tuple(kernels), seed))
    if "failed" in reply.evidence:
        raise RuntimeError(str(reply.evidence["failed"]))
    arms = {**reply.baselines, **{id_: each.samples for id_, each in reply.results.items()}}
    return {
        "status": {id_: each.status.value for id_, each in reply.results.items()},
        "detail": {id_: each.detail for id_, each in reply.results.items()},
        "samples": {
            arm: {protocol: list(us) for protocol, us in samples.items()}
            for arm, samples in arms.items()
        },
    }
