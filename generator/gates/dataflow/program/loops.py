"""Loops that run a known number of times, and what grows by a constant each time.

Called by `gate` once names are split. A place that a loop steps through then has an end, where
joining the steps would lose it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from hgemm_packs.generator.gates.dataflow.program.numbers import RULES, is_narrow, is_plain
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Kernel, Operand, written
from hgemm_packs.generator.gates.dataflow.program.webs import Block, blocks

MOST_TIMES: Final = 4096
MOST: Final = 1 << 31


class Induction(NamedTuple):
    """A register that is `first` before a loop and grows by `step` at the end of each time but the
    last, of `times`."""

    first: str
    step: int
    times: int


def find(kernel: Kernel) -> dict[str, Induction]:
    """Readers' names of registers that a loop steps."""
    graph = blocks(kernel)
    makers: dict[str, Instruction] = {}
    for ins in kernel.instructions:
        to = written(ins)
        for name in to.registers() if to is not None else ():
            makers[name] = ins
    before: dict[int, list[Block]] = {}
    for block in graph.values():
        for each in block.next:
            before.setdefault(each, []).append(block)
    found: dict[str, Induction] = {}
    for block in graph.values():
        branch = kernel.instructions[block.end - 1]
        if branch.opcode[0] != "bra" or not branch.guard:
            continue
        header = kernel.labels.get(branch.operands[0].name, len(kernel.instructions))
        enters = [each for each in before.get(header, []) if each is not block]
        if header > block.first or len(enters) != 1:
            continue
        # Set where the loop is entered, or anywhere where the loop is never entered again.
        once = not _comes_again(graph, header, block.first)
        steps = _steps(kernel, makers, None if once else enters[0], block)
        times = _times(makers, steps, branch)
        if times is not None:
            found |= {name: Induction(*step, times) for name, step in steps.items()}
    return found


def _comes_again(graph: Mapping[int, Block], header: int, latch: int) -> bool:
    """Whether a path leads back to a loop's header but by its last block."""
    reached: set[int] = set()
    due = [header]
    while due:
        at = due.pop()
        for each in graph[at].next:
            if each == header and at != latch:
                return True
            if each not in reached and each != header:
                reached.add(each)
                due.append(each)
    return False


def _steps(
    kernel: Kernel, makers: Mapping[str, Instruction], enters: Block | None, latch: Block
) -> dict[str, tuple[str, int]]:
    """Readers' names -> (what the register is before the loop, its step): set in the block where
    the loop is entered, if any is given, and stepped in its last block alone."""
    found = {}
    for name, members in kernel.joins.items():
        if len(members) != 2 or not all(member in makers for member in members):
            continue
        for first, stepped in (members, members[::-1]):
            maker = makers[stepped]
            inside = latch.first <= maker.index < latch.end
            set_at = makers[first].index
            outside = enters is None or enters.first <= set_at < enters.end
            if not (inside and outside and _is_step(maker)) or maker.guard:
                continue
            register, step = maker.operands[1:]
            if register.name == name and step.kind == "number":
                found[name] = first, step.value
    return found


def _times(
    makers: Mapping[str, Instruction], steps: Mapping[str, tuple[str, int]], branch: Instruction
) -> int | None:
    """How often a loop runs whose last branch is taken while a comparison of a stepped register
    with a number holds."""
    test = makers.get(branch.guard)
    if test is None or test.guard or test.opcode[0] != "setp" or not is_plain(test.opcode):
        return None
    stepped, limit = test.operands[1:]
    maker = makers.get(stepped.name)
    if limit.kind != "number" or maker is None or not _is_step(maker):
        return None
    step = steps.get(maker.operands[1].name)
    value = _number(makers.get(step[0])) if step is not None else None
    if step is None or value is None or maker.operands[2].value != step[1]:
        return None  # the comparison is of another number than the one that goes on
    for times in range(1, MOST_TIMES):
        value += step[1]
        if abs(value) >= MOST:
            return None  # a register of 32 bits would begin again
        if RULES["setp"](test.opcode, ([value], [limit.value])) == [int(branch.negated)]:
            return times
    return None


def _is_step(maker: Instruction) -> bool:
    """Whether an instruction adds integers that it takes whole."""
    return maker.opcode[0] == "add" and is_plain(maker.opcode) and not is_narrow(maker.opcode)


def _number(maker: Instruction | None) -> int | None:
    """The constant that an instruction moves to a register."""
    if maker is None or maker.opcode[0] != "mov":
        return None
    source: Operand = maker.operands[1]
    return source.value if source.kind == "number" else None
