"""Half-precision matmul faster than cuBLAS, shipped as data packs. Public names only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .launcher import counters, matmul

if TYPE_CHECKING:
    from .report import explain

__all__ = ["counters", "explain", "matmul"]


def __getattr__(name: str) -> Any:
    # explain is for people: its imports must not slow the import of matmul down.
    if name == "explain":
        from .report import explain

        return explain
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
