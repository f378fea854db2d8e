"""Whether what a family asks of a place in the grid is how its tiles are laid: bounds of sizes,
quotients, and small numbers that each grid has.

Called by `gate` for outcomes that no problem had. What asks for another number, for some bits or
for several things at once tells a few tiles from all others, and needs both outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hgemm_packs.generator.gates.coverage.program.slices import results
from hgemm_packs.generator.gates.coverage.proofs import GROWING, Proofs, is_place, is_threshold
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

MOST_SHARING: Final = 64  # CTAs or slices that share something: numbers that any grid has
MOST_TILE: Final = 256  # rows or columns of a tile, which a place is multiplied by
MOST_THREADS: Final = 1024  # of a CTA: they share rounds of a loop by masks
#: What a quick quotient is made with: a half and 2^23, of 32 bits, and what these leave.
_QUICK: Final = frozenset((0x3F000000, 0x4B000000, 0x7FFFFF))
_SCALING: Final = frozenset(("add", "sub", "mul", "mad", "shl", "bfi"))
_LAYING: Final = frozenset(("fma", "rcp", "setp", "rem", "and", *GROWING)) - {"elect"}


@dataclass(frozen=True, slots=True)
class Places:
    """The rule for one kernel. `placed`: registers that follow from a place in the grid."""

    proofs: Proofs
    placed: set[str] = field(default_factory=set)

    def lays_tiles(self, ins: Instruction) -> bool:
        """Whether an instruction asks of a place no more than where tiles lie."""
        proofs = self.proofs
        made_of = [each for x in ins.operands[1:] for each in proofs.made.get(x.name, ())]
        several = [x for x in made_of if x.opcode[0] != "mov"][1:]
        if (ins.opcode[-1] == "pred" and several) or proofs.names_a_place(ins):
            return False
        guards = self._guards_division(ins)
        if ins.opcode[0] == "setp" and not guards:
            # A place that a size names, or a window of such.
            numbered = any(x.kind == "number" for x in ins.operands[1:])
            told = ins.opcode[2][0] == "u" if numbered else ins.opcode[1] in ("eq", "ne")
            if told and not all(map(is_place, proofs.depends(ins))):
                return False
        chain = () if guards else (ins,)
        return all(self._lays(each) for each in (*chain, *proofs.sources(ins)))

    def _lays(self, ins: Instruction) -> bool:
        """Whether an instruction only bounds, adds, scales by tiles and divides."""
        if not self._is_placed(ins) or ins.opcode[-1] == "pred":  # which is asked for itself
            return True
        name, numbers = ins.opcode[0], [x.value for x in ins.operands[1:] if x.kind == "number"]
        if name not in _LAYING:
            return False
        if name == "shr" and numbers:
            return self._is_sign(ins) or self._divisor(ins) <= MOST_THREADS
        if name == "mul" and numbers and "hi" in ins.opcode:
            return 1 / _factor(ins) <= MOST_THREADS
        if name == "mul" and "wide" in ins.opcode and numbers and abs(numbers[0]) > MOST_TILE:
            readers = self._readers(ins.operands[0].name)  # as a quotient is found by
            return all(x.opcode[0] == "shr" and self._divisor(x) <= MOST_THREADS for x in readers)
        if name == "and" and numbers:
            return self._is_short(ins, numbers[0])
        most = MOST_TILE if name in _SCALING else MOST_SHARING
        return all(abs(each) <= most or each in _QUICK for each in numbers)

    def _is_short(self, ins: Instruction, mask: int) -> bool:
        """Whether a mask leaves few bits, of what may have been moved up, or drops few."""
        makers_of = self.proofs.made.get(ins.operands[1].name, ())
        by = [x.operands[2].value for x in makers_of if x.opcode[0] == "shl"]
        mask >>= by[0] if len(makers_of) == len(by) == 1 else 0
        return mask in _QUICK or (mask & -mask if mask < 0 else mask) <= MOST_THREADS

    def _divisor(self, ins: Instruction) -> float:
        """What a shift to the right divides by, with the product that it shifts."""
        makers_of = self.proofs.made.get(ins.operands[1].name, ())
        factor = _factor(makers_of[0]) if len(makers_of) == 1 else 1.0
        return float(2.0 ** ins.operands[2].value / factor)

    def _is_sign(self, ins: Instruction) -> bool:
        """Whether a shift takes the sign of a number, or of such a sign some bits."""
        if ins.operands[2].value >= _bits(ins) - 1:
            return True
        makers_of = self.proofs.made.get(ins.operands[1].name, ())
        return bool(makers_of) and all(
            x.opcode[0] == "shr" and x.opcode[-1][0] == "s" and self._is_sign(x) for x in makers_of
        )

    def _guards_division(self, ins: Instruction) -> bool:
        """Whether a comparison says how one number is divided: the quick way is right below a power
        of two alone. Each branch on it belongs to a division of that number."""
        if not is_threshold(ins) or ins.operands[2].kind != "number":
            return False
        branches = self._readers(ins.operands[0].name)
        dividend = ins.operands[1]
        divisions = [
            x
            for x in self._readers(dividend.name)
            if x.opcode[0] == "div" and x.operands[1] == dividend
        ]
        return all(x.opcode[0] == "bra" for x in branches) and len(branches) <= len(divisions)

    def _readers(self, name: str) -> list[Instruction]:
        flow = self.proofs.flow
        return [flow.kernel.instructions[at] for at in flow.used_by.get(name, ())]

    def _is_placed(self, ins: Instruction) -> bool:
        """Whether an instruction reads what follows from a place in the grid."""
        if not self.placed:
            instructions = self.proofs.flow.kernel.instructions
            known = [instructions[at] for at in sorted(self.proofs.slice.needed)]
            size = -1
            while size < len(self.placed):
                size = len(self.placed)
                self.placed.update(x for each in known if self._reads(each) for x in results(each))
        return self._reads(ins)

    def _reads(self, ins: Instruction) -> bool:
        joins = self.proofs.flow.kernel.joins
        return any(
            is_place(operand.name)
            or any(
                x in self.placed or not self.placed.isdisjoint(joins.get(x, ()))
                for x in operand.registers()
            )
            for operand in ins.operands[1:]
        )


def _bits(ins: Instruction) -> int:
    return int(ins.opcode[-1][1:])


def _factor(ins: Instruction) -> float:
    """What an instruction multiplies by, 1 where it is no product with a number."""
    by = ins.operands[2].value if len(ins.operands) > 2 else 0
    if ins.opcode[0] != "mul" or not by:
        return 1.0
    whole = 2.0 ** _bits(ins)
    return (by % whole) / (whole if "hi" in ins.opcode else 1.0)
