"""A builder in front of another: kernels that a pack here has are compiled for gates alone.

Made by the CLI for `generate --like`. A kernel is taken only where the committed manifest says that
these sources build the choice to this very id; its hash is taken anew, and it passes the gate that
a compiled one passes. What is damaged or not there is compiled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.compiler import Built
from hgemm_packs.generator.compile.cubin import CubinError
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Verdict
from hgemm_packs.generator.gates import binary
from hgemm_packs.generator.workers.builder import Builder


@dataclass(frozen=True, slots=True)
class KnownKernel:
    """A kernel that a pack has: the id that it must have, and what reads it from the pack, which
    may raise PackError."""

    id: str
    read: Callable[[], Built]


class KnownBuilder:
    """Hands out `known` kernels and asks `builder` for all others. `taken` counts the former."""

    def __init__(self, builder: Builder, known: Mapping[Choice, KnownKernel]) -> None:
        self.workers = builder.workers
        self.toolchain: Mapping[str, Any] = builder.toolchain
        self.taken = 0
        self._builder, self._known = builder, known

    def build(self, choices: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        here = {choice: self._take(choice) for choice in choices if choice in self._known}
        found = {choice: kernel for choice, kernel in here.items() if kernel is not None}
        self.taken += len(found)
        left = [choice for choice in choices if choice not in found]
        return {**found, **(self._builder.build(left) if left else {})}

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        return self._builder.inspect(kernels)

    def _take(self, choice: Choice) -> CompiledKernel | None:
        known = self._known[choice]
        try:
            built = known.read()
            if hashlib.sha256(built.cubin).hexdigest() != known.id:
                return None
            if not binary.check_image(built.entry_fields, built.cubin).passed:
                return None
            return compiler.as_kernel(built)
        except (PackError, CubinError, OSError):
            return None
