"""Which outcomes each comparison had, and by how much it missed the other.

Kept by `machine` while it runs; read by `trial`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program import arithmetic
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

ZERO: Final = 1  # zero, false, or the first of two smaller
OTHER: Final = 2  # of a remainder: that there is a quotient


@dataclass(slots=True)
class Outcomes:
    """`seen`: instruction -> outcome -> the number of a launch that had it. `gaps`, where they are
    asked for: instruction -> launch -> the least distance of what was compared."""

    seen: dict[int, dict[int, int]] = field(default_factory=dict)
    gaps: dict[int, dict[int, float]] | None = None

    def observe(
        self, ins: Instruction, launch: Array, values: Sequence[Array], result: Array
    ) -> None:
        """Note what an instruction made of its operands, in threads of these launches."""
        both = self.seen.setdefault(ins.index, {})
        if len(both) == 2:
            return
        if ins.opcode[0] in ("min", "max", "abs"):
            a, b = values if len(values) == 2 else (values[0], np.zeros_like(values[0]))
            if ins.opcode[-1][0] == "u":
                a, b = arithmetic.unsigned(a), arithmetic.unsigned(b)
            outcomes = {ZERO: a < b, OTHER: a > b}
        elif ins.opcode[0] == "rem":
            a, b = (np.abs(each.astype(np.int64)) for each in values)
            outcomes = {ZERO: result == 0, OTHER: a >= b}
        else:
            outcomes = {OTHER: result != 0, ZERO: result == 0}
        for outcome, there in outcomes.items():
            if outcome not in both and there.any():
                both[outcome] = int(launch[0 if there.size == 1 else int(np.argmax(there))])
        if self.gaps is not None and len(both) < 2 and len(values) == 2:
            self._measure(self.gaps.setdefault(ins.index, {}), launch, values)

    def _measure(self, known: dict[int, float], launch: Array, values: Sequence[Array]) -> None:
        a, b = (each.astype(np.float64) for each in values)
        gap = np.broadcast_to(a - b, launch.shape)
        for each in np.unique(launch):
            here = gap[launch == each]
            least = float(here[np.argmin(np.abs(here))])
            if abs(least) < abs(known.get(int(each), np.inf)):
                known[int(each)] = least
