"""Whether lanes of a warp meet between what one stages in shared memory and another reads of it,
before they stage over what another may still read, and before one tells others of what all staged.

Made by `counts` for a run of whole clusters without a GPU. Addresses are known there, so that a
lane's own bytes are told from its neighbour's. A warp that runs as one is right without a meeting
on every GPU of today, and the tools that see races look at warps as wholes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import RANK_BIT, Array
from hgemm_packs.generator.gates.coverage.program.opcodes import access_width
from hgemm_packs.generator.gates.coverage.program.registers import Frame, Reader, adder
from hgemm_packs.generator.gates.coverage.program.slices import is_generic
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

UNSEEN: Final = "lanes: reads what another lane has staged since they met"
OVER: Final = "lanes: stages over what another lane has read since they met"
UNTOLD: Final = "lanes: tells of what another lane has staged since they met"
CTAS: Final = 8  # that are looked at: lanes of all do alike but where a place is named
CTAS_OF_A_STRANGER: Final = 48  # several of a problem are followed
UNIT: Final = 4  # bytes that are told apart
PLACES: Final = 1 << 22  # bytes of a CTA's arrays, as `counts` lays them out
WARP: Final = 32
LAST_LANE: Final = WARP - 1
EVERY: Final = WARP  # in place of a lane: what a warp reads or stages as one
ALL: Final = -1  # a mask of lanes: a meeting of some is none of a warp
_SHARED: Final = frozenset(("shared", "shared::cta"))
_ROWS: Final = {"x1": 8, "x2": 16, "x4": 32}
_ROW: Final = 16  # bytes of a row of a matrix
_NOTHING: Final = (Operand("number"),)


def watched(ins: Instruction) -> Iterable[Operand]:
    """Operands that say what a lane reads or stages."""
    if is_access(ins):
        return [each for each in ins.operands if each.kind == "address"][:1]
    if _is_of_warp(ins):
        return ins.operands
    return _NOTHING if _meets(ins) or _multiplies(ins) or _tells(ins) else ()


def _multiplies(ins: Instruction) -> bool:
    return ins.opcode[:2] == ("wgmma", "mma_async")


def _tells(ins: Instruction) -> bool:
    return ins.opcode[:2] == ("mbarrier", "arrive") and "expect_tx" not in ins.opcode


def is_access(ins: Instruction) -> bool:
    """Whether an instruction may read or stage something in shared memory of its own CTA."""
    if ins.opcode[0] in ("ld", "st", "ldmatrix", "stmatrix"):
        return not _SHARED.isdisjoint(ins.opcode) or is_generic(ins)
    return _copies(ins)


def _copies(ins: Instruction) -> bool:
    """Whether a lane copies some bytes by itself."""
    return ins.opcode[:2] == ("cp", "async") and ins.opcode[2] in ("ca", "cg")


def _stages(ins: Instruction) -> bool:
    return ins.opcode[0] in ("st", "stmatrix", "cp")


def _meets(ins: Instruction) -> bool:
    return ins.opcode[0] in ("bar", "barrier") and ins.opcode[1] != "cluster"


def _is_of_warp(ins: Instruction) -> bool:
    return ins.opcode[:2] == ("bar", "warp")


class Access(NamedTuple):
    """What an instruction does: `rows` of a matrix that a warp reads or stages as one, else 0, and
    the bytes of a lane."""

    address: Reader
    rows: int
    width: int
    stages: bool


def access_of(ins: Instruction) -> Access | None:
    if not is_access(ins):
        return None
    address = adder(next(each for each in ins.operands if each.kind == "address"))
    if "matrix" in ins.opcode[0]:
        rows = next((_ROWS[word] for word in ins.opcode if word in _ROWS), 8)
        return Access(address, rows, _ROW, _stages(ins))
    width = ins.operands[2].value if _copies(ins) else access_width(ins)
    return Access(address, 0, width, _stages(ins))


@dataclass(slots=True)
class Lanes:
    """A watcher. `lane`, `warp` and `cta` are each thread's, and `slot` is each CTA's, of those
    that are looked at, -1 of others; a warp's turn is how often its lanes have met. `filled` is the
    turn in which a warp's lanes last staged, `told` what a single one told others in that turn."""

    lane: Array
    warp: Array
    cta: Array
    slot: Array
    turn: Array = field(init=False)
    staged: Array = field(init=False)
    read: Array = field(init=False)
    kinds: dict[int, Access | None] = field(default_factory=dict)  # by instruction
    found: dict[int, str] = field(default_factory=dict)
    filled: Array = field(init=False)
    told: dict[int, Instruction] = field(default_factory=dict)  # by warp
    multiplied: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, lane: Array, cta: Array, named: Iterable[int] = (), most: int = CTAS) -> Lanes:
        """One that looks at the first `most` CTAs, and at as many of those at places that are
        named."""
        slots = np.full(int(cta.max()) + 1, -1, np.int64)
        looked = [*range(min(most, slots.size)), *itertools.islice(named, most)]
        for slot, each in enumerate(dict.fromkeys(looked)):
            slots[each] = slot
        return cls(lane, np.arange(lane.size) // WARP, cta, slots)

    def __post_init__(self) -> None:
        self.turn = np.ones(int(self.warp.max()) + 1, np.int64)
        self.filled = np.zeros(self.turn.shape, np.int64)
        ctas = int(self.slot.max()) + 1
        self.staged, self.read = (np.zeros(ctas * PLACES // UNIT, np.int64) for _ in range(2))

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Note what the threads `who` read or stage."""
        if _meets(ins):
            self._meet(ins, who, frame)
            return
        if _multiplies(ins):
            self.multiplied.update(np.unique(self.warp[who]).tolist())
            return
        if _tells(ins):
            self._tell(ins, who)
            return
        if ins.index in self.found:
            return
        if ins.index not in self.kinds:
            self.kinds[ins.index] = access_of(ins)
        access = self.kinds[ins.index]
        address = None if access is None else access.address(frame)
        if access is None or address is None:
            return
        slot = self.slot[self.cta[who]]
        looked = (slot >= 0) & (address >> RANK_BIT == 0)
        lanes = self.lane[who]
        if access.rows:
            looked &= lanes < access.rows
            lanes = np.full(lanes.shape, EVERY)
        some = looked.nonzero()[0]
        if not some.size:
            return
        place = np.broadcast_to(address, who.shape)[some] % PLACES + slot[some] * PLACES
        units = (place[:, None] + np.arange(0, access.width, UNIT)).ravel() // UNIT
        each = max(1, access.width // UNIT)
        warps, lanes = (np.repeat(x, each) for x in (self.warp[who[some]], lanes[some]))
        # A warp's number is in it: another warp's bytes are no business of this rule.
        stamp = ((self.turn[warps] << 32 | warps) << 6) | lanes
        other, words = (self.read, OVER) if access.stages else (self.staged, UNSEEN)
        before = other[units]
        whose = before & 63
        alike = (before >> 6 == stamp >> 6) & ((whose != lanes) | (whose == EVERY))
        if alike.any():
            self.found[ins.index] = f"{words} in '{ins.text[:80]}'"
        (self.staged if access.stages else self.read)[units] = stamp
        if access.stages:
            self.filled[warps] = self.turn[warps]

    def _meet(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Begin a turn of the warps that meet; lanes by a mask that is not known are some."""
        if _is_of_warp(ins):
            mask = frame.value(ins.operands[0], np.int32)
            who = who[np.broadcast_to(False if mask is None else mask == ALL, who.shape)]
        self.turn[np.unique(self.warp[who])] += 1

    def _tell(self, ins: Instruction, who: Array) -> None:
        """Note warps of which one lane tells others, and lanes have staged since they met."""
        warps, lanes = np.unique(self.warp[who], return_counts=True)
        for warp in warps[(lanes == 1) & (self.filled[warps] == self.turn[warps])].tolist():
            self.told.setdefault(warp, ins)

    def faults(self) -> Iterator[str]:
        """Instructions that break a rule, in the order of the kernel."""
        for at in sorted(self.found):
            yield self.found[at]
        for warp in sorted(self.told.keys() - self.multiplied):  # what those tell of they have read
            yield f"{UNTOLD} in '{self.told[warp].text[:80]}'"
