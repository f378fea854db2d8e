"""Words of the workspace that are known to have come, from the branches that were taken.

Called by `waits`. A word is absent while it is all ones. What a branch tells is worked out within
its block, and a register is known to hold a present word where all paths to it tell so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Kernel, Operand, written
from hgemm_packs.generator.gates.dataflow.program.webs import Block, blocks

_ONES: Final = 0xFFFFFFFF
Numbers = frozenset[int]
NONE: Final[Numbers] = frozenset()


class Known(NamedTuple):
    """A value by its own number, and the numbers of those that are present if it is anything but
    all ones, anything but zero, or zero."""

    own: int
    unless_ones: Numbers
    if_set: Numbers
    if_clear: Numbers


@dataclass(slots=True)
class _State:
    """Values of registers in one block; `came`: registers that hold present words at its start."""

    came: frozenset[str]
    values: dict[str, Known] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    count: int = 0

    def fresh(self) -> Known:
        """A value that nothing is known of: it is a word, and present if it is not all ones."""
        self.count += 1
        own = frozenset((self.count,))
        return Known(self.count, own, NONE, own)

    def read(self, operand: Operand) -> Known:
        """The value of an operand."""
        if operand.kind != "register":
            return self.fresh()._replace(unless_ones=NONE, if_clear=NONE)
        return self.register(operand.name)

    def register(self, name: str) -> Known:
        """The value of a register."""
        base = _base(name)
        if base not in self.values:
            self.values[base] = self.fresh()
            if base in self.came:
                self.present.add(self.values[base].own)
        return self.values[base]

    def leaves(self, told: Numbers) -> frozenset[str]:
        """Registers that hold present words behind a branch that tells of some."""
        here = {name for name, value in self.values.items() if value.own in self.present | told}
        return frozenset(here | (self.came - self.values.keys()))


def _base(name: str) -> str:
    return name.partition("#")[0]


def absent(
    kernel: Kernel, is_word: Callable[[str], bool], adds: Callable[[Instruction], bool]
) -> Iterator[Instruction]:
    """Instructions that add a word which may not have come."""
    graph = blocks(kernel)
    came = _settle(kernel, graph)
    for first, block in graph.items():
        state = _State(came.get(first, frozenset()))
        for ins in kernel.instructions[block.first : block.end]:
            if adds(ins):
                to = written(ins)
                read = [
                    name for each in ins.operands if each is not to for name in each.registers()
                ]
                words = [state.register(name).own for name in read if is_word(name)]
                if any(own not in state.present for own in words):
                    yield ins
            _step(state, ins)


def _settle(kernel: Kernel, graph: Mapping[int, Block]) -> dict[int, frozenset[str]]:
    """Registers that hold present words at the start of each block that any path comes to."""
    came: dict[int, frozenset[str]] = {0: frozenset()}
    due = [0]
    while due:
        at = due.pop()
        state = _State(came[at])
        for ins in kernel.instructions[graph[at].first : graph[at].end]:
            _step(state, ins)
        last = kernel.instructions[graph[at].end - 1]
        for to in graph[at].next:
            leaves = state.leaves(_told(kernel, state, last, to))
            known = came.get(to)
            fresh = leaves if known is None else known & leaves
            if fresh != known:
                came[to] = fresh
                due.append(to)
    return came


def _told(kernel: Kernel, state: _State, last: Instruction, to: int) -> Numbers:
    """What is present where a block goes on to another one."""
    if not last.guard or last.opcode[0] not in ("bra", "ret", "exit"):
        return NONE
    jumps = last.opcode[0] == "bra" and kernel.labels.get(last.operands[0].name) == to
    if jumps and to == last.index + 1:
        return NONE
    by = state.register(last.guard)
    return by.if_set if jumps != last.negated else by.if_clear


def _step(state: _State, ins: Instruction) -> None:
    to = written(ins)
    if to is None:
        return
    made = None if ins.guard or to.kind != "register" else _made(state, ins)
    for name in to.registers():
        state.values[_base(name)] = made or state.fresh()


def _made(state: _State, ins: Instruction) -> Known | None:
    """What an instruction makes, None where nothing is known of it."""
    name, *_, word = ins.opcode
    read = [state.read(each) for each in ins.operands[1:]]
    own = state.fresh().own
    if name == "mov":
        return read[0]
    if name == "not" and word == "pred":
        return Known(own, NONE, read[0].if_clear, read[0].if_set)
    if (name, word) in (("or", "b32"), ("or", "pred"), ("max", "u32")):
        a, b = read
        return Known(
            own, a.unless_ones | b.unless_ones, a.if_set & b.if_set, a.if_clear | b.if_clear
        )
    if name == "and" and word == "pred":
        a, b = read
        return Known(own, NONE, a.if_set | b.if_set, a.if_clear & b.if_clear)
    if name == "selp":
        return _selected(own, ins, read[2])
    if name == "setp" and ins.opcode[1] in ("eq", "ne") and len(ins.opcode) == 3:
        return _compared(own, ins, read[0])
    return None


def _selected(own: int, ins: Instruction, by: Known) -> Known | None:
    """One of 0 and 1 by a predicate."""
    numbers = [each.value if each.kind == "number" else None for each in ins.operands[1:3]]
    if numbers == [1, 0]:
        return Known(own, NONE, by.if_set, by.if_clear)
    if numbers == [0, 1]:
        return Known(own, NONE, by.if_clear, by.if_set)
    return None


def _compared(own: int, ins: Instruction, one: Known) -> Known | None:
    """Whether a value is all ones, or zero."""
    other = ins.operands[2]
    if other.kind != "number" or ins.opcode[2] not in ("s32", "u32", "b32"):
        return None
    if other.value & _ONES == _ONES:
        equal, differs = NONE, one.unless_ones
    elif other.value == 0:
        equal, differs = one.if_clear, one.if_set
    else:
        return None
    return (
        Known(own, NONE, equal, differs)
        if ins.opcode[1] == "eq"
        else Known(own, NONE, differs, equal)
    )
