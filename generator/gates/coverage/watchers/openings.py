"""Whether a thread that uses a barrier has met the thread that made it, since.

Made by `counts` for a run of whole clusters without a GPU. A barrier that is used before it has
been made loses the arrival, or lets its thread go early; on a GPU the maker is ahead nearly always.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.registers import Frame
from hgemm_packs.generator.gates.coverage.watchers.arrivals import (
    Barrier,
    barrier_at,
    brings,
    is_told,
)
from hgemm_packs.generator.gates.coverage.watchers.lanes import WARP
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

UNMET: Final = "arrivals: may not have been made yet: the barrier of"
NO_SUCH: Final = "arrivals: a CTA has 16 barriers to meet at, and another is named in"
CLUSTER: Final = 16  # in place of the number of a CTA's barrier
_NOTHING: Final = (Operand("number"),)


def watched(ins: Instruction) -> Sequence[Operand]:
    """Operands that say which barrier is made or used, or where threads meet."""
    if is_told(ins) or brings(ins):
        return ins.operands
    return (ins.operands or _NOTHING) if _meets(ins) else ()


def _meets(ins: Instruction) -> bool:
    return ins.opcode[0] in ("bar", "barrier") and ins.opcode[1] != "warp"


class _Made(NamedTuple):
    thread: int
    came: Array  # at each meeting, so often


class _Used(NamedTuple):
    thread: int
    met: Array
    ins: Instruction


@dataclass(slots=True)
class Openings:
    """A watcher. `cta` is each thread's; `together` of them are a cluster. `came` and `met` have
    how often a thread came to each of the CTA's meetings and to the cluster's, and how often it
    had by when it last waited there."""

    cta: Array
    together: int
    came: Array = field(init=False)
    met: Array = field(init=False)
    made: dict[Barrier, _Made] = field(default_factory=dict)
    used: dict[int, _Used] = field(default_factory=dict)  # first, by barrier and warp
    unknown: Instruction | None = None  # one with a number that is not known
    beyond: str = ""  # an instruction that names a barrier which is not there

    def __post_init__(self) -> None:
        self.came, self.met = (np.zeros((self.cta.size, CLUSTER + 1), np.int32) for _ in range(2))

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Note that the threads `who` meet, or make or use a barrier."""
        if _meets(ins):
            self._meet(ins, who, frame)
            return
        addresses = [each for each in ins.operands if each.kind == "address"]
        address = frame.sum(addresses[-1])
        if address is None:
            self.unknown = self.unknown or ins
            return
        key = np.broadcast_to(address, who.shape).astype(np.int64) << 20 | who // WARP
        each, first = np.unique(key, return_index=True)
        for one, thread in zip(each.tolist(), who[first].tolist(), strict=True):
            if "init" in ins.opcode:
                made = _Made(thread, self.came[thread].copy())
                self.made.setdefault(self._barrier(one, thread), made)
            elif one not in self.used:
                self.used[one] = _Used(thread, self.met[thread].copy(), ins)

    def _barrier(self, key: int, thread: int) -> Barrier:
        return barrier_at(int(self.cta[thread]), self.together, key >> 20)

    def _meet(self, ins: Instruction, who: Array, frame: Frame) -> None:
        of_cluster = "cluster" in ins.opcode
        number = np.array([CLUSTER]) if of_cluster else frame.value(ins.operands[0], np.int32)
        if number is None:
            self.unknown = self.unknown or ins
            return
        if not of_cluster and ((number < 0) | (number >= CLUSTER)).any():
            self.beyond = self.beyond or ins.text[:80]
            return
        number = np.broadcast_to(number, who.shape)
        if "wait" not in ins.opcode:
            self.came[who, number] += 1
        if "arrive" not in ins.opcode:
            self.met[who, number] = self.came[who, number]

    def faults(self) -> Iterator[str]:
        """A meeting that is none, or the first use of a barrier by a warp that has not met its
        maker."""
        if self.beyond:
            yield f"{NO_SUCH} '{self.beyond}'"
        if self.unknown:
            return
        for key, use in self.used.items():
            made = self.made.get(self._barrier(key, use.thread))
            if made is None or made.thread // WARP == use.thread // WARP:
                continue
            meeting = made.came + 1
            met = (use.met >= meeting) & (self.came[made.thread] >= meeting)
            if not (met if self.cta[made.thread] == self.cta[use.thread] else met[CLUSTER:]).any():
                yield f"{UNMET} '{use.ins.text[:80]}'"
                return
