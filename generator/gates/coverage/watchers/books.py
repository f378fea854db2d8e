"""The bytes that each barrier is told to expect, and those that it gets.

Made by `counts` for a run of whole clusters without a GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.opcodes import access_width
from hgemm_packs.generator.gates.coverage.program.registers import Frame
from hgemm_packs.generator.gates.coverage.watchers.arrivals import Barrier, barrier_at
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction
from hgemm_packs.pack.manifest import MAPPED


def expects(ins: Instruction) -> bool:
    """Whether an instruction says how many bytes a barrier is to wait for."""
    return ins.opcode[0] == "mbarrier" and "expect_tx" in ins.opcode


@dataclass(slots=True)
class Books:
    """A watcher: bytes by barrier. A phase is counted by the times that the CTA which asks for a
    copy has said what its own barrier at that address expects."""

    fields: Mapping[str, Any]
    maps: Sequence[str]
    cta: Array
    together: int
    expected: Counter[tuple[Barrier, int]] = field(default_factory=Counter)
    brought: Counter[tuple[Barrier, int]] = field(default_factory=Counter)
    phases: Counter[Barrier] = field(default_factory=Counter)
    tellers: dict[Barrier, set[int]] = field(default_factory=dict)
    by_stores: set[Barrier] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Note what the threads `who` expect or bring."""
        known = self._expect(ins, who, frame) if expects(ins) else self._bring(ins, who, frame)
        if not known:
            self.unknown.append(f"a count that is not known in '{ins.text[:100]}'")

    def _expect(self, ins: Instruction, who: Array, frame: Frame) -> bool:
        at = next(i for i, each in enumerate(ins.operands) if each.kind == "address")
        address, count = frame.sum(ins.operands[at]), frame.value(ins.operands[at + 1], np.int32)
        if address is None or count is None:
            return False
        for thread, where, bytes_ in _each(who, address, count):
            barrier = barrier_at(int(self.cta[thread]), self.together, where)
            self.phases[barrier] += 1
            self.expected[barrier, self.phases[barrier]] += bytes_
            self.tellers.setdefault(barrier, set()).add(thread)
        return True

    def _bring(self, ins: Instruction, who: Array, frame: Frame) -> bool:
        addresses = [each for each in ins.operands if each.kind == "address"]
        address = frame.sum(addresses[-1])
        if address is None:
            return False
        if ins.opcode[0] != "cp":
            return self._store(ins, who, address)
        count = self.copied(ins, frame)
        mask = np.array([0], np.int64)
        if "multicast::cluster" in ins.opcode:
            found = frame.value(ins.operands[-1], np.int16)
            if found is None:
                return False
            mask = found.astype(np.int64) & 0xFFFF
        if count is None:
            return False
        for thread, where, bytes_, to in _each(who, address, count, mask):
            own = int(self.cta[thread])
            phase = self.phases[barrier_at(own, self.together, where)]
            if not to:
                self.brought[barrier_at(own, self.together, where), phase] += bytes_
                continue
            first = own - own % self.together
            for rank in (each for each in range(16) if to >> each & 1):
                if rank >= self.together:
                    return False
                self.brought[(first + rank, where), phase] += bytes_
        return True

    def _store(self, ins: Instruction, who: Array, address: Array) -> bool:
        width = access_width(ins)
        key = np.broadcast_to(address, who.shape).astype(np.int64) << 20 | self.cta[who]
        for each, times in zip(*np.unique(key, return_counts=True), strict=True):
            barrier = barrier_at(int(each) & (1 << 20) - 1, self.together, int(each) >> 20)
            self.by_stores.add(barrier)
            self.brought[barrier, 0] += width * int(times)
        return True

    def copied(self, ins: Instruction, frame: Frame) -> Array | None:
        """Bytes of a bulk copy: those of its map's box."""
        if "tensor" not in ins.opcode:
            return frame.value(ins.operands[2], np.int32)
        by_map = ins.operands[0 if "bulk_group" in ins.opcode else 1]
        source = frame.value(by_map.parts[0], np.int64)
        if source is None:
            return None
        boxes = [box_bytes(self.fields, i) for i in range(len(self.maps))]
        numbers = (source >> 40) - 1
        if ((numbers < 0) | (numbers >= len(boxes))).any():
            return None
        found: Array = np.array(boxes)[numbers]
        return found

    def differences(self) -> Iterator[tuple[int, str]]:
        """CTAs with a barrier that gets more or less than it expects, in some phase."""
        for barrier in sorted({each for each, _ in (*self.expected, *self.brought)}):
            ours, theirs = (
                {phase: bytes_ for (each, phase), bytes_ in book.items() if each == barrier}
                for book in (self.expected, self.brought)
            )
            if barrier in self.by_stores or len(self.tellers.get(barrier, ())) != 1:
                ours, theirs = {0: sum(ours.values())}, {0: sum(theirs.values())}
            for phase in sorted({*ours, *theirs}):
                wanted, came = ours.get(phase, 0), theirs.get(phase, 0)
                if wanted != came:
                    yield barrier[0], f"a barrier expects {wanted} and gets {came}"


def _each(who: Array, *values: Array) -> Iterator[tuple[int, ...]]:
    """Threads with the numbers that each has."""
    wide = [np.broadcast_to(each, who.shape).tolist() for each in values]
    return zip(who.tolist(), *wide, strict=True)


def box_bytes(fields: Mapping[str, Any], of_map: int) -> int:
    """Bytes that a copy by the map of this number brings; what lies outside a matrix comes as
    zeros and counts."""
    name = MAPPED[str(fields["param_layout"])][of_map]
    box = next(each["box"] for each in fields["tma"] if each["operand"] == name)
    return 2 * prod(int(side) for side in box)
