"""Tells watchers of a run of the instructions that each is there for.

Made by `counts` for a run of whole clusters without a GPU, which has several watchers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.machine import Watcher
from hgemm_packs.generator.gates.coverage.program.registers import Frame
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction


@dataclass(slots=True)
class Tell:
    """A watcher that tells others: `watchers` has what says of which instructions, and each."""

    watchers: Sequence[tuple[Callable[[Instruction], object], Watcher]]
    told: dict[int, list[Watcher]] = field(default_factory=dict)  # by instruction

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Tell those who are there for `ins` that the threads `who` run it."""
        if ins.index not in self.told:
            self.told[ins.index] = [watcher for asks, watcher in self.watchers if asks(ins)]
        for watcher in self.told[ins.index]:
            watcher(ins, who, frame)
