"""Rules for instructions between registers: moves of whole elements here, the rest by name.

Called by `gate` for each instruction that touches no memory. What works on numbers alone is not
judged; what meets an operand or a sum must be one of the few things that are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hgemm_packs.generator.gates.dataflow import bits, choices, sums
from hgemm_packs.generator.gates.dataflow.choices import ask_words, predicates
from hgemm_packs.generator.gates.dataflow.common import (
    RULES,
    apply,
    check_addresses,
    inputs_of,
    tracked,
)
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction
from hgemm_packs.generator.gates.dataflow.sums import widened
from hgemm_packs.generator.gates.dataflow.values import (
    ADDEND,
    CLEAN,
    MIXED,
    NUMBER,
    NUMBERS,
    OPERAND,
    PART,
    PROBE,
    RAW,
    TRACKED,
    WORD,
    Value,
    fits,
)

Rule = Callable[[Flow, Instruction], None]

#: Instructions between registers that this gate knows; the rest is refused by name.
_PURE: Final = frozenset(RULES) | frozenset(
    (
        *("abs", "copysign", "cos", "div", "ex2", "lg2", "mad", "mul24", "mad24"),
        *("neg", "rcp", "rem", "rsqrt", "sin", "sqrt", "sub", "tanh"),
    )
)


def step(flow: Flow, ins: Instruction) -> bool:
    """Apply the rule of an instruction between registers; False where it is none, or where it
    leaves a carry, which is a register that no operand names."""
    name = ins.opcode[0]
    if "cc" in ins.opcode:
        return False
    rule = _RULES.get(name)
    if rule is not None:
        rule(flow, ins)
    elif name in _PURE:
        apply(flow, ins, inputs_of(flow, ins))
    else:
        return False
    return True


def _add(flow: Flow, ins: Instruction) -> None:
    if ins.opcode[-1] in ("f32", "f64"):
        sums.add(flow, ins)
    else:
        _bits(flow, ins)


def _move(flow: Flow, ins: Instruction) -> None:
    """Copies, packing and unpacking; elements in the upper half of a float32 are bf16 made wide."""
    to, source = ins.operands
    value = flow.value(source)
    apart = "vector" in (to.kind, source.kind) and value.kinds & TRACKED
    if apart and not flow.need(ins, value, RAW, "bits"):
        return
    if "vector" in (to.kind, source.kind):
        check_addresses(flow, ins, [value])
    if source.kind == "vector":
        kinds = halves = place = 0
        width = max(bits.width(ins.opcode) // 16 // len(source.parts), 1)
        for part in source.parts:
            held = flow.value(part)
            kinds |= held.kinds
            halves |= (held.halves & (1 << width) - 1) << place
            place += width
        flow.write(to, Value(_elements(kinds), halves) if kinds & TRACKED else Value(kinds))
        return
    if to.kind == "vector":
        width = max(bits.width(ins.opcode) // 16 // len(to.parts), 1)
        for i, part in enumerate(to.parts):
            halves = value.halves >> i * width & (1 << width) - 1
            kinds = value.kinds
            if kinds & TRACKED:
                kinds = _elements(kinds) if halves else kinds & NUMBERS
            flow.write(part, Value(kinds, halves))
        return
    if to.kind == "register" and to.name.startswith("%f") and value.kinds & (OPERAND | ADDEND):
        value = _widen(flow, value)
    flow.write(to, value)


def _elements(kinds: int) -> int:
    """What is left of several kinds once a value was taken apart as elements."""
    return kinds & (RAW | NUMBERS | MIXED)


def _widen(flow: Flow, value: Value) -> Value:
    """A bf16 element in the upper half of a float32 is its value."""
    if flow.dtype != "bf16" or value.halves != 2:
        return value
    return widened(value) or value


def _bits(flow: Flow, ins: Instruction) -> None:
    """Moves of whole elements; of numbers, anything."""
    inputs = inputs_of(flow, ins)
    kinds = tracked(inputs)
    if ins.opcode[-1] == "pred":
        predicates(flow, ins, inputs)
        return
    if kinds & PROBE or (kinds and not kinds & ~(PART | WORD)):
        ask_words(flow, ins, inputs)
        return
    if ins.opcode[0] == "xor" and kinds & RAW and any(x.const == 0 for x in inputs):
        whole = inputs[1] if inputs[0].const == 0 else inputs[0]
        flow.write(ins.operands[0], whole)
        return
    if kinds & RAW:
        places = bits.move(ins.opcode, inputs)
        if places is not None and all(fits(x.kinds, RAW | NUMBERS) for x in inputs):
            # A constant that may stand in place of an element stays visible.
            by_place = any(x.kinds & RAW and x.kinds & CLEAN for x in inputs)
            mixed = MIXED & (inputs[0].kinds | inputs[-1].kinds)
            moved = kinds & RAW | mixed | (CLEAN if by_place else 0)
            flow.write(ins.operands[0], Value(moved if places else moved & CLEAN, places))
            return
    apply(flow, ins, inputs)


def _shuffle(flow: Flow, ins: Instruction) -> None:
    """Values from other lanes; which ones must be numbers."""
    to, source, *how = ins.operands
    flow.need_clean(ins, how, "select")
    value = flow.value(source)
    if to.kind == "pair":
        flow.write(to.parts[0], value)
        flow.write(to.parts[1], NUMBER)
    else:
        flow.write(to, value)


def _mapa(flow: Flow, ins: Instruction) -> None:
    """The same place in another CTA of the cluster."""
    flow.need_clean(ins, ins.operands[1:], "address")
    flow.write(ins.operands[0], flow.value(ins.operands[1]))


def _cvta(flow: Flow, ins: Instruction) -> None:
    flow.write(ins.operands[0], flow.value(ins.operands[1]))


_RULES: Mapping[str, Rule] = {
    "mov": _move,
    "add": _add,
    "mul": sums.multiply,
    "fma": sums.multiply,
    "cvt": sums.convert,
    "selp": choices.select,
    "setp": choices.compare,
    "min": choices.extreme,
    "max": choices.extreme,
    "shfl": _shuffle,
    "cvta": _cvta,
    "mapa": _mapa,
    **dict.fromkeys(("and", "or", "xor", "not", "shl", "shr", "shf", "prmt", "bfi", "bfe"), _bits),
}
