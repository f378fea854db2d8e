"""What an instruction between registers does where no rule speaks of it: numbers become numbers,
and everything else is refused.

Called by `arithmetic`, `choices` and `sums`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hgemm_packs.generator.gates.dataflow import bits, exceptions, ranges
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.remainders import remainder
from hgemm_packs.generator.gates.dataflow.values import (
    CLEAN,
    GLOBAL,
    MIXED,
    NOWHERE,
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
    is_offset,
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
MOST_ALIGNED: Final = 4096  # bytes: masks of more leave a part of an address
MOST_COPIES: Final = 4
MOST_MOVED: Final = 8  # of the last bits of an address, before a mask
_MOVES: Final = frozenset(("neg", "and", "shl", "shr", "bfe"))
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
    """Refuse an address that is taken for a number: where an operand or an array lies decides on
    nothing. Numbers may be added to one. Families that declare it ask for its last bits, and how
    far it is from where its operand begins."""
    of_address = [bool(value.bases & GLOBAL) for value in inputs]
    name = ins.opcode[0]
    # The launcher refuses what is less aligned than declared; the gates try the rest.
    aligned = name == "and" and any(0 < (x.const or 0) < LEAST_ALIGNED for x in inputs)
    if not aligned and sum(of_address) > _may_be_addresses(name, of_address):
        allowed = (name == "sub" and is_offset(*inputs)) or _asks_last_bits(flow, ins)
        if not (allowed and exceptions.ALIGNS in flow.exceptions):
            flow.refuse(ins, "address: of A, B or C as a number")
    elif not (aligned and any(of_address)) and not exceptions.is_of_family(flow.fields):
        _check_arrays(flow, ins, inputs)


def _may_be_addresses(name: str, of_address: Sequence[bool]) -> int:
    """How many inputs of an instruction may be addresses, where these are."""
    allowed = {"add": 1, "sub": int(not any(of_address[1:])), "mad": int(not any(of_address[:2]))}
    return allowed.get(name, 0)


def _asks_last_bits(flow: Flow, ins: Instruction, lost: int = 0, more: int = MOST_MOVED) -> bool:
    """Whether masks leave the last four bits of an address alone, in all that is made of it by
    shifts, of which `lost` is how many of its bits are gone."""
    name, by = ins.opcode[0], [flow.value(operand).const for operand in ins.operands[1:]]
    if name == "and":
        kept = (mask for mask in by if mask is not None and mask >= 0)
        return any(mask << max(lost, 0) >> max(-lost, 0) < LEAST_ALIGNED for mask in kept)
    if name in ("shl", "shr") and by[1] is not None:
        lost += by[1] if name == "shr" else -by[1]
    elif name != "neg" and not (_is_integer(ins) and len(ins.opcode) == 3):
        return False
    readers = flow.used_by.get(ins.operands[0].name, ())
    made = (flow.kernel.instructions[index] for index in readers)
    return more > 0 and all(_asks_last_bits(flow, each, lost, more - 1) for each in made)


def _check_arrays(flow: Flow, ins: Instruction, inputs: Sequence[Value]) -> None:
    """The same of any array's address, shared memory's among them, and of its last bits, which
    align it. The other bits may be moved or masked by constants, as descriptors are made."""
    if not flow.reporting:
        return
    of_address = [bool(value.bases - NOWHERE) for value in inputs]
    name = ins.opcode[0]
    if any(_aligns(flow, operand) for operand in ins.operands[1:]):
        allowed = any(of_address) if name == "add" else _is_integer(ins)
    elif sum(of_address) <= _may_be_addresses(name, of_address):
        allowed = True
    else:
        allowed = _is_moved(ins, inputs, of_address)
    if not allowed:
        flow.refuse(ins, "address: of an array as a number")


def check_coordinates(flow: Flow, ins: Instruction, parts: Sequence[Operand]) -> None:
    """Refuse addresses among the coordinates of a copy."""
    if any(flow.value(part).bases - NOWHERE or _aligns(flow, part) for part in parts):
        flow.refuse(ins, "address: of an array as a number")


def _is_integer(ins: Instruction) -> bool:
    """Whether an instruction makes a wider or narrower integer of one."""
    return ins.opcode[0] == "cvt" and ins.opcode[-2][0] in "usb"


def _is_moved(ins: Instruction, inputs: Sequence[Value], of_address: Sequence[bool]) -> bool:
    """Whether the bits of one address are moved or masked."""
    if sum(of_address) != 1 or not of_address[0]:
        return False
    name = ins.opcode[0]
    if name in ("or", "xor") or _is_integer(ins):
        return True
    return name in _MOVES and all(value.const is not None for value in inputs[1:])


def _aligns(flow: Flow, operand: Operand, copies: int = MOST_COPIES) -> bool:
    """Whether a register holds the last bits of an address, by a mask."""
    for name in flow.kernel.joins.get(operand.name, (operand.name,)):
        for maker in flow.defined_by.get(name, ()):
            if maker.opcode[0] == "and":
                one, mask = (flow.value(each) for each in maker.operands[1:])
                found = bool(one.bases - NOWHERE) and 0 <= (mask.const or 0) < MOST_ALIGNED
            else:
                read = maker.operands[1:] if maker.opcode[0] in ("mov", "cvt", "selp") else ()
                found = copies > 0 and any(_aligns(flow, each, copies - 1) for each in read)
            if found:
                return True
    return False


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
