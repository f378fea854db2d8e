"""A name for each write of a register, and for each reader a name for the writes that reach it.

Called by `gate` before anything else. The compiler and inline assembly use a register again for
other things; after this what a register may hold at one place says nothing of another place that no
path leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hgemm_packs.generator.gates.dataflow.program.parse import (
    Instruction,
    Kernel,
    Operand,
    inputs,
    written,
)


@dataclass(slots=True)
class Block:
    """Instructions that run one after the other, `first` to before `end`."""

    first: int
    end: int
    next: list[int] = field(default_factory=list)  # blocks by their first instruction
    made: int = 0  # writes that leave it
    hidden: int = 0  # writes that do not pass through it
    comes: int = 0  # writes that enter it


def blocks(kernel: Kernel) -> dict[int, Block]:
    """The control-flow graph, blocks by their first instruction."""
    instructions = kernel.instructions
    starts = {0, *kernel.labels.values()}
    for ins in instructions:
        if ins.opcode[0] in ("bra", "ret", "exit"):
            starts.add(ins.index + 1)
    order = sorted(start for start in starts if start < len(instructions))
    found = {}
    for first, end in zip(order, [*order[1:], len(instructions)], strict=True):
        last = instructions[end - 1]
        block = Block(first, end)
        name = last.opcode[0]
        if name == "bra":
            target = kernel.labels.get(last.operands[0].name)
            block.next += [] if target is None else [target]
        if (name not in ("bra", "ret", "exit") or last.guard) and end < len(instructions):
            block.next.append(end)
        found[first] = block
    for block in found.values():
        block.next = [each for each in block.next if each in found]
    return found


def without(
    kernel: Kernel, graph: Mapping[int, Block], start: int, stops: Callable[[Instruction], bool]
) -> set[int]:
    """Instructions that a path from `start` comes to with none before them that `stops` it."""
    reached, due = set(), [start]
    while due:
        at = due.pop()
        first = max(first for first in graph if first <= at)
        for ins in kernel.instructions[at : graph[first].end]:
            if ins.index in reached:
                break
            reached.add(ins.index)
            if stops(ins):
                break
        else:
            due += graph[first].next
    return reached


@dataclass(slots=True)
class _Writes:
    """Every write of a register that has several: `of` register -> its writes, a bit for each."""

    of: dict[str, int] = field(default_factory=dict)
    register: list[str] = field(default_factory=list)
    at: dict[tuple[int, str], int] = field(default_factory=dict)


def split(kernel: Kernel) -> Kernel:
    """The kernel with a name for each write; `Kernel.joins` has what a reader's name stands for."""
    writes = _writes(kernel)
    if not writes.register:
        return kernel
    graph = blocks(kernel)
    _flow(kernel, graph, writes)
    reads: dict[tuple[int, str], int] = {}
    for block in graph.values():
        _note_reads(kernel, block, writes, reads)
    joins: dict[str, tuple[str, ...]] = {}
    instructions = [_renamed(ins, writes, reads, joins) for ins in kernel.instructions]
    return replace(kernel, instructions=instructions, joins=joins)


def _writes(kernel: Kernel) -> _Writes:
    count: dict[str, int] = {}
    for ins in kernel.instructions:
        for name in _names(written(ins)):
            count[name] = count.get(name, 0) + 1
    writes = _Writes()
    for ins in kernel.instructions:
        for name in _names(written(ins)):
            if count[name] > 1 and (ins.index, name) not in writes.at:
                number = len(writes.register)
                writes.at[ins.index, name] = number
                writes.register.append(name)
                writes.of[name] = writes.of.get(name, 0) | 1 << number
    return writes


def _names(operand: Operand | None) -> tuple[str, ...]:
    return operand.registers() if operand is not None else ()


def _flow(kernel: Kernel, graph: dict[int, Block], writes: _Writes) -> None:
    """Which writes enter each block."""
    for block in graph.values():
        for ins in kernel.instructions[block.first : block.end]:
            for name in _names(written(ins)):
                number = writes.at.get((ins.index, name))
                if number is None:
                    continue
                if not ins.guard:
                    block.hidden |= writes.of[name]
                    block.made &= ~writes.of[name]
                block.made |= 1 << number
    due = list(graph)
    while due:
        block = graph[due.pop()]
        leaves = block.made | block.comes & ~block.hidden
        for each in block.next:
            if leaves & ~graph[each].comes:
                graph[each].comes |= leaves
                due.append(each)


def _note_reads(
    kernel: Kernel, block: Block, writes: _Writes, reads: dict[tuple[int, str], int]
) -> None:
    """Which writes reach each reader of a block."""
    here: dict[str, int] = {}
    for ins in kernel.instructions[block.first : block.end]:
        to = written(ins)
        for name in _read(ins):
            if name not in writes.of:
                continue
            reaching = here.get(name)
            if reaching is None:
                reaching = here[name] = block.comes & writes.of[name]
            reads[ins.index, name] = reaching
        for name in _names(to):
            number = writes.at.get((ins.index, name))
            if number is None:
                continue
            before = here.get(name, block.comes & writes.of[name]) if ins.guard else 0
            here[name] = before | 1 << number


def _read(ins: Instruction) -> Iterator[str]:
    yield from inputs(ins)
    yield from _names(ins.before)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _renamed(
    ins: Instruction,
    writes: _Writes,
    reads: dict[tuple[int, str], int],
    joins: dict[str, tuple[str, ...]],
) -> Instruction:
    to = written(ins)

    def name_read(name: str) -> str:
        reaching = reads.get((ins.index, name))
        if not reaching:
            return name
        if reaching & (reaching - 1) == 0:
            return f"{name}#{reaching.bit_length() - 1}"
        joined = f"{name}#x{reaching:x}"
        if joined not in joins:
            joins[joined] = tuple(f"{name}#{number}" for number in _bits(reaching))
        return joined

    def name_written(name: str) -> str:
        number = writes.at.get((ins.index, name))
        return name if number is None else f"{name}#{number}"

    operands = tuple(
        each.renamed(name_written if each is to else name_read) for each in ins.operands
    )
    before = ins.before.renamed(name_read) if ins.before is not None else None
    return replace(ins, operands=operands, before=before, guard=name_read(ins.guard))
