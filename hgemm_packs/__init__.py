"""Half-precision matmul faster than cuBLAS, shipped as data packs. Public names only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import dispatch, launcher
from .launcher import counters, matmul

if TYPE_CHECKING:
    from .distribution import packs
    from .report import explain

__all__ = ["counters", "explain", "matmul", "packs"]

launcher.on_first_use(dispatch.start)


def __getattr__(name: str) -> Any:
    # These are for people: their imports must not slow the import of matmul down.
    if name == "explain":
        from .report import explain

        return explain
    if name == "packs":
        from importlib import import_module

        return import_module(".distribution.packs", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
