"""Half-precision matmul faster than cuBLAS, shipped as data packs. Public names only.

`matmul` is torch.matmul with kernels from packs, `linear` a layer with bias, activation and
residual, `grouped_matmul` the product of a mixture of experts. `optimize` gives kernels to the
linear layers of a model, `restore` takes them back, `warmup` loads them before a CUDA graph is
captured. `enable`, `enabled` and `restore_torch` are for programs that call torch alone. `explain`
and `counters` say what calls got, `disable`, `resume` and `disabled` turn kernels off and on,
`options` makes products batch-invariant, `packs` fetches packs and chooses among them.
`record_shapes` and `tune` measure a program's own shapes on the GPU at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import dispatch, launcher
from .launcher import counters, matmul
from .settings import disable, disabled, options, resume
from .torch_compile.follow import follow_dynamo

if TYPE_CHECKING:
    from .distribution import packs
    from .nn.functional import linear
    from .nn.grouped import grouped_matmul
    from .nn.replace import optimize, restore
    from .nn.warm import warmup
    from .report import explain
    from .torch_compile.backend import compile_backend
    from .torch_hooks.program import enable, enabled, restore_torch
    from .tuning.recording import record_shapes
    from .tuning.tune import tune

    __version__: str

__all__ = [
    "compile_backend",
    "counters",
    "disable",
    "disabled",
    "enable",
    "enabled",
    "explain",
    "grouped_matmul",
    "linear",
    "matmul",
    "optimize",
    "options",
    "packs",
    "record_shapes",
    "restore",
    "restore_torch",
    "resume",
    "tune",
    "warmup",
]

launcher.on_first_use(dispatch.start)
follow_dynamo()


def __getattr__(name: str) -> Any:
    # Their imports, torch among them, must not slow the import of matmul down.
    if name == "explain":
        from .report import explain

        return explain
    if name == "linear":
        from .nn.functional import linear

        return linear
    if name == "grouped_matmul":
        from .nn.grouped import grouped_matmul

        return grouped_matmul
    if name in ("optimize", "restore"):
        from .nn import replace

        return getattr(replace, name)
    if name == "compile_backend":
        from .torch_compile.backend import compile_backend

        return compile_backend
    if name == "warmup":
        from .nn.warm import warmup

        return warmup
    if name in ("enable", "enabled", "restore_torch"):
        from .torch_hooks import program

        return getattr(program, name)
    if name == "record_shapes":
        from .tuning.recording import record_shapes

        return record_shapes
    if name == "tune":
        from .tuning.tune import tune

        return tune
    if name == "packs":
        from importlib import import_module

        return import_module(".distribution.packs", __name__)
    if name == "__version__":
        from importlib.metadata import version

        return version("hgemm-packs")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
