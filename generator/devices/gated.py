"""Kernels through the numeric gate in each way that a row may launch them, whether or not any row
does.

A `GpuDevice` whose workers are asked by `benchmarks/gates/space_gates.py` through `campaign`. A
reply's evidence is the line that goes on file: the gate's verdict is an answer, not a failed job.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from hgemm_packs import launcher
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.core.spec import CompiledKernel, Job, Reply
from hgemm_packs.generator.devices.gpu import GpuDevice
from hgemm_packs.generator.gates import numeric
from hgemm_packs.generator.gates.arm import KernelArm

WAYS = ("plain", "dependent")  # job kinds
NO_ROOM = "no block of this kernel fits the device"  # csrc/launcher/cuda/kernel.c


class Gated(GpuDevice):
    """Answers with an "outcome": "passed", "failed", or "refused", which is no wrong value: by what
    the driver says, this device cannot run a single tile of the kernel."""

    def run(self, job: Job) -> Reply:
        """Gate the one kernel of a job. Raises DeviceLost, and ValueError for another kind."""
        if job.kind not in WAYS:
            raise ValueError(f"no job {job.kind!r}; known: {', '.join(WAYS)}")
        (kernel,), began = job.kernels, time.perf_counter()
        with torch.cuda.device(self.index):
            try:
                evidence = self._check_kernel(kernel, job.kind == "dependent", job.seed)
                torch.cuda.synchronize(self.index)
            except torch.OutOfMemoryError as error:  # these operands, not this kernel
                torch.cuda.empty_cache()
                evidence = {"error": f"{type(error).__name__}: {error}"}
        seconds = time.perf_counter() - began
        return Reply({}, evidence={**evidence, "seconds": round(seconds, 3)}, gpu_seconds=seconds)

    def _check_kernel(self, kernel: CompiledKernel, dependent: bool, seed: int) -> dict[str, Any]:
        record = entry(kernel.fields, kernel.cubin)
        try:
            handle = launcher.load(self.index, record, kernel.cubin, dependent)
            ctas, together = handle.max_ctas, math.prod(record.cluster) * record.grid.slices
            if record.cooperative and ctas < together:
                words = f"the {together} CTAs of a tile wait for each other, {ctas} run at once"
                return {"outcome": "refused", "detail": words}
            place, sms = torch.device("cuda", self.index), self.facts.sm_count
            passed = numeric.check(
                record, KernelArm(handle, record.epilogue), place, sms, seed, ctas
            )
        except torch.OutOfMemoryError:
            raise
        except (numeric.NumericError, RuntimeError, ValueError) as error:
            self._probe(kernel, error)
            outcome = "refused" if NO_ROOM in str(error) else "failed"
            return {"outcome": outcome, "detail": f"{type(error).__name__}: {error}"}
        return {
            "outcome": "passed",
            "max_rel_err": passed.max_rel_err,
            "shapes_tested": passed.shapes_tested,
        }


def make(index: int = 0) -> Gated:
    """The device of a worker; see `gpu.make`."""
    return Gated(index if torch.cuda.device_count() > 1 else 0)
