"""A GPU device on the CPU: the stand-in driver computes, a table says how long it took."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hgemm_packs import report
from hgemm_packs.generator.core.spec import CompiledKernel, Job, Reply, Status
from hgemm_packs.generator.devices import gpu
from hgemm_packs.generator.measure import admission, contest, screening
from hgemm_packs.measure import baselines, timing
from hgemm_packs.measure.operands import Operands, operands
from hgemm_packs.measure.telemetry import Conditions
from hgemm_packs.problem import Problem
from tests import fake_driver

L2 = 4 << 10  # bytes: the stand-in driver computes slowly


def kernel(
    param_layout: str, layout: str = "nt", cubin: bytes | None = None, **changes: Any
) -> CompiledKernel:
    """A kernel that the stand-in driver runs; `changes` replace manifest fields."""
    cubin = cubin or fake_driver.image("kernel", param_layout, layout)
    e = fake_driver.entry(param_layout, layout, cubin=cubin)
    ranges = {
        name: {"min": r.min, "max": r.max, "multiple_of": r.multiple_of}
        for name, r in (("m", e.m), ("n", e.n), ("k", e.k))
    }
    maps = [
        {
            **{f: getattr(s, f) for f in ("operand", "swizzle", "row_group", "l2_promotion")},
            "box": list(s.box),
        }
        for s in e.tma
    ]
    same = (
        *("id", "name", "symbol", "family", "genome", "param_layout", "block", "smem_bytes"),
        *("regs", "workspace_bytes", "dtype", "out_dtype", "acc", "layout", "epilogue"),
        "deterministic",
    )
    fields = {
        **{name: getattr(e, name) for name in same},
        "param_sizes": list(e.param_sizes),
        "cluster": list(e.cluster),
        "grid": {"tile_m": 64, "tile_n": 32, "persistent": False, "slices": e.grid.slices},
        "tma": maps,
        "align": {"a": 16, "b": 16, "c": 16},
        "dims": ranges,
    }
    if e.cooperative:
        fields["cooperative"] = True
    return CompiledKernel({**fields, **changes}, cubin)


class Clock:
    """How long an arm takes: `us` by kernel id, behind another kernel by that and " behind", or
    "torch" and any other arm given by hand."""

    def __init__(self) -> None:
        self.us: dict[Any, float] = {}
        self.noise = 0.0
        self.captured: list[tuple[str, int, int]] = []  # arm, sets, calls of each graph
        self.device: gpu.GpuDevice | None = None
        self._random = random.Random(0)

    def name(self, arm: Callable[..., object]) -> Any:
        loaded = dict(self.device._kernels) if self.device else {}
        if self.device:
            loaded |= {f"{id_} behind": one for id_, one in self.device._dependent.items()}
        found = [id_ for id_, one in loaded.items() if one.arm is arm]
        return found[0] if found else "torch" if arm is timing.torch_mm else arm

    def of(self, arm: Callable[..., object]) -> float:
        return self.us[self.name(arm)] * self._random.gauss(1.0, self.noise)


def _replays(clock: Clock) -> tuple[type, type]:
    class Replay:
        """Computes every set when queued, as a graph does."""

        def __init__(self, arm: Any, sets: Sequence[Operands], calls: int) -> None:
            self.arm, self.sets = arm, sets
            clock.captured.append((clock.name(arm), len(sets), calls))

        def queue(self) -> None:
            for one in self.sets:
                self.arm(one.a, one.b, one.c)
            self._us = clock.of(self.arm)

        def has_started(self) -> bool:
            return True

        def us(self) -> float:
            return self._us

        def free(self) -> None:
            self.sets = ()

    class Single(Replay):
        def __init__(self, arm: Any, one: Operands) -> None:
            self.arm, self.sets = arm, (one,)

    return Replay, Single


def install(patch: pytest.MonkeyPatch, library: Path) -> SimpleNamespace:
    """Put the stand-ins in place; returns the device, its clock, the driver's control and `alive`,
    which a test takes away by setting `lost`."""
    started = fake_driver.start(patch, library)
    clock = Clock()
    machine = SimpleNamespace(clock=clock, control=started.control, lost="", mhz=[1980])

    @contextlib.contextmanager
    def active() -> Iterator[None]:
        yield

    def read() -> Conditions:
        mhz = machine.mhz.pop(0) if len(machine.mhz) > 1 else machine.mhz[0]
        return Conditions(mhz, 3201, 500.0, 40, 0)

    def synchronize(device: object = None) -> None:
        if machine.lost:
            raise RuntimeError(machine.lost)

    at = SimpleNamespace(
        active=active,
        l2_bytes=L2,
        flush=lambda: None,
        stream=SimpleNamespace(synchronize=synchronize),
        telemetry=SimpleNamespace(read=read, top_sm_mhz=lambda: 1980.0),
    )
    replay, single = _replays(clock)
    for module in (timing, screening, admission, contest, gpu):
        for name, value in (
            ("stage", lambda device: at),
            ("Replay", replay),
            ("Single", single),
            ("operands", lambda problem, device, **kw: operands(problem, "cpu", **kw)),
        ):
            if hasattr(module, name):
                patch.setattr(module, name, value)
    patch.setattr(timing, "_per_call_us", lambda arm, one, at: clock.of(arm))
    patch.setattr(report, "runtime_versions", lambda index: {"driver": "1.2"})
    patch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    patch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    patch.setattr(torch.cuda, "synchronize", synchronize)
    properties = SimpleNamespace(uuid="made-up", total_memory=1 << 30)
    patch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    machine.device = clock.device = gpu.make(0)
    times = ("torch", 10.0), (tuned_hot, 9.5), (tuned_cold, 9.4)
    clock.us |= dict(times) | dict(zip((one.id for one in GOOD), (8.0, 9.0, 11.0), strict=True))
    tuned = baselines.TunedCublasLt(tuned_hot, tuned_cold, 7)
    patch.setattr(baselines, "best_cublaslt", lambda *_, **__: tuned)
    return machine


PROBLEM = Problem(24, 16, 32, "nt", "f16")
GOOD = [kernel(params) for params in ("ptr_v1", "tma2_v1", "tma3_v1")]


def tuned_hot(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b, out=c)


def tuned_cold(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b, out=c)


def run(machine: SimpleNamespace, kind: str, *kernels: CompiledKernel, **changes: Any) -> Reply:
    """Run one job; `changes` replace the problem and the seed."""
    problem = changes.get("problem", PROBLEM)
    reply: Reply = machine.device.run(Job(kind, problem, kernels, changes.get("seed", 5)))
    return reply


def words(reply: Reply) -> list[tuple[Status, str]]:
    return [(result.status, result.detail) for result in reply.results.values()]
