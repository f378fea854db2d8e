"""A builder in front of another: kernels that a pack here has are neither compiled nor proven anew.

Made by the CLI for `generate --like`. A kernel is taken only where the committed manifest says that
these sources build the choice to this very id; its hash is taken anew, and it passes the binary
gate. The committed table has what the other gates said of it. What is damaged or not there is
compiled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.compiler import Built
from hgemm_packs.generator.compile.cubin import CubinError
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Status, Verdict
from hgemm_packs.generator.gates import binary
from hgemm_packs.generator.gates.coverage import gate as coverage
from hgemm_packs.generator.workers.builder import Builder


@dataclass(frozen=True, slots=True)
class KnownKernel:
    """A kernel that a pack has: the id that it must have, what reads it from the pack, which may
    raise PackError, and what the numeric gate said of it."""

    id: str
    read: Callable[[], Built]
    proof: Verdict


class KnownBuilder:
    """Hands out `known` kernels and asks `builder` for all others. `taken` counts the former."""

    def __init__(self, builder: Builder, known: Mapping[Choice, KnownKernel]) -> None:
        self.workers = builder.workers
        self.toolchain: Mapping[str, Any] = builder.toolchain
        self.taken = 0
        self._builder, self._known = builder, known
        self._proven = {each.id for each in known.values()}

    def build(self, choices: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        here = {choice: self._take(choice) for choice in choices if choice in self._known}
        found = {choice: kernel for choice, kernel in here.items() if kernel is not None}
        self.taken += len(found)
        left = [choice for choice in choices if choice not in found]
        return {**found, **(self._builder.build(left) if left else {})}

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        """Verdicts of the gates that read code: on record for what a pack has."""
        on_record = Verdict(coverage.GATE, Status.OK, "on record: a pack has this kernel")
        found = {one.id: on_record for one in kernels if one.id in self._proven}
        left = [one for one in kernels if one.id not in found]
        return {**found, **(self._builder.inspect(left) if left else {})}

    def _take(self, choice: Choice) -> CompiledKernel | None:
        known = self._known[choice]
        try:
            built = known.read()
            if hashlib.sha256(built.cubin).hexdigest() != known.id:
                return None
            if not binary.check_image(built.entry_fields, built.cubin).passed:
                return None
            return replace(compiler.as_kernel(built), proof=known.proof)
        except (PackError, CubinError, OSError):
            return None
