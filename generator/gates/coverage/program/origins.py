"""Which parameters, places in the grid and turns of loops a number follows from.

Called by `steering`: a product of two numbers that follow from the same is zero where either is,
and so may be for all sizes that problems of the gate have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

TURN: Final = "turn"  # of a loop
#: Instructions whose results are no sums of numbers that they choose by.
CHOOSING: Final = frozenset(("selp", "setp", "set"))
PLACES: Final = ("%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_cta")


@dataclass(slots=True)
class Origins:
    """`made` and `joins` as `slices.makers` and the kernel have them; `sized`: registers that
    follow from anything of it."""

    made: Mapping[str, Sequence[Instruction]]
    joins: Mapping[str, Sequence[str]]
    sized: Set[str]
    known: dict[str, frozenset[str]] = field(default_factory=dict)

    def shared(self, ins: Instruction) -> bool:
        """Whether the first two operands of an instruction follow from the same."""
        a, b = ins.operands[1:3]
        if a.kind == "number" or b.kind == "number":
            return False
        return bool(self.of(a) & self.of(b))

    def of_sizes(self, ins: Instruction) -> bool:
        """Whether parameters decide two operands of an instruction, and no place or loop does."""
        found = [each for each in map(self.of, ins.operands[1:]) if each]
        return len(found) > 1 and all(map(are_parameters, found))

    def of_all(self, ins: Instruction) -> frozenset[str]:
        """What any operand of an instruction follows from."""
        return frozenset[str]().union(*map(self.of, ins.operands[1:]))

    def weighed(self, ins: Instruction, without: Set[str] = CHOOSING) -> frozenset[str]:
        """What the operands of an instruction are sums, multiples and parts of: what a select or
        a comparison took them by is left out, as all that instructions of `without` made."""
        found: set[str] = set()
        due = [x for operand in ins.operands[1:] for x in operand.registers()]
        seen = set(due)
        while due:
            for each in self.made.get(due.pop(), ()):
                if each.opcode[0] in without:
                    continue
                found |= _named(each)
                fresh = {x for op in each.operands[1:] for x in op.registers()} - seen
                seen |= fresh
                due += fresh
        return frozenset(found)

    def of(self, operand: Operand) -> frozenset[str]:
        """What an operand follows from."""
        if operand.kind == "special":
            return frozenset([operand.name] if operand.name.startswith(PLACES) else [])
        if operand.kind != "register" or operand.name not in self.sized:
            return frozenset()
        if operand.name not in self.known:
            self.known[operand.name] = self._search(operand.name)
        return self.known[operand.name]

    def _search(self, name: str) -> frozenset[str]:
        found: set[str] = set()
        seen, due = {name}, [name]
        while due:
            each = due.pop()
            if each in self.known:
                found |= self.known[each]
                continue
            if self._goes_on(each):
                found.add(TURN)
            for ins in self.made.get(each, ()):
                found |= _named(ins)
                fresh = [x for op in ins.operands[1:] for x in op.registers() if x not in seen]
                seen.update(fresh)
                due += fresh
        return frozenset(found)

    def _goes_on(self, name: str) -> bool:
        """Whether a register is made of what it was before: a loop steps it."""
        if name not in self.joins:
            return False
        own = name.partition("#")[0]
        return any(
            register.partition("#")[0] == own
            for ins in self.made.get(name, ())
            for operand in ins.operands[1:]
            for register in operand.registers()
        )


def are_parameters(names: Iterable[str]) -> bool:
    """Whether no place and no loop is among what a number follows from."""
    return not any(name == TURN or name.startswith(PLACES) for name in names)


def _named(ins: Instruction) -> set[str]:
    """Places and parameters that an instruction reads."""
    found = {x.name for x in ins.operands if x.kind == "special" and x.name.startswith(PLACES)}
    if ins.opcode[0] == "ld" and "param" in ins.opcode:
        found |= {x.name for x in ins.operands[1].parts if x.kind == "symbol"}
    return found
