"""Recordings of the simulation."""

from __future__ import annotations

from statistics import median
from typing import Any

from hgemm_packs.generator.core.space import FITTED, Space
from hgemm_packs.generator.core.spec import (
    Choice,
    Job,
    Result,
    Status,
)
from hgemm_packs.generator.devices.fake import fake_kernel
from hgemm_packs.generator.devices.sim import Faults, SimDevice
from hgemm_packs.problem import Problem

PROBLEMS = (
    Problem(64, 512, 512, "nt", "f16"),
    Problem(256, 512, 1024, "nn", "f16"),
    Problem(1024, 1024, 128, "nt", "f16"),
)
SIM = SimDevice(7, Faults(numeric=0.02, hang=0.01, launch=0.01))


def catalogued(problem: Problem) -> tuple[Choice, ...]:
    """What a sweep times: the catalogue's part of a space, not what is fitted to the problem."""
    return tuple(choice for choice in Space(problem).core if choice.family not in FITTED)


def line(problem: Problem) -> dict[str, Any]:
    """What the sweep writes of a problem: one sample of the hopeless, nothing of the unbuilt."""
    core = catalogued(problem)
    best = SIM.optimum(problem)[1]
    us, failed = {}, {}
    for choice in core:
        result = only(SIM, "screen", choice, problem)
        samples = result.samples.get("hot", ())
        if result.status is Status.OK:
            us[choice.name] = list(samples[:1] if min(samples) > 4 * best else samples)
        elif result.status is Status.NUMERIC:
            failed[choice.name] = "error 3.10e-02"
        elif result.status is Status.TIMEOUT:
            failed[choice.name] = "hung"
    top = sorted(us, key=lambda name: median(us[name]))[:3]
    again = {"torch": [9.5, 9.4], "cublaslt": [9.1], **{n: [median(us[n])] * 9 for n in top}}
    key = [problem.m, problem.n, problem.k, problem.layout, problem.dtype]
    return {"problem": key, "us": us, "failed": failed, "again": again}


def only(device: Any, kind: str, choice: Any, problem: Problem, seed: int = 1) -> Result:
    (result,) = device.run(Job(kind, problem, (fake_kernel(choice),), seed)).results.values()
    assert isinstance(result, Result)
    return result
