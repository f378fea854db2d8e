"""Half-precision matmul faster than cuBLAS, shipped as data packs. Public names only.

`matmul` is torch.matmul with kernels from packs; `hgemm_packs.nn.Linear` is nn.Linear's forward
with the same kernels. `explain` and `counters` say what calls got, `disable`, `resume` and
`disabled` turn kernels off and on, `packs` fetches packs and chooses among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import dispatch, launcher
from .launcher import counters, matmul
from .settings import disable, disabled, resume
from .torch_compile.follow import follow_dynamo

if TYPE_CHECKING:
    from .distribution import packs
    from .report import explain

    __version__: str

__all__ = ["counters", "disable", "disabled", "explain", "matmul", "packs", "resume"]

launcher.on_first_use(dispatch.start)
follow_dynamo()


def __getattr__(name: str) -> Any:
    # These are for people: their imports must not slow the import of matmul down.
    if name == "explain":
        from .report import explain

        return explain
    if name == "packs":
        from importlib import import_module

        return import_module(".distribution.packs", __name__)
    if name == "__version__":
        from importlib.metadata import version

        return version("hgemm-packs")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
