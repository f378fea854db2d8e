"""What sizes may not do: choose between operands or sums, or be multiplied by themselves.

Called by `gate`. Comparisons are seen both ways, each for itself; two choices between data in a row
are never seen together, and a polynomial of one number is zero for all the numbers that problems of
the gate have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hgemm_packs.generator.gates.coverage.program.slices import Slice, makers
from hgemm_packs.generator.gates.dataflow.exceptions import is_of_family
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.values import TRACKED

TURN: Final = "turn"  # of a loop
_PLACES: Final = ("%ctaid", "%clusterid", "%cluster_cta")
_HANDS_ON: Final = frozenset(("mov", "cvt"))


def faults(flow: Flow, found: Slice) -> Iterator[str]:
    """Instructions that break these rules, each in words. Kernels of families are known to keep the
    last two."""
    yield from _lanes(flow, found)
    if not is_of_family(flow.fields):
        yield from _choices(flow, found)
        yield from _powers(flow, found)


def _told(rule: str, ins: Instruction) -> str:
    return f"{rule} in '{ins.text[:100]}'"


def _is_tracked(flow: Flow, operand: Operand) -> bool:
    return bool(flow.value(operand).kinds & TRACKED)


def _lanes(flow: Flow, found: Slice) -> Iterator[str]:
    """Shuffles of operands and sums from lanes that sizes decide."""
    for ins in flow.kernel.instructions:
        if ins.opcode[0] != "shfl" or not _is_tracked(flow, ins.operands[1]):
            continue
        if any(x in found.sized for by in ins.operands[2:] for x in by.registers()):
            yield _told("lane: sizes decide which", ins)


def _choices(flow: Flow, found: Slice) -> Iterator[str]:
    """Selects of one of two operands or sums by sizes; to take one or zero is what edges need."""
    for ins in flow.kernel.instructions:
        if ins.opcode[0] == "selp":
            one, other, by = ins.operands[1:]
            chosen = one != other and all(_is_tracked(flow, x) for x in (one, other))
            names = by.registers()
        elif ins.opcode[0] == "mov" and ins.guard:
            chosen, names = _is_tracked(flow, ins.operands[1]), (ins.guard,)
        else:
            continue
        if chosen and any(x in found.sized for x in names):
            yield _told("choice: sizes decide between operands or sums", ins)


def _powers(flow: Flow, found: Slice) -> Iterator[str]:
    """Products of two numbers that follow from the same size, place or turn of a loop."""
    origins = _Origins(flow, found)
    for ins in flow.kernel.instructions:
        if ins.opcode[0] not in ("mul", "mad") or ins.opcode[-1][0] not in "su":
            continue
        a, b = ins.operands[1:3]
        if a.kind == b.kind == "number" or not origins.of(a) & origins.of(b):
            continue
        if not any(origins.is_quotient(*each) for each in ((a, b), (b, a))):
            yield _told("power: a number times one that follows from the same", ins)


@dataclass(slots=True)
class _Origins:
    """Which sizes, places and turns of loops registers follow from."""

    flow: Flow
    found: Slice
    made: Mapping[str, Sequence[Instruction]] = field(init=False)
    known: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.made = makers(self.flow.kernel)

    def of(self, operand: Operand) -> frozenset[str]:
        """What an operand follows from."""
        if operand.kind == "special":
            return frozenset([operand.name] if operand.name.startswith(_PLACES) else [])
        if operand.kind != "register" or operand.name not in self.found.sized:
            return frozenset()
        if operand.name not in self.known:
            self.known[operand.name] = self._search(operand.name)
        return self.known[operand.name]

    def _search(self, name: str) -> frozenset[str]:
        found: set[str] = set()
        seen, due = {name}, [name]
        while due:
            each = due.pop()
            if self._goes_on(each):
                found.add(TURN)
            for ins in self.made.get(each, ()):
                for operand in ins.operands[1:]:
                    if operand.kind == "special" and operand.name.startswith(_PLACES):
                        found.add(operand.name)
                    for part in operand.parts:
                        if part.kind == "symbol" and part.name in self.flow.sizes:
                            found.add(part.name)
                    fresh = [x for x in operand.registers() if x not in seen]
                    seen.update(fresh)
                    due += fresh
        return frozenset(found)

    def _goes_on(self, name: str) -> bool:
        """Whether a register is made of what it was before: a loop steps it."""
        if name not in self.flow.kernel.joins:
            return False
        own = name.partition("#")[0]
        return any(
            register.partition("#")[0] == own
            for ins in self.made.get(name, ())
            for operand in ins.operands[1:]
            for register in operand.registers()
        )

    def is_quotient(self, one: Operand, divisor: Operand) -> bool:
        """Whether a number is that of which another is the divisor, as a remainder is found by."""
        for _ in range(8):
            makers_of = self.made.get(one.name, ())
            if len(makers_of) != 1:
                return False
            if makers_of[0].opcode[0] == "div":
                return makers_of[0].operands[2] == divisor
            if makers_of[0].opcode[0] not in _HANDS_ON:
                return False
            one = makers_of[0].operands[1]
        return False
