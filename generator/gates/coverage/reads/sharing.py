"""Who shares what in global memory: one CTA stores an element of C, of a kernel of no family one
thread, and one thread leaves a word of the workspace, which one other takes and makes absent again.

A watcher of the run in which CTAs that share a tile are followed together. Which of two CTAs, or of
two threads, stores last, and whether a word is absent before a second thread has seen it, no launch
says in advance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.launches import APART, BASES, BYTES
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.opcodes import access_width
from hgemm_packs.generator.gates.coverage.program.registers import Frame, Threads, adder
from hgemm_packs.generator.gates.coverage.program.slices import touched
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction
from hgemm_packs.generator.gates.dataflow.values import WORKSPACE, C

STORED: Final = "shared: two CTAs store an element of C"
STORED_TWICE: Final = "shared: two threads store an element of C"
TAKEN: Final = "shared: two threads take a word of the workspace"
CLEARED: Final = "shared: a thread stores a word of the workspace that others leave and take"
WORD: Final = 4  # bytes of the workspace that are told apart
_LAUNCH: Final = 40  # bits of an address in one piece of memory


@dataclass(slots=True)
class Sharing:
    """The watcher: for each kind of access, words by launch and who touched them. `by_thread` says
    that an element of C has one thread that stores it, not only one CTA."""

    threads: Threads
    by_thread: bool = False
    noted: dict[str, list[tuple[Array, Array]]] = field(default_factory=dict)

    def __call__(self, ins: Instruction, who: Array, frame: Frame) -> None:
        """Note what the threads `who` load from the workspace, or store there or in C."""
        operands = list(touched(ins)) if ins.opcode[0] in ("ld", "st") else []
        address = adder(operands[0])(frame) if operands else None
        if address is None:
            return
        address = np.broadcast_to(address, who.shape)
        for name in (WORKSPACE, C):
            there = np.flatnonzero(address >> APART == BASES[name])
            if not there.size or (name == C and ins.opcode[0] == "ld"):
                continue
            own = who[there]
            words = (address[there] & (1 << _LAUNCH) - 1) | self.threads.launch[own] << _LAUNCH
            unit = BYTES if name == C else WORD
            units = words[:, None] + np.arange(0, access_width(ins), unit)
            by = self.threads.cta[own] if name == C and not self.by_thread else own
            noted = self.noted.setdefault(name + ins.opcode[0], [])
            noted.append((units.ravel(), np.repeat(by, units.shape[1])))

    def _pairs(self, kind: str) -> tuple[Array, Array]:
        """Words and who touched them, each pair once, in the words' order."""
        if kind not in self.noted:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        words, by = (np.concatenate(each) for each in zip(*self.noted[kind], strict=True))
        order = np.lexsort((by, words))
        words, by = words[order], by[order]
        is_new = np.ones(words.shape, np.bool_)
        is_new[1:] = (words[1:] != words[:-1]) | (by[1:] != by[:-1])
        return words[is_new], by[is_new]

    def fault(self) -> str:
        """The first rule that is broken, in words; empty where none is."""
        words, by = self._pairs(C + "st")
        again = words[1:] == words[:-1]
        if again.any():
            if not self.by_thread:
                return STORED
            ctas = self.threads.cta[by]
            return STORED if (again & (ctas[1:] != ctas[:-1])).any() else STORED_TWICE
        taken, takers = self._pairs(WORKSPACE + "ld")
        if (taken[1:] == taken[:-1]).any():
            return TAKEN
        left, by = self._pairs(WORKSPACE + "st")
        at = np.minimum(np.searchsorted(taken, left), max(taken.size - 1, 0))
        own = np.zeros(left.shape, np.bool_)
        if taken.size:
            own = (taken[at] == left) & (takers[at] == by)
        others = left[~own]
        return CLEARED if (others[1:] == others[:-1]).any() else ""
