"""Numbers that a kernel of groups finds in memory: where groups end, and the words of shared memory
that its own threads stored.

Kept by `machine` for a family whose tiles follow from them. Threads run block by block in the order
of the program, so that what is stored before a meeting is there behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program import warps
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.registers import (
    Frame,
    Reader,
    Threads,
    adder,
    reader,
)
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

WORD: Final = 4  # bytes
WORDS: Final = 1 << 16  # of an array in shared memory, none of which is larger than 227 KiB
ARRAYS: Final = 8
_TYPES: Final = ("b32", "u32", "s32")
_EXCHANGES: Final[Mapping[tuple[str, ...], Callable[[Instruction], Reader]]] = {
    ("shfl", "sync", "up", "b32"): warps.shuffle,
    ("vote", "sync", "ballot", "b32"): warps.vote,
    ("redux", "sync", "add", "s32"): warps.total,
}


def is_kept(ins: Instruction) -> bool:
    """Whether the result of an instruction is a number that a memory has, or made of such."""
    return ins.opcode in _EXCHANGES or ins.opcode == ("popc", "b32") or is_load(ins)


def is_load(ins: Instruction) -> bool:
    """Whether an instruction loads an end, or a word of shared memory."""
    spaces = ("global", "shared")
    of_words = ins.opcode[-1] in _TYPES and len(ins.opcode) == 3
    return ins.opcode[0] == "ld" and of_words and ins.opcode[1] in spaces


def stores(ins: Instruction) -> bool:
    """Whether an instruction stores words in the shared memory of its CTA."""
    return ins.opcode[:2] == ("st", "shared") and ins.opcode[-1] in _TYPES


def watched(ins: Instruction) -> Iterable[Operand]:
    """Operands that say what is stored, and where."""
    return ins.operands if stores(ins) else ()


class Memory:
    """`unwritten`: loads of words that no thread has stored, and of ends that there are none of."""

    def __init__(self) -> None:
        self.unwritten: set[int] = set()
        self._threads = Threads(0, {}, {}, np.arange(0), np.arange(0))
        self._words = np.zeros(0, np.int32)
        self._state = np.zeros(0, np.uint8)  # 0 never stored, 1 a number, 2 what is not known

    def begin(self, threads: Threads) -> None:
        """Forget all: other threads run."""
        self._threads = threads
        ctas = int(threads.cta[-1]) + 1 if threads.total else 0
        self._words = np.zeros(ctas * ARRAYS * WORDS, np.int32)
        self._state = np.zeros(ctas * ARRAYS * WORDS, np.uint8)

    def maker(self, ins: Instruction) -> Reader:
        """What makes the result of an instruction that is kept."""
        if ins.opcode[0] == "popc":
            return _bits(ins)
        if ins.opcode[0] != "ld":
            return _EXCHANGES[ins.opcode](ins)
        address_of = adder(ins.operands[1])
        find = self._ends if ins.opcode[1] == "global" else self._shared

        def load(frame: Frame) -> Array | None:
            address = address_of(frame)
            if address is None:
                return None
            return find(ins, frame.numbers, np.broadcast_to(address, frame.numbers.shape))

        return load

    def store(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Keep what threads store."""
        address = frame.sum(ins.operands[0])
        if address is None:
            return
        stored = ins.operands[1]
        parts: Sequence[Operand] = stored.parts if stored.kind == "vector" else (stored,)
        for i, part in enumerate(parts):
            value = reader(part, np.int32)(frame)
            at = self._at(who, np.broadcast_to(address + i * WORD, who.shape))
            self._state[at] = 2 if value is None else 1
            self._words[at] = 0 if value is None else value

    def _at(self, who: Array, address: Array) -> Array:
        """Where words lie: of the arrays of the two ways that a machine lays them apart."""
        array = (address >> 40) + (address >> 20 & 0xFFFFF)
        place = self._threads.cta[who] * ARRAYS + np.minimum(array, ARRAYS - 1)
        found: Array = place * WORDS + (address & 0xFFFFF) // WORD % WORDS
        return found

    def _shared(self, ins: Instruction, who: Array, address: Array) -> Array | None:
        at = self._at(who, address)
        state = self._state[at]
        if (state == 0).any():
            self.unwritten.add(ins.index)
        found: Array = self._words[at]
        return None if (state == 2).any() else found

    def _ends(self, ins: Instruction, who: Array, address: Array) -> Array | None:
        ends, bases = self._threads.ends, self._threads.ends_at
        if ends is None or bases is None:
            return None
        launch = self._threads.launch[who]
        index = (address - bases[launch]) // WORD
        inside = (index >= 0) & (index < ends.shape[1])
        if not inside.all():
            self.unwritten.add(ins.index)
        found: Array = ends[launch, np.where(inside, index, 0)]
        return found


def _bits(ins: Instruction) -> Reader:
    value_of = reader(ins.operands[1], np.uint32)

    def count(frame: Frame) -> Array | None:
        value = value_of(frame)
        return None if value is None else np.bitwise_count(value).astype(np.int32)

    return count
