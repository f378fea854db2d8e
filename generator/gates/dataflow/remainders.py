"""Remainders as compilers compute them: x less a multiple of a constant that is next to x.

Called by `arithmetic` for subtractions of numbers: a slot of a ring or a rank of a cluster has ends
then, which the range of a difference has not.
"""

from __future__ import annotations

from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.ranges import number
from hgemm_packs.generator.gates.dataflow.values import ALL_ONES, Value


def remainder(flow: Flow, ins: Instruction) -> Value | None:
    """The range of a difference that is a remainder, None where it is none."""
    _, dividend, multiple = ins.operands
    maker = flow.maker(multiple)
    if maker is None or ins.opcode[-1] not in ("s32", "u32", "s64", "u64"):
        return None
    step = 0
    if maker.opcode[0] == "and":
        step = _of_mask(flow, dividend, maker)
    elif maker.opcode == ("mul", "lo", "s32"):
        step = _of_unsigned(flow, dividend, maker)
        if step:
            return number(0, step - 1)
        step = _of_product(flow, dividend, maker)
    if not step:
        return None
    value = flow.value(dividend)
    positive = value.low is not None and value.low >= 0
    return number(0 if positive else 1 - step, step - 1)


def _of_mask(flow: Flow, dividend: Operand, mask: Instruction) -> int:
    """x & -step, or (x + what rounds a negative x up) & -step; step is a power of two."""
    rounded, kept = mask.operands[1:]
    step = -(flow.value(kept).const or 0)
    if step <= 0 or step & (step - 1):
        return 0
    if rounded == dividend:
        return step
    total = flow.maker(rounded)
    if total is None or total.opcode[0] != "add" or total.operands[1] != dividend:
        return 0
    up = flow.value(total.operands[2])
    return (
        step if up.low is not None and up.high is not None and 0 <= up.low <= up.high < step else 0
    )


def _of_unsigned(flow: Flow, dividend: Operand, product: Instruction) -> int:
    """step * (x / step) of an unsigned x of 32 bits, from its product with a reciprocal in 64."""
    quotient, factor = product.operands[1:]
    step = flow.value(factor).const
    narrowed = flow.maker(quotient)
    if step is None or step <= 0 or narrowed is None or narrowed.opcode != ("cvt", "u32", "u64"):
        return 0
    shifted = flow.maker(narrowed.operands[1])
    if shifted is None or shifted.opcode != ("shr", "u64"):
        return 0
    wide, by = flow.maker(shifted.operands[1]), flow.value(shifted.operands[2]).const or 0
    if wide is None or wide.opcode != ("mul", "wide", "u32") or wide.operands[1] != dividend:
        return 0
    reciprocal = (flow.value(wide.operands[2]).const or 0) & ALL_ONES
    over = reciprocal * step - (1 << by)
    return step if by >= 32 and 0 <= over <= 1 << by - 32 else 0


def _of_product(flow: Flow, dividend: Operand, product: Instruction) -> int:
    """step * (x / step), the quotient from the upper half of x times a reciprocal, plus 1 where
    that is negative."""
    quotient, factor = product.operands[1:]
    step = flow.value(factor).const
    total = flow.maker(quotient)
    if step is None or step <= 0 or total is None or total.opcode[0] != "add":
        return 0
    shifted, sign = (flow.maker(operand) for operand in total.operands[1:])
    if shifted is None or sign is None:
        return 0
    if shifted.opcode[-1] == "u32":
        shifted, sign = sign, shifted
    high, by = shifted, 0
    if shifted.opcode == ("shr", "s32"):
        by = flow.value(shifted.operands[2]).const or 0
        found = flow.maker(shifted.operands[1])
        if found is None:
            return 0
        high = found
    of_sign = sign.opcode == ("shr", "u32") and flow.value(sign.operands[2]).const == 31
    if (
        high.opcode != ("mul", "hi", "s32")
        or not of_sign
        or flow.maker(sign.operands[1]) is not high
    ):
        return 0
    if high.operands[1] != dividend:
        return 0
    reciprocal = flow.value(high.operands[2]).const or 0
    over = reciprocal * step - (1 << 32 + by)
    return step if 0 < over <= 1 << by + 1 else 0
