"""Rules for comparisons, selects, minima and maxima: of numbers alone, but for what tells whether a
word of the workspace has come (kernel contract, "Workspace").

Called by `arithmetic`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hgemm_packs.generator.gates.dataflow import exceptions, ranges
from hgemm_packs.generator.gates.dataflow.common import apply, inputs_of, refuse, tracked
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction
from hgemm_packs.generator.gates.dataflow.values import (
    ALL_ONES,
    CLEAN,
    NUMBERS,
    ONES,
    PART,
    PROBE,
    SUM,
    TRACKED,
    VERDICT,
    WORD,
    WORKSPACE,
    Value,
    fits,
    join,
)


def predicates(flow: Flow, ins: Instruction, inputs: Sequence[Value]) -> None:
    """and, or, xor and not of predicates."""
    kinds = tracked(inputs)
    if kinds & ~(PROBE | VERDICT):
        refuse(flow, ins, inputs)
        return
    flow.write(ins.operands[0], Value(kinds | CLEAN))


def ask_words(flow: Flow, ins: Instruction, inputs: Sequence[Value]) -> None:
    """Whether some of several words are absent."""
    if all(not x.kinds & ~(PART | WORD | PROBE | NUMBERS) for x in inputs):
        flow.write(ins.operands[0], Value(PROBE))
    else:
        refuse(flow, ins, inputs)


def extreme(flow: Flow, ins: Instruction) -> None:
    """min and max: of numbers, of words that may be absent, and of a sum that is to be left."""
    inputs = inputs_of(flow, ins)
    kinds = tracked(inputs)
    if kinds and ins.opcode[1:] in (("u32",), ("b32",)):
        if ins.opcode[0] == "max" and not kinds & ~(PART | WORD | PROBE):
            ask_words(flow, ins, inputs)
            return
        if ins.opcode[0] == "min" and _is_sum(inputs[0]) and _almost_all_ones(inputs[1]):
            flow.write(ins.operands[0], Value(PART))
            return
    apply(flow, ins, inputs)


def _is_sum(value: Value) -> bool:
    return bool(value.kinds & (SUM | PART)) and fits(value.kinds, SUM | PART)


def _almost_all_ones(value: Value) -> bool:
    return value.const is not None and value.const & ALL_ONES == ALL_ONES - 1


def _all_ones(value: Value) -> bool:
    return value.const is not None and value.const & ALL_ONES == ALL_ONES


def compare(flow: Flow, ins: Instruction) -> None:
    """Comparisons of numbers, and of words with all ones in a kernel that has a workspace."""
    inputs = inputs_of(flow, ins)
    kinds = tracked(inputs)
    if kinds and len(ins.opcode) == 3 and ins.opcode[:2] in (("setp", "eq"), ("setp", "ne")):
        other = inputs[1]
        probe = kinds & PROBE and not kinds & ~PROBE and other.const in (0, -1, ALL_ONES)
        word = _all_ones(other) and fits(inputs[0].kinds, SUM | PART | WORD | PROBE | ONES)
        if probe or (word and WORKSPACE in flow.roles.values()):
            flow.write(ins.operands[0], Value(PROBE))
            return
    apply(flow, ins, inputs)


def select(flow: Flow, ins: Instruction) -> None:
    """One of two by a predicate that is a number's."""
    to, one, other, chosen = ins.operands
    by = flow.value(chosen)
    values = flow.value(one), flow.value(other)
    if by.kinds & PROBE and not by.kinds & ~(PROBE | CLEAN):
        if _leaves_present(flow, ins):
            flow.write(to, Value(PART))
            return
        if not tracked(values) & ~PROBE:
            flow.write(to, Value(PROBE | CLEAN))
            return
    if by.kinds & TRACKED:
        if not exceptions.finish(flow, ins, [*values, by]):
            flow.need(ins, by, CLEAN, "select")
            flow.write(to, join(*values))
        return
    flow.write(to, join(*_narrowed(flow, ins, values)))


def _narrowed(flow: Flow, ins: Instruction, values: tuple[Value, Value]) -> tuple[Value, Value]:
    """Both values of a select, each only where the comparison lets it be chosen."""
    _, one, other, chosen = ins.operands
    maker = flow.maker(chosen)
    if maker is None or maker.opcode[0] != "setp" or len(maker.opcode) != 3:
        return values
    compared, with_ = maker.operands[1:]
    limit = flow.value(with_).const
    if limit is None or compared.kind != "register":
        return values
    comparison = maker.opcode[1]
    a, b = values
    word = maker.opcode[-1]
    if any(ranges.typed(word, each) != each for each in values):
        return values  # the comparison takes what is below zero for more than anything
    if one == compared:
        a = ranges.narrow(a, comparison, limit, holds=True)
    if other == compared:
        b = ranges.narrow(b, comparison, limit, holds=False)
    return a, b


def _leaves_present(flow: Flow, ins: Instruction) -> bool:
    """Whether a select makes another NaN of the one that would look like an absent word: -2 where
    the sum is all ones, else the sum."""
    _, one, other, chosen = ins.operands
    maker = flow.maker(chosen)
    if maker is None or maker.opcode[:2] != ("setp", "eq"):
        return False
    compared, with_ = maker.operands[1:]
    same = compared == other and other.kind == "register"
    return (
        same
        and _all_ones(flow.value(with_))
        and _almost_all_ones(flow.value(one))
        and _is_sum(flow.value(other))
    )
