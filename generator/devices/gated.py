"""Kernels through the numeric gate in each way that a row may launch them, whether or not any row
does.

A `GpuDevice` whose workers are asked by `benchmarks/gates/space_gates.py` through `campaign`. A
reply's evidence is the line that goes on file: the gate's verdict is an answer, not a failed job.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import torch

from hgemm_packs import launcher
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.core.spec import CompiledKernel, Job, Reply
from hgemm_packs.generator.devices.gpu import GpuDevice
from hgemm_packs.generator.gates import pack_gate
from hgemm_packs.generator.gates.checker import Numeric, NumericError
from hgemm_packs.pack.manifest import KernelEntry

if TYPE_CHECKING:
    from hgemm_packs._C import Kernel

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
                evidence = self._check_kernel(kernel, job)
                torch.cuda.synchronize(self.index)
            except torch.OutOfMemoryError as error:  # these operands, not this kernel
                torch.cuda.empty_cache()
                evidence = {"error": f"{type(error).__name__}: {error}"}
        seconds = time.perf_counter() - began
        return Reply({}, evidence={**evidence, "seconds": round(seconds, 3)}, gpu_seconds=seconds)

    @property
    def _place(self) -> torch.device:
        return torch.device("cuda", self.index)

    def _check_kernel(self, kernel: CompiledKernel, job: Job) -> dict[str, Any]:
        record = entry(kernel.fields, kernel.cubin)
        try:
            handle = launcher.load(self.index, record, kernel.cubin, job.kind == "dependent")
            ctas, together = handle.max_ctas, math.prod(record.cluster) * record.grid.slices
            if record.cooperative and ctas < together:
                words = f"the {together} CTAs of a tile wait for each other, {ctas} run at once"
                return {"outcome": "refused", "detail": words}
            passed = self._check(record, handle, job)
        except torch.OutOfMemoryError:
            raise
        except (NumericError, RuntimeError, ValueError) as error:
            self._probe(kernel, error)
            outcome = "refused" if NO_ROOM in str(error) else "failed"
            return {"outcome": outcome, "detail": f"{type(error).__name__}: {error}"}
        return {
            "outcome": "passed",
            "max_rel_err": passed.max_rel_err,
            "shapes_tested": passed.shapes_tested,
        }

    def _check(self, record: KernelEntry, kernel: Kernel, job: Job) -> Numeric:
        return pack_gate.check(record, kernel, self._place, self.facts.sm_count, job.seed)


def make(index: int = 0) -> Gated:
    """The device of a worker; see `gpu.make`."""
    return Gated(index if torch.cuda.device_count() > 1 else 0)
