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
    GLOBAL,
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
LEAST_ALIGNED: Final = 16  # bytes: what no record promises more of
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
        check_addresses(flow, ins, inputs)
        rest = remainder(flow, ins) if ins.opcode[0] == "sub" else None
        flow.write(ins.operands[0], rest or ranges.compute(ins.opcode, inputs))
    elif all((x.kinds & CLEAN and x.kinds & MIXED) or not x.kinds & TRACKED for x in inputs):
        flow.write(ins.operands[0], NUMBER)  # numbers that stand in memory beside other things
    elif not exceptions.finish(flow, ins, inputs):
        refuse(flow, ins, inputs)


def check_addresses(flow: Flow, ins: Instruction, inputs: Sequence[Value]) -> None:
    """Refuse an address in global memory that is taken for a number: where an operand lies decides
    on nothing. Numbers may be added to one."""
    if exceptions.ALIGNS in flow.exceptions:
        return
    of_address = [bool(value.bases & GLOBAL) for value in inputs]
    name = ins.opcode[0]
    allowed = {"add": 1, "sub": int(not any(of_address[1:])), "mad": int(not any(of_address[:2]))}
    if name == "and" and any(0 < (value.const or 0) < LEAST_ALIGNED for value in inputs):
        return  # the launcher refuses what is less aligned than declared; the gates try the rest
    if sum(of_address) > allowed.get(name, 0):
        flow.refuse(ins, "address: of A, B or C as a number")


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
