"""A run whose kernels all come from one pack: none is compiled, and none goes through the gates
again.

Made by the CLI for rows that a table has not. A pack has the record of the numeric gate of each of
its kernels, and `generate table` leaves out what lacks a clean record of the sanitizer, whoever
timed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Status, Verdict
from hgemm_packs.generator.gates import binary


class PackBuilder:
    """Hands out the kernels of a pack; every other choice is refused."""

    workers = 0

    def __init__(self, pack: Packed) -> None:
        self.toolchain: Mapping[str, Any] = {"pack": pack.pack.manifest_sha256}
        self._pack = pack
        self._names = {self.choice(name): name for name in pack.entries}

    def choice(self, name: str) -> Choice:
        """The choice that stands for a kernel of the pack."""
        entry = self._pack.entries[name]
        return Choice.of(entry.family, entry.genome)

    def kernel(self, name: str) -> CompiledKernel:
        """A kernel of the pack as a compiler hands it over."""
        return self._pack.built(name)

    def build(self, choices: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        refused = Verdict("build", Status.BUILD, "the pack has no such kernel")
        return {
            choice: self.kernel(self._names[choice]) if choice in self._names else refused
            for choice in choices
        }

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        return {kernel.id: binary.check(kernel.fields, kernel.cubin) for kernel in kernels}
