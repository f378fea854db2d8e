"""What an isolated process does on the GPU with a candidate: the numeric and the state gate, and
measuring.

`evaluate` and the red-team run send these functions to an `isolation.Worker`. Answers are plain
values, as JSON carries them; a candidate that lost the context is an answer like any other, and the
caller ends the process after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

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
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import Problem

if TYPE_CHECKING:
    from hgemm_packs._C import Kernel

Answer = dict[str, Any]
#: Of a process that waits for its next kernel.
MOST_KEPT_BYTES = 4 << 30


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


def state_gate(
    kernel: CompiledKernel, index: int, seed: int, planned: Sequence[Shape] = ()
) -> Answer:
    """Verdict of the state gate; a fault of memory is one of it and costs the process its context.
    `planned` are problems that the size gate asks for."""

    def ask(record: KernelEntry, loaded: Kernel) -> Answer:
        kept = state.check_kernel(record, loaded, index, seed, planned)
        return {"in_a_row": kept.launches_in_a_row}

    return _judged(state.GATE, kernel, index, seed, ask)


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

    def ask(record: KernelEntry, loaded: Kernel) -> Answer:
        sm_count = launcher.device_info(index).sm_count
        place = torch.device("cuda", index)
        found = pack_gate.check(record, loaded, place, sm_count, seed, planned, large)
        return {"max_rel_err": found.max_rel_err, "shapes_tested": found.shapes_tested}

    return _judged("numeric", kernel, index, seed, ask)


def large_gate(kernel: CompiledKernel, index: int, seed: int) -> Answer:
    """Verdict of the numeric gate on problems that fill a card."""

    def ask(record: KernelEntry, loaded: Kernel) -> Answer:
        pack_gate.check_large(record, loaded, torch.device("cuda", index), seed)
        return {}

    return _judged("numeric", kernel, index, seed, ask)


def _judged(
    gate: str,
    kernel: CompiledKernel,
    index: int,
    seed: int,
    ask: Callable[[KernelEntry, Kernel], Answer],
) -> Answer:
    """What `ask` finds of a loaded kernel, as the verdict of a gate."""
    try:
        record = entry(kernel.fields, kernel.cubin)
        found = ask(record, launcher.load(index, record, kernel.cubin))
    except numeric.NumericError as error:
        return _answer(gate, Status.NUMERIC, str(error), seed=seed)
    except CandidateError as error:
        return _answer("record", Status.PARSE, str(error))
    except torch.OutOfMemoryError:
        raise
    except (PackError, RuntimeError, ValueError) as error:
        return _answer(isolation.GATE, Status.LAUNCH, str(error), seed=seed)
    finally:
        _give_back()
    return _answer(gate, Status.OK, seed=seed, **found)


def _give_back() -> None:
    """Have torch keep no memory for later where it keeps much: other processes have need of it. A
    lost context has none to give."""
    if torch.cuda.memory_reserved() > MOST_KEPT_BYTES:
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()


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
