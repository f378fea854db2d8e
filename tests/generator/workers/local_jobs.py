"""Jobs, and workers on this machine to do them."""

from __future__ import annotations

from pathlib import Path

from hgemm_packs.generator.core.spec import CompiledKernel, Job
from hgemm_packs.generator.workers.evaluators import Local
from tests.generator.store.sample_store import PROBLEMS, choices, kernel

KERNELS = [kernel(choice) for choice in choices(6)]


def job(
    kernels: list[CompiledKernel], kind: str = "screen", problem: int = 0, seed: int = 7
) -> Job:
    return Job(kind, PROBLEMS[problem], tuple(kernels), seed)


def local(tmp_path: Path, make: object, count: int = 1, timeout_s: float = 30.0) -> Local:
    return Local(
        make,  # type: ignore[arg-type]
        count,
        logs=tmp_path / "logs",
        locks=tmp_path,
        timeout_s=timeout_s,
    )
