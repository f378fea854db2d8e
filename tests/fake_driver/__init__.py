"""The whole launcher on CPU tensors: compiles the stand-in driver beside this file, starts a fresh
copy of the extension on it, and makes kernels whose "cubins" it understands.

A copy of the extension has its own table, counters and devices, so tests do not see each other.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from hgemm_packs import dispatch, launcher, select
from hgemm_packs.generator.devices.fake import fake_cubin
from hgemm_packs.pack.manifest import (
    ADDING,
    MAPPED,
    OF_BATCH,
    PARAM_LAYOUTS,
    WITH_WORKSPACE,
    DimRange,
    GridRule,
    KernelEntry,
    Numerics,
    Row,
    TensorMapSpec,
    Timing,
)
from hgemm_packs.problem import Problem, Reason
from hgemm_packs.select import Selection

HERE = Path(__file__).parent
DL_CPU = 1
#: Of a kernel with a workspace: slices of K and bytes of it for each CTA.
SLICES, PARTIALS = 3, 8192
#: The id, for `set_stream`, of the stream whose handle is NULL.
LEGACY = 2**64 - 2


class Control(ctypes.Structure):
    """fake_control of fake_cuda.h."""

    _fields_: ClassVar[list[tuple[str, Any]]] = [
        (name, ctypes.c_int)
        for name in (
            *("capturing", "clusters", "fail_launches", "noop", "capture_mode", "unrelaxed_loads"),
            *("dirty", "fail_objects", "fail_edges"),
            *("loads", "launches", "pushes", "encodes", "asked", "grid", "block", "smem_bytes"),
            *("cluster", "pdl", "cooperative"),
        )
    ] + [
        ("stream", ctypes.c_void_p),
        ("capture_id", ctypes.c_uint64),
        ("parts", ctypes.c_void_p),
        ("nodes", ctypes.c_void_p * 2),
        ("node_count", ctypes.c_uint64),
        ("loaded", ctypes.c_void_p),
        ("host_callback", ctypes.c_void_p),
    ]


class Exchange(ctypes.Structure):
    """dl_exchange of dlpack.h."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in ("version", "previous", "allocate", "from_object", "to_object", "view")
    ] + [("current_stream", ctypes.c_void_p)]


_CAPSULE = b"dlpack_exchange_api"
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


_tables: list[Exchange] = []  # an extension calls its table for as long as the process lives


def streams_of(library: ctypes.CDLL) -> Any:
    """torch's exchange table with the stand-in's streams, as a capsule."""
    real = _pointer(torch.Tensor.__dlpack_c_exchange_api__, _CAPSULE)
    table = Exchange.from_buffer_copy(Exchange.from_address(real))
    table.current_stream = ctypes.cast(library.fake_current_stream, ctypes.c_void_p).value
    _tables.append(table)
    return _capsule(ctypes.addressof(table), _CAPSULE, None)


def compile_driver(target: Path, *flags: str) -> Path:
    """Compile the stand-in driver with the machine's C compiler."""
    sources = [str(HERE / "fake_cuda.c"), str(HERE / "fake_kernel.c")]
    options = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", *flags]
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, *options, *_added_flags(), *sources, "-lm", "-lpthread", "-o", str(target)],
        check=True,
    )
    return target


def _added_flags() -> list[str]:
    """What `make sanitize` has every compiler told."""
    return shlex.split(os.environ.get("CFLAGS", ""))


def fresh_extension() -> Any:
    """Another instance of the C extension, with state of its own."""
    spec = importlib.util.find_spec("hgemm_packs._C")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def image(
    symbol: str, param_layout: str, layout: str = "nn", dtype: str = "f16", **changes: Any
) -> bytes:
    """A cubin for the stand-in; `changes` make it disagree: threads, static_smem, sizes. With an
    addend it adds a bias, or what `epilogue` says."""
    sizes = changes.get("sizes", PARAM_LAYOUTS[param_layout])
    numbers = [changes.get("threads", 1024), changes.get("static_smem", 0), len(sizes), *sizes]
    epilogue = changes.get("epilogue") or _epilogue_of(param_layout)
    code = f"fake {symbol} {layout} {dtype} {epilogue} {' '.join(map(str, numbers))}\0"
    return fake_cubin(code.encode())


def _epilogue_of(param_layout: str) -> str:
    if param_layout not in ADDING:
        return "none"
    return "residual" if param_layout in OF_BATCH.values() else "bias"


def entry(
    param_layout: str,
    layout: str = "nn",
    dtype: str = "f16",
    cubin: bytes | None = None,
    **changes: Any,
) -> KernelEntry:
    """A kernel's launch record; `changes` replace fields."""
    epilogue = changes.setdefault("epilogue", _epilogue_of(param_layout))
    cubin = cubin or image("kernel", param_layout, layout, dtype, epilogue=epilogue)
    has_workspace = param_layout in WITH_WORKSPACE
    values: dict[str, Any] = {
        "id": hashlib.sha256(cubin).hexdigest(),
        "name": f"fake_{layout}_{param_layout}",
        "symbol": "kernel",
        "family": "fake",
        "genome": {},
        "offset": 0,
        "size": len(cubin),
        "param_layout": param_layout,
        "param_sizes": PARAM_LAYOUTS[param_layout],
        "block": 128,
        "cluster": (1, 1, 1),
        "grid": GridRule(64, 32, param_layout in OF_BATCH.values(), SLICES if has_workspace else 1),
        "smem_bytes": 65536,
        "regs": 64,
        "tma": tuple(TensorMapSpec(x, (64, 32), 128, 0, 128) for x in MAPPED[param_layout]),
        "workspace_bytes": PARTIALS if has_workspace else 0,
        "align": (16, 16, 16),
        "m": DimRange(1, 4096, 1),
        "n": DimRange(16, 4096, 16) if epilogue == "gated_silu" else DimRange(8, 4096, 8),
        "k": DimRange(8, 4096, 8),
        "dtype": dtype,
        "out_dtype": dtype,
        "acc": "f32",
        "layout": layout,
        "deterministic": True,
        "numerics": Numerics("float64", 1e-3, 1),
        "cooperative": has_workspace,
    }
    return KernelEntry(**values | changes)


@dataclass
class FakePack:
    """Answers image() as pack.Pack does; lies in no cache."""

    images: dict[str, bytes] = field(default_factory=dict)
    path: Path = Path("/nowhere/pack")

    def image(self, kernel: KernelEntry) -> memoryview:
        return memoryview(self.images[kernel.id])


class Started:
    """One started launcher: `matmul`, `linear`, the stand-in's `control`, and a policy that tests
    can set."""

    def __init__(self, library: Path, extension: Any) -> None:
        self.library = library
        self._library = ctypes.CDLL(str(library))
        self.control = Control.in_dll(self._library, "control")
        self.streams = streams_of(self._library)
        self.extension = extension
        self.matmul = extension.matmul
        self.linear = extension.linear
        self.pack = FakePack()
        self.kernels: dict[tuple[str, str, str], KernelEntry] = {}
        self.asked: list[Problem] = []
        self.modes: list[bool] = []  # of each question, whether it was the batch-invariant mode's
        self.behind: dict[tuple[str, str, str], KernelEntry] = {}
        #: Whether a problem's row names a kernel for dependent launches.
        self.dependent: Callable[[Problem], bool] = lambda problem: False

    def set_device(self, device: int) -> None:
        """Make a device's context current for this thread, or none with -1."""
        self._library.fake_set_device(device)

    def set_stream(self, stream: int) -> None:
        """The id of this thread's stream from now on."""
        self._library.fake_set_stream(ctypes.c_uint64(stream))

    def capture(self, number: int) -> None:
        """From now on every stream is under this capture, or under none with 0."""
        self.control.capturing, self.control.capture_id = int(number > 0), number
        self.control.node_count = 0

    def put_behind(self, *nodes: int | None) -> None:
        """Make the last launch of a capture depend on these, by edges of the kind that it has."""
        first, second = map(ctypes.c_void_p, [*nodes, None, None][:2])
        last = ctypes.c_void_p(self.control.nodes[0])
        self._library.fake_put_behind(last, first, second, ctypes.c_uint64(len(nodes)))

    def destroy(self, number: int) -> int:
        """Destroy the graph of a capture; how many objects that only it owned are gone with it."""
        return int(self._library.fake_destroy_graph(ctypes.c_uint64(number)))

    def current_device(self) -> int:
        """The device whose context is current for this thread, or -1."""
        return int(self._library.fake_get_device())

    def serve(
        self, param_layout: str, layout: str = "nn", dtype: str = "f16", **changes: Any
    ) -> None:
        """From now on problems of this layout and dtype are run by such a kernel."""
        kernel = self._entry(param_layout, layout, dtype, changes)
        kind = layout, dtype, kernel.epilogue
        self.kernels[kind] = self.behind[kind] = kernel

    def serve_behind(
        self, param_layout: str, layout: str = "nn", dtype: str = "f16", **changes: Any
    ) -> KernelEntry:
        """And by such a kernel behind our own ones in a graph, where `dependent` says so."""
        changes.setdefault("symbol", "behind")
        kernel = self._entry(param_layout, layout, dtype, changes)
        self.behind[layout, dtype, kernel.epilogue] = kernel
        return kernel

    def _entry(
        self, param_layout: str, layout: str, dtype: str, changes: dict[str, Any]
    ) -> KernelEntry:
        symbol = changes.get("symbol", "kernel")
        cubin = changes.pop("cubin", None) or image(
            symbol, param_layout, layout, dtype, epilogue=changes.get("epilogue")
        )
        kernel = entry(param_layout, layout, dtype, cubin, **changes)
        self.pack.images[kernel.id] = cubin
        return kernel

    def resolve(
        self,
        problem: Problem,
        device_index: int,
        *,
        invariant: bool = False,
        unmeasured: bool = False,
    ) -> Selection:
        """Stands in for select.resolve."""
        self.asked.append(problem)
        self.modes.append(invariant)
        kind = problem.layout, problem.dtype, problem.epilogue
        fuses = problem.epilogue != "none"
        kernel = None if invariant and fuses else self.kernels.get(kind)
        # A row of operands that are not packed and aligned names a kernel for such.
        takes_any = kernel is not None and min(kernel.align) < 16 and not invariant
        takes_any |= kernel is not None and kernel.is_batched and problem.align == 16
        unfit = None if takes_any else select._find_unfit(problem)
        if unfit is None and (kernel is None or kernel.admits(problem)):
            unfit = Reason("not_measured", "not served")
        if unfit is None and kernel is not None and (why := select.exclusion_reason(kernel)):
            unfit = Reason("quarantined", why)
        if unfit is not None or kernel is None:
            return Selection(None, None, None, (unfit,) if unfit else ())
        timing = Timing(1.0, 2.0, 2.0, 2.0, 1.9)
        behind = self.behind[kind] if self.dependent(problem) else None
        facts = (kernel.id, "fake", timing, timing, 9, "2026-01-01", behind and behind.id)
        if behind and select.exclusion_reason(behind, dependent=True):
            behind = None
        row = Row(*problem.key[:8], *facts, batches=problem.batches)
        return Selection(self.pack, kernel, row, (), behind)  # type: ignore[arg-type]

    def fallbacks(self) -> dict[str, int]:
        """Fallbacks by reason."""
        prefix = "fallback "
        counts = launcher.counters()
        return {k.removeprefix(prefix): n for k, n in counts.items() if k.startswith(prefix)}


def start(patch: pytest.MonkeyPatch, library: Path, *, driver: str = "") -> Started:
    """Start a fresh extension on `library` behind hgemm_packs.launcher, until `patch` is undone;
    `driver` is opened in its place."""
    extension = fresh_extension()
    patch.setattr(launcher, "_C", extension)
    patch.setattr(launcher, "matmul", extension.matmul)
    patch.setattr(launcher, "linear", extension.linear)
    patch.setattr(launcher, "addmm", extension.addmm)
    patch.setattr(launcher, "fused_linear", extension.fused_linear)
    patch.setattr(launcher, "grouped_answers", {})
    patch.setattr(dispatch, "_started", False)
    patch.setattr(dispatch, "_loaded", {})
    patch.setattr(dispatch, "kind", dispatch.kind)
    patch.setattr(dispatch, "_said", set())
    started = Started(library, extension)
    patch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", started.streams, raising=True)
    dispatch.start(driver or str(library), DL_CPU)
    ctypes.memset(ctypes.byref(started.control), 0, ctypes.sizeof(Control))
    started.control.clusters = 66
    started._library.fake_forget_graphs()
    started.set_device(0)
    started.set_stream(0)
    return started
