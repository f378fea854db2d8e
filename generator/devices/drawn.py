"""Kernels on problems that a seed drew, a launch and a comparison each, by the numeric gate's own
tolerance and guards.

A `Gated` device whose workers are asked by `benchmarks/gates/random_problems.py`. The gate chooses
problems by a kernel's tiles; here operands lie as the problem says: at a multiple of its bytes and
of no more, packed or with gaps, and between NaN. `check` runs on any device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hgemm_packs.generator.core.spec import Job
from hgemm_packs.generator.devices.gated import Gated
from hgemm_packs.generator.families.computed import GATED
from hgemm_packs.generator.gates.checker import Checker, Launch, Numeric, make_guarded_place
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.operands import lead_of
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import Problem, columns_of

if TYPE_CHECKING:
    from hgemm_packs._C import Kernel

#: Elements of NaN before and behind an operand: a unit of 16 bytes and more.
FENCE = 64


def lay_out(values: torch.Tensor, transposed: bool, base: int, packed: bool) -> torch.Tensor:
    """`values` [rows, columns] stored as a problem with that base and packing has an operand."""
    rows, columns = values.shape
    outer, inner = (columns, rows) if transposed else (rows, columns)
    lead, start = lead_of(inner, base, packed), FENCE + base // 2 % 8
    size = start + outer * lead + FENCE
    memory = torch.full((size,), float("nan"), dtype=values.dtype, device=values.device)
    stored = memory.as_strided((outer, inner), (lead, 1), start)
    return (stored.t() if transposed else stored).copy_(values)


def check(
    entry: KernelEntry, launch: Launch, problem: Problem, device: torch.device, seed: int
) -> Numeric:
    """Launch once into a C that is NaN between guards. Raises NumericError."""
    run, layout = Checker(entry, launch, device, seed), problem.layout
    # fp16 holds the product of two gated sums of this size.
    scale = 2.0 ** -max(0, problem.k.bit_length() // 2 - 2) if entry.epilogue == GATED else 1.0
    values = run.normal(problem.m, problem.k) * scale, run.normal(problem.k, problem.n)
    a, b = (
        lay_out(each, layout[place] == "t", problem.base[place], problem.packed)
        for place, each in enumerate(values)
    )
    run.keep(a, b)
    columns = columns_of(problem.n, problem.epilogue)
    into = make_guarded_place(problem.m, columns, run.dtype, device, problem.alignments[2])
    run.product("drawn", a, b, into=into)
    return run.settle()


#: That an allocator may hold: sizes come once here.
MOST_BYTES = 16 << 30


class Drawn(Gated):
    """Answers as `Gated` does, of the one problem of a job."""

    def _check(self, record: KernelEntry, kernel: Kernel, job: Job) -> Numeric:
        if job.problem is None:
            raise ValueError("a drawn launch needs a problem")
        if torch.cuda.memory_reserved(self.index) > MOST_BYTES:
            torch.cuda.empty_cache()
        arm = KernelArm(kernel, record.epilogue)
        return check(record, arm, job.problem, self._place, job.seed)


def make(index: int = 0) -> Drawn:
    """The device of a worker; see `gpu.make`."""
    return Drawn(index if torch.cuda.device_count() > 1 else 0)
