"""Whether as many threads arrive at a barrier as it was told to wait for, phase after phase.

Made by `counts` for a run of whole clusters without a GPU. A barrier that is told of more arrivals
than come makes a thread wait for the next phase's, and shows where a thread waits once more than
a test has tiles; one that is told of fewer lets threads go early, which shows under load alone. One
thread makes a barrier: what it is once it has been made twice is not defined (PTX, mbarrier.init).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import RANK_BIT, Array
from hgemm_packs.generator.gates.coverage.program.registers import Frame
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

TWICE: Final = "arrivals: a barrier is made {times} times"
UNEVEN: Final = "arrivals: a barrier that waits for {count} gets {came}"

Barrier = tuple[int, int]  # the CTA that it is of, and its address there


def is_told(ins: Instruction) -> bool:
    """Whether an instruction makes a barrier, arrives at it or waits for it."""
    words = ins.opcode
    if words[0] == "mbarrier":
        return words[1] in ("init", "arrive", "try_wait", "test_wait")
    return words[:4] == ("cp", "async", "mbarrier", "arrive")


def brings(ins: Instruction) -> bool:
    """Whether an instruction tells a barrier of the bytes that it brings."""
    return any(word.endswith("complete_tx::bytes") for word in ins.opcode)


def barrier_at(cta: int, together: int, address: int) -> Barrier:
    """Whose barrier an address is, as a thread of CTA `cta` has it; `together` are a cluster."""
    rank = address >> RANK_BIT
    if rank:
        cta = cta - cta % together + rank - 1
    return cta, address & (1 << RANK_BIT) - 1


@dataclass(slots=True)
class Arrivals:
    """A watcher. `cta` is each thread's; `together` of them are a cluster."""

    cta: Array
    together: int
    counts: dict[Barrier, int] = field(default_factory=dict)
    came: Counter[Barrier] = field(default_factory=Counter)
    awaited: set[Barrier] = field(default_factory=set)
    made: Counter[Barrier] = field(default_factory=Counter)
    unknown: Instruction | None = None  # one with a number that is not known

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Note what the threads `who` do to barriers."""
        if not is_told(ins):
            return
        at = next(i for i, each in enumerate(ins.operands) if each.kind == "address")
        address, words = frame.sum(ins.operands[at]), ins.opcode
        makes = "init" in words
        count = frame.value(ins.operands[at + 1], np.int32) if makes else None
        if address is None or (makes and count is None):
            self.unknown = self.unknown or ins
            return
        key = np.broadcast_to(address, who.shape).astype(np.int64) << 20 | self.cta[who]
        each, first, times = np.unique(key, return_index=True, return_counts=True)
        told = None if count is None else np.broadcast_to(count, who.shape)[first]
        for i, (one, often) in enumerate(zip(each.tolist(), times.tolist(), strict=True)):
            barrier = barrier_at(one & (1 << 20) - 1, self.together, one >> 20)
            if told is not None:
                self.counts[barrier] = int(told[i])
                self.made[barrier] += often
            elif "arrive" in words:
                self.came[barrier] += often
            else:
                self.awaited.add(barrier)

    def faults(self) -> Iterator[str]:
        """Barriers that are made twice, or waited for and whose last phase is not full."""
        if self.unknown:
            return
        times = max(self.made.values(), default=1)
        if times > 1:
            yield TWICE.format(times=times)
        for barrier in sorted(self.awaited & self.counts.keys()):
            count, came = self.counts[barrier], self.came[barrier]
            if came % max(count, 1):
                yield UNEVEN.format(count=count, came=came)
