"""Rules for floating-point arithmetic: operands are multiplied, sums added, and rounded once.

Called by `arithmetic`.
"""

from __future__ import annotations

from hgemm_packs.generator.gates.dataflow import bits, exceptions, ranges
from hgemm_packs.generator.gates.dataflow.common import (
    apply,
    check_addresses,
    inputs_of,
    refuse,
    tracked,
)
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.values import (
    ADDEND,
    CLEAN,
    FINISHED,
    MIXED,
    NUMBER,
    ONES,
    OPERAND,
    OUT,
    PART,
    PROBE,
    RAW,
    SUM,
    WIDE,
    WIDE_ADDEND,
    WORD,
    ZERO,
    Value,
    fits,
    words,
)

#: What may be added: an absent word is all ones, which as a float32 is a NaN.
SUMS = SUM | PART | WORD | ONES
_MOST_COPIES = 16


def add(flow: Flow, ins: Instruction) -> None:
    """Sums are added by float32 or float64 additions that round to nearest even."""
    inputs = inputs_of(flow, ins)
    kinds = tracked(inputs)
    if not kinds:
        both_zero = not any(x.kinds for x in inputs)
        flow.write(ins.operands[0], Value() if both_zero else NUMBER)
        return
    sums = all(fits(x.kinds, SUMS | WIDE_ADDEND) for x in inputs)
    if not sums and exceptions.finish(flow, ins, inputs):
        return
    if not _rounds_to_nearest(ins):
        flow.refuse(ins, f"rounding: {words(kinds)}")
    for value in inputs:
        flow.need(ins, value, SUMS | WIDE_ADDEND, "arithmetic")
    if any(operand.kind == "number" for operand in ins.operands[1:]):
        flow.refuse(ins, "arithmetic: a sum and a constant")
    if len({_origin(flow, operand) for operand in ins.operands[1:]}) == 1:
        flow.refuse(ins, "arithmetic: a sum twice")
    flow.write(ins.operands[0], Value(SUM))


def _origin(flow: Flow, operand: Operand) -> Operand:
    """What a register is a copy of, itself where it is none."""
    for _ in range(_MOST_COPIES):
        maker = flow.maker(operand)
        if maker is None or maker.opcode[0] != "mov" or maker.operands[1].kind != "register":
            return operand
        operand = maker.operands[1]
    return operand


def _rounds_to_nearest(ins: Instruction) -> bool:
    return set(ins.opcode[1:-1]) <= {"rn"}


def multiply(flow: Flow, ins: Instruction) -> None:
    """mul and fma of an operand's value and another's, in float32."""
    inputs = inputs_of(flow, ins)
    kinds = tracked(inputs)
    if not kinds or ins.opcode[-1][0] != "f":
        apply(flow, ins, inputs)
        return
    if exceptions.finish(flow, ins, inputs):
        return
    if ins.opcode[-1] not in ("f32", "f64") or not _rounds_to_nearest(ins):
        refuse(flow, ins, inputs)
        return
    for value in inputs[:2]:
        flow.need(ins, value, WIDE, "arithmetic")
    if any(not value.kinds for value in inputs[:2]):
        flow.refuse(ins, "arithmetic: an operand times zero")
    for value in inputs[2:]:
        flow.need(ins, value, SUMS, "arithmetic")
    flow.write(ins.operands[0], Value(SUM))


def convert(flow: Flow, ins: Instruction) -> None:
    """Conversions: operands to float32, sums to C's type once, elements to wider and narrower
    registers as they are."""
    inputs = inputs_of(flow, ins)
    kinds = tracked(inputs)
    to, source = ins.opcode[-2], ins.opcode[-1]
    words_between = set(ins.opcode[1:-2])
    dest = ins.operands[0]
    if not kinds:
        one = inputs[0]
        check_addresses(flow, ins, inputs)
        if not any(value.kinds for value in inputs):
            flow.write(dest, ZERO)
        else:
            flow.write(dest, ranges.convert(ins.opcode, one) if len(inputs) == 1 else NUMBER)
    elif to == "f32" and source in ("f16", "bf16") and not words_between:
        _to_float(flow, ins, inputs[0])
    elif to in ("f16", "bf16", "f16x2", "bf16x2") and source == "f32":
        if words_between != {"rn"} or to.removesuffix("x2") != flow.dtype:
            flow.refuse(ins, f"rounding: {words(kinds)}")
        for value in inputs:
            flow.need(ins, value, SUM | FINISHED, "rounding")
        places = [bool(value.kinds) for value in reversed(inputs)]
        flow.write(dest, Value(OUT, sum(1 << i for i, held in enumerate(places) if held)))
    elif {to, source} == {"f32", "f64"} and words_between <= {"rn"}:
        flow.need(ins, inputs[0], SUM, "rounding")
        flow.write(dest, Value(SUM))
    elif to[0] in "ub" and source[0] in "usb" and _widths(to, source):
        value = inputs[0]
        if flow.need(ins, value, RAW | PROBE | CLEAN, "bits"):
            halves = value.halves & (1 << min(int(to[1:]), int(source[1:])) // 16) - 1
            flow.write(dest, Value(value.kinds, halves))
    elif not exceptions.finish(flow, ins, inputs):
        refuse(flow, ins, inputs)


def _widths(to: str, source: str) -> bool:
    """Whether a conversion of integers moves whole elements: signed ones only to no more bits."""
    known = to[1:] in bits.WIDTH and source[1:] in bits.WIDTH
    return known and (source[0] != "s" or int(to[1:]) <= int(source[1:]))


def widened(value: Value) -> Value | None:
    """The float32 of an element, None where it is none of A, B or the addend alone."""
    known = value.kinds & (OPERAND | ADDEND)
    if value.kinds & ~(OPERAND | ADDEND | MIXED) and not (value.kinds & MIXED and known):
        return None
    wide = (WIDE if known & OPERAND else 0) | (WIDE_ADDEND if known & ADDEND else 0)
    return Value(wide | (value.kinds & MIXED if value.kinds & ADDEND else 0))


def _to_float(flow: Flow, ins: Instruction, value: Value) -> None:
    wide = widened(value)
    if wide is None:
        flow.need(ins, value, OPERAND | ADDEND, "rounding")
    flow.write(ins.operands[0], wide or Value(value.kinds))
