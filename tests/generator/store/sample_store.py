"""Made-up problems, kernels and replies for tests of the store and of what runs on it."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

from hgemm_packs.generator.core.space import admits
from hgemm_packs.generator.core.spec import (
    Choice,
    CompiledKernel,
    DeviceFacts,
    Job,
    Reply,
    Result,
    Status,
)
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.problem import Problem

PROBLEMS = [Problem(128, 256, 64 << i, "nt", "f16") for i in range(8)]
FACTS = DeviceFacts("Fake 1", "sm_90a", 132, 1 << 26, "u0", {"torch": "0"}, 0.0, 0.0)


def choices(count: int) -> list[Choice]:
    """The first `count` of the direct family, nt f16, that admit all PROBLEMS."""
    points = FAMILIES["sm90_direct"].space(layout="nt", dtype="f16")
    every = (Choice.of("sm90_direct", genome) for genome in points)
    fitting = (choice for choice in every if all(admits(choice, p) for p in PROBLEMS))
    return list(itertools.islice(fitting, count))


def kernel(choice: Choice) -> CompiledKernel:
    """A kernel without code: its cubin is the choice's key."""
    cubin = choice.key.encode()
    fields = {"family": choice.family, "genome": choice.genome, "name": choice.name}
    fields["id"] = hashlib.sha256(cubin).hexdigest()
    return CompiledKernel(fields, cubin, {"regs": 64.0})


def screen(
    problem: Problem, kernels: Sequence[CompiledKernel], us: Sequence[float], seed: int = 1
) -> tuple[Job, Reply]:
    """A screen job with its reply: three samples about `us`, the median exact."""
    results = {
        k.id: Result(Status.OK, {"hot": (t * 1.01, t, t * 0.99)})
        for k, t in zip(kernels, us, strict=True)
    }
    return Job("screen", problem, tuple(kernels), seed), Reply(results, {}, {}, 0.25, FACTS)
