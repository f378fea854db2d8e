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
from hgemm_packs.generator.gates.coverage.program.registers import Frame
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

ZERO: Final = 1  # zero, false, or the first of two smaller
OTHER: Final = 2  # of a remainder: that there is a quotient
#: Of these both are needed; of other arithmetic on sizes it is enough that a result is not always
#: zero.
BOTH: Final = frozenset(("setp", "min", "max", "and", "or", "xor", "not", "rem", "abs"))
_OF_TWO: Final = frozenset(("min", "max", "abs"))  # outcomes are those of what is compared


@dataclass(slots=True)
class Gaps:
    """The least distance of what a comparison compared, by launch; `order` has the launches in that
    in which they came to it."""

    least: Array
    order: list[int] = field(default_factory=list)

    def by_launch(self) -> dict[int, float]:
        """Launches with the distance in each."""
        return {each: float(self.least[each]) for each in self.order}


@dataclass(slots=True)
class Outcomes:
    """`seen`: instruction -> outcome -> the number of a CTA that had it. `gaps`, where they are
    asked for: those of each instruction that lacks an outcome."""

    seen: dict[int, dict[int, int]] = field(default_factory=dict)
    gaps: dict[int, Gaps] | None = None

    def observe(
        self, ins: Instruction, frame: Frame, values: Sequence[Array], result: Array
    ) -> None:
        """Note what an instruction made of its operands in the threads of a frame."""
        both = self.seen.setdefault(ins.index, {})
        if len(both) == 2:
            return
        for outcome in (ZERO, OTHER) if ins.opcode[0] in _OF_TWO else (OTHER, ZERO):
            if outcome in both:
                continue
            there = _had(ins, outcome, values, result)
            if there is not None:
                who = 0 if there.size == 1 else int(np.argmax(there))
                both[outcome] = int(frame.registers.threads.cta[frame.numbers[who]])
        if self.gaps is not None and len(both) < 2 and len(values) == 2:
            self._measure(self.gaps, ins.index, frame, values)

    def _measure(
        self, gaps: dict[int, Gaps], at: int, frame: Frame, values: Sequence[Array]
    ) -> None:
        launches = frame.launches()
        known = gaps.get(at)
        if known is None:
            count = int(frame.registers.threads.launch.max()) + 1
            known = gaps[at] = Gaps(np.full(count, np.inf))
        # Of addresses a float would keep the upper bits alone.
        kind = np.float64 if any(each.dtype.kind == "f" for each in values) else np.int64
        a, b = (each.astype(kind) for each in values)
        gap = (a - b).astype(np.float64)
        if gap.size == 1:
            least = np.repeat(gap, launches.numbers.size)
        else:
            gap = gap[launches.order]
            size = np.abs(gap)
            smallest = np.minimum.reduceat(size, launches.starts)
            there = (size == smallest[launches.of]).nonzero()[0]
            if not there.size:
                return  # no number
            # Of several that are as near the first counts, for their signs may differ.
            first = np.searchsorted(there, launches.starts)
            least = np.where(
                np.isnan(smallest), np.inf, gap[there[np.minimum(first, there.size - 1)]]
            )
        before = known.least[launches.numbers]
        nearer = np.abs(least) < np.abs(before)
        known.order += launches.numbers[nearer & np.isinf(before)].tolist()
        known.least[launches.numbers] = np.where(nearer, least, before)


@dataclass(slots=True)
class Apart:
    """In place of `Outcomes`: `had` says of each instruction which outcomes each of `count` classes
    of threads had, added up; `of` is the class of a thread. Nothing is ever all that can be seen of
    an instruction, so `seen` stays empty."""

    of: Array
    count: int
    had: dict[int, Array] = field(default_factory=dict)
    seen: dict[int, dict[int, int]] = field(default_factory=dict)
    gaps: dict[int, Gaps] | None = None

    def observe(
        self, ins: Instruction, frame: Frame, values: Sequence[Array], result: Array
    ) -> None:
        """Note what an instruction made of its operands in the threads of a frame."""
        had = self.had.setdefault(ins.index, np.zeros(self.count, np.uint8))
        of = self.of[frame.numbers]
        for outcome in (ZERO, OTHER):
            there = _had(ins, outcome, values, result)
            if there is not None:
                had[of[there] if there.size == of.size else of] |= outcome


def _had(ins: Instruction, outcome: int, values: Sequence[Array], result: Array) -> Array | None:
    """Where an instruction had an outcome, None where it had not."""
    if ins.opcode[0] in _OF_TWO:
        a, b = values if len(values) == 2 else (values[0], np.zeros_like(values[0]))
        if ins.opcode[-1][0] == "u":
            a, b = arithmetic.unsigned(a), arithmetic.unsigned(b)
        there = a < b if outcome == ZERO else a > b
        return there if there.any() else None
    if outcome == OTHER and ins.opcode[0] == "rem":
        a, b = (np.abs(each.astype(np.int64)) for each in values)
        there = np.broadcast_to(a >= b, result.shape)
        return there if there.any() else None
    count = np.count_nonzero(result)
    if outcome == ZERO:
        return result == 0 if count < result.size else None
    return result != 0 if count else None
