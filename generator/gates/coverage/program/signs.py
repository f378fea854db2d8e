"""Shifts that take the sign of a number for a division by a constant.

Asked by `slices`: nothing is decided by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hgemm_packs.generator.gates.dataflow.program.parse import (
    Instruction,
    Kernel,
    Operand,
    inputs,
    written,
)


def signs_of(kernel: Kernel, made: Mapping[str, Sequence[Instruction]]) -> set[int]:
    """Shifts that take the sign of a number for a division by a constant, as compilers write one:
    nothing is decided by it, the quotient is that of either sign."""
    readers: dict[str, list[Instruction]] = {}
    for ins in kernel.instructions:
        for name in inputs(ins):
            for each in (name, *kernel.joins.get(name, ())):
                readers.setdefault(each, []).append(ins)

    def read_by(ins: Instruction) -> Sequence[Instruction]:
        to = written(ins)
        return readers.get(to.name, ()) if to is not None else ()

    def rounds(ins: Instruction, number: Operand) -> bool:
        """Whether what `ins` makes is only added to `number` that is then divided, or to its
        quotient."""
        return all(
            each.opcode[0] == "add"
            and any(_is_of(made, x, number) for x in each.operands[1:])
            and (_is_product(made, number) or all(map(_divides, read_by(each))))
            for each in read_by(ins)
        )

    found: set[int] = set()
    for ins in kernel.instructions:
        to = written(ins)
        if ins.opcode[0] != "shr" or to is None or ins.operands[2].kind != "number":
            continue
        bits = 64 if ins.opcode[-1].endswith("64") else 32
        if ins.operands[2].value != bits - 1:
            continue
        number = ins.operands[1]
        if ins.opcode[-1][0] == "u":
            found |= {ins.index} if rounds(ins, number) else set()
            continue
        users = readers.get(to.name, [])
        if users and all(
            each.opcode[0] == "shr" and each.opcode[-1][0] == "u" and rounds(each, number)
            for each in users
        ):
            found |= {ins.index, *(each.index for each in users)}
    return found


def _is_product(made: Mapping[str, Sequence[Instruction]], number: Operand) -> bool:
    """Whether a number is the upper half of a product, as a quotient is found by, or that and what
    was multiplied, where the other factor is 2^32 more than it is written."""
    makers_of = made.get(number.name, ())
    if len(makers_of) != 1:
        return False
    if makers_of[0].opcode[0] != "add":
        return makers_of[0].opcode[:2] == ("mul", "hi")
    one, other = makers_of[0].operands[1:]
    return any(
        len(found) == 1 and found[0].opcode[:2] == ("mul", "hi") and found[0].operands[1] == whole
        for found, whole in (
            (made.get(one.name, ()), other),
            (made.get(other.name, ()), one),
        )
    )


def _divides(ins: Instruction) -> bool:
    """Whether an instruction divides by a power of two, or rounds to a multiple of one."""
    if ins.opcode[0] == "shr":
        return ins.opcode[-1][0] == "s" and ins.operands[2].value > 0
    mask = ins.operands[-1].value
    return ins.opcode[0] == "and" and mask < -1 and -mask & (-mask - 1) == 0


def _is_of(made: Mapping[str, Sequence[Instruction]], operand: Operand, number: Operand) -> bool:
    """Whether an operand is a number, or that shifted to the right."""
    if operand == number:
        return True
    makers_of = made.get(operand.name, ())
    return len(makers_of) == 1 and (
        makers_of[0].opcode[:2] == ("shr", "s32") and makers_of[0].operands[1] == number
    )
