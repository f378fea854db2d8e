"""What an instruction between registers does where no rule speaks of it: numbers become numbers,
and everything else is refused.

Called by `arithmetic`, `choices` and `sums`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hgemm_packs.generator.gates.dataflow import bits, exceptions, ranges
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction
from hgemm_packs.generator.gates.dataflow.remainders import remainder
from hgemm_packs.generator.gates.dataflow.values import (
    CLEAN,
    MIXED,
    NUMBER,
    PART,
    RAW,
    SUM,
    TRACKED,
    WIDE,
    WIDE_ADDEND,
    WORD,
    Value,
    fits,
    words,
)

#: What is said of an instruction that meets an operand or a sum without being allowed to.
RULES: Final = {
    **dict.fromkeys(("setp", "set", "testp", "min", "max", "sad"), "compare"),
    **dict.fromkeys(("selp", "slct"), "select"),
    **dict.fromkeys(("popc", "bfind", "clz"), "vote"),
    **dict.fromkeys(("and", "or", "xor", "not", "shl", "shr", "shf", "prmt", "bfi", "bfe"), "bits"),
    **dict.fromkeys(("lop3", "brev", "cnot", "szext", "bmsk", "fns"), "bits"),
    "cvt": "rounding",
}
_IN_32_BITS: Final = SUM | WIDE | WIDE_ADDEND | PART | WORD


def tracked(inputs: Sequence[Value]) -> int:
    """Kinds of all values but those of numbers."""
    kinds = 0
    for value in inputs:
        kinds |= value.kinds
    return kinds & TRACKED


def inputs_of(flow: Flow, ins: Instruction) -> list[Value]:
    """What stands behind the result."""
    return [flow.value(operand) for operand in ins.operands[1:]]


def apply(flow: Flow, ins: Instruction, inputs: Sequence[Value]) -> None:
    """A number of numbers; a finished sum in a declared epilogue; else a refusal."""
    if not tracked(inputs):
        rest = remainder(flow, ins) if ins.opcode[0] == "sub" else None
        flow.write(ins.operands[0], rest or ranges.compute(ins.opcode, inputs))
    elif all((x.kinds & CLEAN and x.kinds & MIXED) or not x.kinds & TRACKED for x in inputs):
        flow.write(ins.operands[0], NUMBER)  # numbers that stand in memory beside other things
    elif not exceptions.finish(flow, ins, inputs):
        refuse(flow, ins, inputs)


def refuse(flow: Flow, ins: Instruction, inputs: Sequence[Value]) -> None:
    """Refuse an instruction for what it is; its result goes on as what it was made of, so that what
    is made of that is named as well."""
    flow.refuse(ins, f"{RULES.get(ins.opcode[0], 'arithmetic')}: {words(tracked(inputs))}")
    kinds = 0
    for value in inputs:
        kinds |= value.kinds
    flow.write(ins.operands[0], Value(kinds & TRACKED, 15))


def whole(flow: Flow, ins: Instruction, kinds: int) -> int:
    """Kinds that come as a whole in a load or store of this width: sums in 32 bits, elements in
    multiples of 16."""
    width = bits.width(ins.opcode)
    if not width or ins.opcode[-1] == "s16":
        flow.refuse(ins, f"bits: {words(kinds)} by other than whole elements")
    return _whole_in(width, flow, ins, kinds)


def whole_in_matrix(flow: Flow, ins: Instruction, kinds: int) -> int:
    """The same of matrices of elements: one that is turned keeps no two of them together."""
    return _whole_in(16, flow, ins, kinds) if "trans" in ins.opcode else kinds


def _whole_in(width: int, flow: Flow, ins: Instruction, kinds: int) -> int:
    if width == 32 or not kinds & _IN_32_BITS:
        return kinds
    if not fits(kinds, RAW | CLEAN):
        flow.refuse(ins, f"bits: {words(kinds & _IN_32_BITS)} by other than 32 bits")
        return kinds
    return kinds & ~_IN_32_BITS
