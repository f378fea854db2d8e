"""Made-up findings: what a store would say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hgemm_packs.generator.core.spec import DeviceFacts, Status
from hgemm_packs.generator.store.findings import Attempt, Field, Findings
from hgemm_packs.pack.manifest import Numerics
from hgemm_packs.problem import Problem

from .measured import samples

PROBLEM = Problem(256, 512, 1024, "nn", "f16")
OTHER = Problem(512, 512, 2048, "nn", "f16")
THIRD = Problem(1024, 512, 2048, "nn", "f16")
DEVICE = DeviceFacts(
    "Some GPU",
    "sm_90a",
    100,
    50 << 20,
    versions={"torch": "2.11.0", "cublas": "13.1.0", "driver": "580.1"},
    peak_tflops=800.0,
    peak_gbps=4000.0,
)
FLOOR = 0.004
NOISE = {"hot": (1.0, 1.0 - FLOOR / 2, 1.0 + FLOOR), "cold": (1.0, 0.999, 1.001)}
PROOF = Numerics("float64", 0.0002123456789, 12)
DATE = "2026-11-21"
TRIAL = Field(PROBLEM, "noise", {}, {}, DATE, NOISE)


def job(
    stage: str,
    ours: Mapping[str, tuple[float, float]],
    problem: Problem = PROBLEM,
    *,
    torch: tuple[float, float] = (12.0, 14.0),
    cublaslt: tuple[float, float] | None = (11.0, 13.0),
    statuses: Mapping[str, Status] | None = None,
    date: str = DATE,
) -> Field:
    """One finals or confirm job; pairs are hot and cold us."""
    arms = {"torch": torch, **({"cublaslt": cublaslt} if cublaslt else {}), **ours}
    timed = {
        protocol: {arm: tuple(samples(us[i])) for arm, us in arms.items()}
        for i, protocol in enumerate(("hot", "cold"))
    }
    return Field(
        problem, stage, timed, {**dict.fromkeys(ours, Status.OK), **(statuses or {})}, date
    )


def both(ours: Mapping[str, tuple[float, float]], problem: Problem = PROBLEM) -> list[Field]:
    """Finals and a confirmation that agree."""
    return [job("finals", ours, problem), job("confirm", ours, problem)]


def attempt(
    us: float,
    spent: float,
    problem: Problem = PROBLEM,
    *,
    kernel: str = "",
    status: Status = Status.OK,
    proposer: str = "prior",
    operator: str = "seed",
    seconds: float = 1.0,
) -> Attempt:
    name = kernel or f"k{spent}"
    return Attempt(problem, name, name, proposer, operator, status, us, spent, seconds)


def found(*fields: Field, **changes: Any) -> Findings:
    """Findings in which every kernel of the fields is proven."""
    kernels = sorted({kernel for each in fields for kernel in each.statuses})
    values: dict[str, Any] = {
        "device": DEVICE,
        "fields": fields,
        "proofs": dict.fromkeys(kernels, PROOF),
        "trials": (TRIAL,),
        "kernels": {
            kernel: {
                "id": kernel,
                "name": f"name_{kernel}",
                "family": "sm90_test",
                "genome": {"tile": 64},
                "grid": {"tile_m": 64, "tile_n": 64, "persistent": False},
                "cluster": [1, 1, 1],
                "param_layout": "tma2_v1",
            }
            for kernel in kernels
        },
        "gpu_seconds": {"screen": 6.0, "finals": 3.0, "confirm": 1.0},
    }
    return Findings(**values | changes)
