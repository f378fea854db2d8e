"""What free source may not make of several sizes, or of a size and a thread.

A number in which sizes and a thread both have a part is a sum: were bits of it shifted, cut or
divided off, what sizes add would carry into the thread's own part, for large ones alone. Several
sizes are multiplied and compared, each with a place in the grid; their sums, bits and remainders
come to something that no size alone comes to. Called by `steering`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hgemm_packs.generator.gates.coverage.program.origins import CHOOSING, TURN, Origins
from hgemm_packs.generator.gates.coverage.program.slices import results
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.values import TRACKED

_THREADS: Final = ("%tid", "%laneid")
WIDTHS: Final = "%n"  # of a grid, which follow from sizes
_QUOTIENTS: Final = frozenset(("div", "rem"))
#: Sums, products, and what chooses or hands on: all else works on bits.
_WHOLE: Final = frozenset(
    (
        *("add", "sub", "mul", "mad", "shl", "neg", "min", "max", "cvt", "cvta", "mov", "mapa"),
        *("selp", "setp", "set", "slct", "ld", "st", "shfl", "elect", "fma", "ex2", "rcp"),
    )
)
#: What bounds a place by a size adds nothing of that size.
_BOUNDS: Final = frozenset(("min", "max"))
_SUMS: Final = frozenset(("add", "sub", "mad", "or"))  # of bits that are free


@dataclass(frozen=True)
class Mixtures:
    """Instructions of one kernel by what takes part in their operands."""

    flow: Flow
    origins: Origins

    def faults(self) -> Iterator[tuple[str, Instruction]]:
        """Instructions that break these rules, each with the rule."""
        for ins in self.flow.kernel.instructions:
            if ins.opcode[-1] == "pred" or self._is_of_data(ins):
                continue
            if self._carries(ins):
                yield "carry: sizes and a thread both have a part", ins
            elif self._mixes(ins):
                yield "mixture: several sizes make a number", ins

    def _is_of_data(self, ins: Instruction) -> bool:
        return any(self.flow.value(x).kinds & TRACKED for x in ins.operands)

    def _carries(self, ins: Instruction) -> bool:
        """Whether bits are taken of what a thread and sizes have parts in, or by one of the other.
        What a thread and one place come to is looked up, as an element's row; all threads of a CTA
        go with its place. How often a thread's loop turns says nothing of where it stores."""
        if not _takes_bits(ins) or ins.opcode[0] == "or" or self._puts_above(ins):
            return False
        found = self.origins.of_all(ins)
        of_thread = any(x in self._threaded for op in ins.operands[1:] for x in op.registers())
        is_cut = ins.opcode[0] == "and" and found == {TURN}  # as stages of a ring are
        is_place = len(found) == 1 and all(x.startswith("%cta") for x in found)
        reaches = any(name in self._addressed for name in results(ins))
        return bool(found) and of_thread and reaches and not is_cut and not is_place

    def _puts_above(self, ins: Instruction) -> bool:
        """Whether an instruction puts a number above another that sizes do not decide."""
        if ins.opcode[0] != "bfi" or self.origins.of(ins.operands[2]):
            return False
        return sum(x.value for x in ins.operands[3:]) == int(ins.opcode[-1][1:])

    def _mixes(self, ins: Instruction) -> bool:
        name = ins.opcode[0]
        parts = [x for x in map(self.origins.of, ins.operands[1:]) if x and x != {TURN}]
        differ = len(set(parts)) > 1
        if _takes_bits(ins) and name not in _QUOTIENTS and len(self._sizes(ins)) > 1:
            return True
        if name in _SUMS:
            return differ and all(map(self._is_of_sizes, parts))
        if not differ or not _takes_bits(ins):
            return False
        if name in _QUOTIENTS:
            return self._is_of_sizes(parts[0])
        return name != "xor" or any(not x.startswith("%") for part in parts for x in part)

    def _is_of_sizes(self, names: frozenset[str]) -> bool:
        """Whether sizes, strides and widths of the grid alone decide a number."""
        known = {*self.flow.sizes, *self.flow.strides}
        return all(name in known or name.startswith(WIDTHS) for name in names)

    def _sizes(self, ins: Instruction) -> set[str]:
        """Sizes that the operands of an instruction have parts of."""
        return {*self.origins.weighed(ins, CHOOSING | _BOUNDS)} & self.flow.sizes.keys()

    @cached_property
    def _threaded(self) -> set[str]:
        """Registers that follow from a thread's number."""
        found: set[str] = set()
        goes_on = True
        while goes_on:
            goes_on = False
            for ins in self.flow.kernel.instructions:
                if any(map(self._names_a_thread, ins.operands[1:])) or any(
                    x in found for op in ins.operands[1:] for x in op.registers()
                ):
                    fresh = {*results(ins)} - found
                    found |= fresh
                    goes_on = goes_on or bool(fresh)
        return found

    @cached_property
    def _addressed(self) -> set[str]:
        """Registers that addresses are sums, multiples and parts of."""
        due = [
            name
            for ins in self.flow.kernel.instructions
            for operand in ins.operands
            if operand.kind == "address"
            for name in operand.registers()
        ]
        found = set(due)
        while due:
            for each in self.origins.made.get(due.pop(), ()):
                if each.opcode[0] not in ("setp", "set"):
                    fresh = {x for op in each.operands[1:] for x in op.registers()} - found
                    found |= fresh
                    due += fresh
        return found

    def _names_a_thread(self, operand: Operand) -> bool:
        return operand.kind == "special" and operand.name.startswith(_THREADS)


def _takes_bits(ins: Instruction) -> bool:
    """Whether an instruction takes a number apart: by its bits, or as a quotient or remainder."""
    name = ins.opcode[0]
    if name == "mov":
        return any(x.parts for x in ins.operands)
    if name in ("mul", "mad"):
        return "hi" in ins.opcode
    return bool(ins.operands[1:]) and name not in _WHOLE and ins.opcode[-1][1:].isdecimal()
