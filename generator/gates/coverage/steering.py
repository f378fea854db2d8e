"""What sizes may not do: choose between operands or sums, or be multiplied by themselves.

Called by `gate`. Comparisons are seen both ways, each for itself; two choices between data in a row
are never seen together, and a polynomial of one number is zero for all the numbers that problems of
the gate have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hgemm_packs.generator.gates.coverage.program.origins import Origins
from hgemm_packs.generator.gates.coverage.program.slices import Slice, makers
from hgemm_packs.generator.gates.dataflow.exceptions import is_of_family
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.values import TRACKED

_PRODUCTS: Final = frozenset(("mul", "mad", "fma"))
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
        if chosen and any(x in found.sized and x in found.known for x in names):
            yield _told("choice: sizes decide between operands or sums", ins)


def _powers(flow: Flow, found: Slice) -> Iterator[str]:
    """Products of two numbers that follow from the same size, place or turn of a loop."""
    made = makers(flow.kernel)
    origins = Origins(made, flow.kernel.joins, found.sized)
    for ins in flow.kernel.instructions:
        if ins.opcode[0] not in _PRODUCTS or ins.opcode[-1][0] not in "suf":
            continue
        a, b = ins.operands[1:3]
        if not origins.shared(ins) or any(_is_tracked(flow, x) for x in (a, b)):
            continue
        if not any(_is_quotient(made, *each) for each in ((a, b), (b, a))):
            yield _told("power: a number times one that follows from the same", ins)


def _is_quotient(made: Mapping[str, Sequence[Instruction]], one: Operand, divisor: Operand) -> bool:
    """Whether a number is that of which another is the divisor, as a remainder is found by."""
    for _ in range(8):
        makers_of = made.get(one.name, ())
        if len(makers_of) != 1:
            return False
        if makers_of[0].opcode[0] == "div":
            return makers_of[0].operands[2] == divisor
        if makers_of[0].opcode[0] not in _HANDS_ON:
            return False
        one = makers_of[0].operands[1]
    return False
