"""What an isolated process does on the GPU with a candidate: the numeric and the state gate, and
measuring.

`evaluate` and the red-team run send these functions to an `isolation.Worker`. Answers are plain
values, as JSON carries them; a candidate that lost the context is an answer like any other, and the
caller ends the process after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from hgemm_packs import launcher
from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile.candidate import CandidateError, entry
from hgemm_packs.generator.core.spec import (
    PROTOCOLS,
    CompiledKernel,
    DeviceFacts,
    DeviceLost,
    Job,
    Status,
)
from hgemm_packs.generator.devices.gpu import GpuDevice
from hgemm_packs.generator.gates import isolation, numeric, pack_gate
from hgemm_packs.generator.gates.sizes import Shape
from hgemm_packs.generator.gates.state import gate as state
from hgemm_packs.problem import Problem

Answer = dict[str, Any]


@cache
def _device(index: int) -> GpuDevice:
    return GpuDevice(index)


def warm_up(index: int) -> str:
    """Create the context and what the gates use of torch; the device's name."""
    ones = torch.ones((64, 64), dtype=torch.float64, device=torch.device("cuda", index))
    torch.cuda.synchronize(index)
    return f"{launcher.device_info(index).name}, {float((ones @ ones).sum()):.0f}"


def _answer(gate: str, status: Status, detail: str = "", **evidence: Any) -> Answer:
    return {"gate": gate, "status": status.value, "detail": detail[:2000], "evidence": evidence}


def state_gate(kernel: CompiledKernel, index: int, seed: int) -> Answer:
    """Verdict of the state gate; a fault of memory is one of it and costs the process its
    context."""
    try:
        record = entry(kernel.fields, kernel.cubin)
        kept = state.check_kernel(record, launcher.load(index, record, kernel.cubin), index, seed)
    except numeric.NumericError as error:
        return _answer(state.GATE, Status.NUMERIC, str(error), seed=seed)
    except CandidateError as error:
        return _answer("record", Status.PARSE, str(error))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError) as error:
        return _answer(isolation.GATE, Status.LAUNCH, str(error), seed=seed)
    return _answer(state.GATE, Status.OK, seed=seed, in_a_row=kept.launches_in_a_row)


def numeric_gate(
    kernel: CompiledKernel,
    index: int,
    seed: int,
    planned: Sequence[Shape] = (),
    large: Sequence[Shape] = (),
) -> Answer:
    """Verdict of the numeric gate of what the kernel runs (products, groups or batches), or of the
    isolation gate where the driver refuses the kernel or the kernel loses the context. `planned`
    and `large` as the size gate has them."""
    try:
        record = entry(kernel.fields, kernel.cubin)
        loaded = launcher.load(index, record, kernel.cubin)
        sm_count = launcher.device_info(index).sm_count
        place = torch.device("cuda", index)
        found = pack_gate.check(record, loaded, place, sm_count, seed, planned, large)
    except numeric.NumericError as error:
        return _answer("numeric", Status.NUMERIC, str(error), seed=seed)
    except CandidateError as error:
        return _answer("record", Status.PARSE, str(error))
    except torch.OutOfMemoryError:
        raise
    except (PackError, RuntimeError, ValueError) as error:
        return _answer(isolation.GATE, Status.LAUNCH, str(error), seed=seed)
    return _answer(
        "numeric",
        Status.OK,
        seed=seed,
        max_rel_err=found.max_rel_err,
        shapes_tested=found.shapes_tested,
    )


def ceilings(index: int, seed: int) -> Answer:
    """The device's facts, its ceilings measured."""
    device = _device(index)
    device.run(Job("ceilings", None, (), seed))
    facts = device.facts
    return {name: getattr(facts, name) for name in DeviceFacts.__slots__}


def noise(problem: Problem, index: int, seed: int) -> Answer:
    """Torch against itself: (ratio, lower, upper) by protocol. Raises RuntimeError where the job
    failed."""
    reply = _device(index).run(Job("noise", problem, (), seed))
    if "failed" in reply.evidence:
        raise RuntimeError(str(reply.evidence["failed"]))
    return {protocol: list(reply.evidence[protocol]) for protocol in PROTOCOLS}


def measure(kind: str, kernel: CompiledKernel, problem: Problem, index: int, seed: int) -> Answer:
    """A race, finals or confirm job of one kernel: its samples and the baselines', us by
    protocol."""
    try:
        reply = _device(index).run(Job(kind, problem, (kernel,), seed))
    except DeviceLost as error:
        return _answer(isolation.GATE, Status.LAUNCH, str(error), seed=seed)
    result = reply.results[kernel.id]
    gate = "numeric" if result.status is Status.NUMERIC else "timing"
    samples = {name: list(each) for name, each in result.samples.items()}
    baselines = {
        arm: {name: list(each) for name, each in protocols.items()}
        for arm, protocols in reply.baselines.items()
    }
    return _answer(
        gate, result.status, result.detail, seed=seed, samples=samples, baselines=baselines
    )
