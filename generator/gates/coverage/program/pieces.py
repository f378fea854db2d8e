"""A kernel's basic blocks as `machine` runs them: what is computed in each, and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.registers import Frame, Reader
from hgemm_packs.generator.gates.coverage.program.widths import Loses
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction


@dataclass(slots=True)
class Step:
    """An instruction that is computed, or watched. `rule` makes the result of what `reads` find, or
    `make` makes it of the whole frame; `kind` is the type that a move has; what it `stores` is kept
    where a memory is."""

    ins: Instruction
    at: int
    result: str = ""
    rule: Callable[..., Array] | None = None
    reads: Sequence[Reader] = ()
    make: Callable[[Frame], Array | None] | None = None
    kind: type | None = None
    observed: bool = False
    loses: Loses | None = None
    watched: bool = False
    widens: bool = False
    stores: bool = False
    divides: bool = False


@dataclass(slots=True)
class Piece:
    """A basic block: what is to be done in it, and where it goes. `branch` is its last instruction
    where that may go elsewhere."""

    steps: list[Step]
    branch: Instruction | None
    target: int | None
    follows: int | None

    def leads_back(self, to: int) -> bool:
        """Whether the block ends by going back to `to` or before it, whatever holds."""
        always = self.branch is not None and not self.branch.guard
        return always and self.target is not None and self.target <= to
