"""Rules for tensor-core instructions and for those that only order or steer.

Called by `gate`: mma and wgmma multiply operands and add to sums in float32; barriers, waits and
branches take numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hgemm_packs.generator.gates.dataflow import memory
from hgemm_packs.generator.gates.dataflow.exceptions import FINISHES, LISTS
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand, written
from hgemm_packs.generator.gates.dataflow.values import (
    CLEAN,
    FINISHED,
    MIXED,
    NUMBER,
    NUMBERS,
    OPERAND,
    SUM,
    TRACKED,
    WIDE_ADDEND,
    Value,
    words,
)

#: Instructions without a result, or with one that is a number, whatever they read.
_STEERING: Final = frozenset(
    [
        "activemask",
        "applypriority",
        "bar",
        "barrier",
        "bra",
        "createpolicy",
        "elect",
        "exit",
        "fence",
        "getctarank",
        "griddepcontrol",
        "isspacep",
        "mbarrier",
        "membar",
        "nanosleep",
        "prefetch",
        "prefetchu",
        "ret",
        "setmaxnreg",
        "vote",
        "match",
        "redux",
    ]
)
UNSET: Final = "product: added to what some path has not set"
_VOTES: Final = frozenset(("vote", "match", "redux"))


def step(flow: Flow, ins: Instruction) -> bool:
    """Apply the rule of a product or of what orders and steers; False where it is neither."""
    name = ins.opcode[0]
    if name == "mma":
        _mma(flow, ins)
    elif name == "wgmma":
        if ins.opcode[1] == "mma_async":
            _wgmma(flow, ins)
    elif name == "movmatrix":
        value = flow.value(ins.operands[1])
        flow.need(ins, value, OPERAND, "bits")
        flow.write(ins.operands[0], value._replace(kinds=value.kinds & (OPERAND | MIXED)))
    elif name in _STEERING:
        _steer(flow, ins)
    else:
        return False
    return True


def _types(flow: Flow, ins: Instruction) -> None:
    """float32 sums of elements of the kernel's type."""
    types = [word for word in ins.opcode if word in _ELEMENTS or word in ("f16", "bf16", "f32")]
    dtype = flow.dtype
    sparse = any(word.startswith("sp") for word in ins.opcode)
    if sparse or types not in (["f32", dtype, dtype, "f32"], ["f32", dtype, dtype]):
        flow.refuse(ins, f"product: of other than float32 sums of {dtype}")


_ELEMENTS: Final = frozenset(["tf32", "f64", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1"])


def _mma(flow: Flow, ins: Instruction) -> None:
    _types(flow, ins)
    to, a, b, sums = ins.operands[:4]
    for operand in (*_parts(a), *_parts(b)):
        flow.need(ins, flow.value(operand), OPERAND, "product")
    for operand in _parts(sums):
        flow.need(ins, flow.value(operand), _before(flow), "product")
    if ins.index in flow.unset:
        flow.refuse(ins, UNSET)
    if _meets_zero(flow, _parts(a), _parts(b)):
        flow.refuse(ins, "product: of an operand and zero")
    flow.write(to, Value(SUM))


def _meets_zero(flow: Flow, a: Sequence[Operand], b: Sequence[Operand]) -> bool:
    """Whether some of K of one operand is zero and that of the other is not: an infinity times zero
    is NaN. Registers of A come in pairs of rows for each of B's."""
    for i, of_b in enumerate(b):
        rows = [flow.value(each).kinds for each in a[i * len(a) // len(b) :][: len(a) // len(b)]]
        if any(rows) != bool(flow.value(of_b).kinds):
            return True
    return False


def _before(flow: Flow) -> int:
    """What sums may be that products are added to. Where a kernel finishes sums in their registers,
    these hold them still when the next tile's first product takes their place."""
    return SUM | WIDE_ADDEND | (FINISHED if FINISHES in flow.exceptions else 0)


def _wgmma(flow: Flow, ins: Instruction) -> None:
    _types(flow, ins)
    to, a, b, *rest = ins.operands
    for operand in (a, b):
        if operand.kind == "vector":
            for part in operand.parts:
                flow.need(ins, flow.value(part), OPERAND, "product")
        else:
            _descriptor(flow, ins, operand)
    for part in _parts(ins.before or to):
        flow.need(ins, flow.value(part), _before(flow), "product")
    flow.need_clean(ins, rest, "product")
    if ins.index in flow.unset and _holds(flow, rest[0]):
        flow.refuse(ins, UNSET)
    signs = [operand.value for operand in rest[1:3] if operand.kind == "number"]
    if signs != [1, 1]:
        flow.refuse(ins, "product: of an operand with another sign")
    flow.write(to, Value(SUM))


def _holds(flow: Flow, scale: Operand) -> bool:
    """Whether wgmma adds to what is there at every time that it runs, by the constant that its flag
    is made of. Where that is no constant, the flag may be what keeps unset registers out."""
    if scale.kind == "number":
        return scale.value != 0
    for ins in flow.defined_by.get(scale.name, ()):
        made_of = flow.value(ins.operands[1]).const
        if ins.opcode[:2] != ("setp", "ne") or made_of in (None, 0):
            return False
    return True


def _descriptor(flow: Flow, ins: Instruction, operand: Operand) -> None:
    """Operands in shared memory, by a descriptor that was made from its address."""
    address = Operand("address", parts=(operand,))
    held = memory.holds(flow, ins, memory.places(flow, ins, address, "shared", None))
    # Where the descriptor points is not followed further than to the array, and beside operands
    # sums may stand there: a product of these is wrong for all values. One by a constant is not.
    numbers = 0 if LISTS in flow.exceptions else held & NUMBERS
    if numbers or not held & OPERAND:
        flow.refuse(ins, f"product: {words(held & ~OPERAND)}")


def _parts(operand: Operand) -> tuple[Operand, ...]:
    return operand.parts if operand.kind == "vector" else (operand,)


def _barrier(flow: Flow, ins: Instruction) -> None:
    """A barrier is no memory of operands or sums: its bits would be taken for theirs."""
    for operand in ins.operands:
        if operand.kind != "address" or not flow.reporting or "shared::cluster" in ins.opcode:
            continue
        for place in memory.places(flow, ins, operand, "shared", 8):
            for other, kinds in flow.contents.items():
                known = place.low is not None and other.low is not None
                if known and kinds & TRACKED and place.meets(other):
                    flow.refuse(ins, f"barrier: where {words(kinds & TRACKED)} may stand,")


def _steer(flow: Flow, ins: Instruction) -> None:
    if ins.opcode[0] == "mbarrier":
        _barrier(flow, ins)
    rule = "vote" if ins.opcode[0] in _VOTES else "branch"
    to = written(ins)
    for operand in ins.operands:
        if operand.kind == "address":
            flow.need_clean(ins, operand.parts, "address")
        elif operand is not to and operand.kind != "symbol":
            flow.need(ins, flow.value(operand), CLEAN, rule)
    if to is not None:
        flow.write(to, NUMBER)
