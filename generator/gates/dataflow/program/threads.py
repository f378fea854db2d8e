"""What follows from a thread's number alone: registers, bit by bit, and which threads reach an
instruction.

Called by `gate` before the rules. Places in shared memory are told apart by lanes and warps, and by
roles that warps have: arithmetic of these is computed for each thread of a block, so that a swizzle
or a remainder costs no precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hgemm_packs.generator.gates.dataflow.program.numbers import (
    RULES,
    Numbers,
    is_narrow,
    is_plain,
    multiply,
    signed,
    width,
)
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Kernel, Operand, written

MOST_RESTS: Final = 2  # of a sum


class ByThread(NamedTuple):
    """A register of each thread: bits where it is a number, a distance in bytes where it is the
    address of `base`. `padded` as in `values.Value`."""

    values: tuple[int, ...]
    base: str = ""
    padded: str = ""


@dataclass(slots=True)
class Threads:
    """`known`: registers that follow from the thread's number; `sums`: those that are the sum of
    such a part and of others, by the others' names; `reach`: a bit for each thread that may come to
    an instruction."""

    count: int
    known: dict[str, ByThread] = field(default_factory=dict)
    sums: dict[str, tuple[ByThread, tuple[str, ...]]] = field(default_factory=dict)
    reach: list[int] = field(default_factory=list)


def trace(kernel: Kernel, count: int) -> Threads:
    """Follow `count` threads, numbered along x."""
    threads = Threads(count)
    writers: dict[str, int] = {}
    for ins in kernel.instructions:
        to = written(ins)
        for name in to.registers() if to is not None else ():
            writers[name] = writers.get(name, 0) + 1
    for ins in kernel.instructions:
        to = _result_of(ins)
        if to is not None and writers[to.name] == 1 and not ins.guard:
            found = _result(kernel, threads, ins)
            if found is not None:
                threads.known[to.name] = found
            elif ins.opcode[0] in ("add", "cvt"):
                _note_sum(kernel, threads, to.name, ins)
    threads.reach = _reach(kernel, threads)
    return threads


def _note_sum(kernel: Kernel, threads: Threads, name: str, ins: Instruction) -> None:
    """Split a sum of integers into what follows from the thread's number and the rest."""
    if not is_plain(ins.opcode) or is_narrow(ins.opcode):
        return
    bits = width(ins.opcode)
    whole: tuple[ByThread, tuple[str, ...]] | None = None
    for operand in ins.operands[1:]:
        known = _operand(kernel, threads, operand)
        if known is not None:
            part: tuple[ByThread, tuple[str, ...]] = (
                known._replace(values=tuple(_distances(known, bits))),
                (),
            )
        else:
            nothing = ByThread((0,) * threads.count)
            part = threads.sums.get(operand.name, (nothing, (operand.name,)))
        if whole is None:
            whole = part
            continue
        (a, rest), (b, more) = whole, part
        if (a.base and b.base) or (a.padded and b.padded) or "-" in (a.padded + b.padded)[:1]:
            return
        values = tuple(x + y for x, y in zip(a.values, b.values, strict=True))
        whole = ByThread(values, a.base or b.base, a.padded or b.padded), rest + more
    if whole is not None and len(whole[1]) <= MOST_RESTS and any(whole[0].values):
        threads.sums[name] = whole


def _result_of(ins: Instruction) -> Operand | None:
    to = written(ins)
    if to is not None and to.kind == "pair":
        to = to.parts[0]
    return to if to is not None and to.kind == "register" else None


def _result(kernel: Kernel, threads: Threads, ins: Instruction) -> ByThread | None:
    inputs: list[ByThread] = []
    for operand in ins.operands[1:]:
        known = _operand(kernel, threads, operand)
        if known is None:
            return None
        inputs.append(known)
    name = ins.opcode[0]
    if name in ("mapa", "cvta"):
        return inputs[0] if inputs[0].base else None
    if not is_plain(ins.opcode):
        return None
    if any(value.base or value.padded for value in inputs):
        return None if is_narrow(ins.opcode) else _address(ins.opcode, inputs)
    rule = RULES.get(name)
    if rule is None:
        return None
    values = rule(ins.opcode, [value.values for value in inputs])
    return None if values is None else ByThread(tuple(values))


def _operand(kernel: Kernel, threads: Threads, operand: Operand) -> ByThread | None:
    if operand.kind == "register":
        return threads.known.get(operand.name)
    if operand.kind == "number":
        return ByThread((operand.value & (1 << 64) - 1,) * threads.count)
    if operand.kind == "symbol" and kernel.symbols.get(operand.name) == "shared":
        return ByThread((0,) * threads.count, operand.name)
    if operand.kind == "special":
        if operand.name == "%tid.x":
            return ByThread(tuple(range(threads.count)))
        if operand.name == "%laneid":
            return ByThread(tuple(i % 32 for i in range(threads.count)))
        if operand.name in ("%tid.y", "%tid.z"):
            return ByThread((0,) * threads.count)
    return None


def _address(opcode: Sequence[str], inputs: Sequence[ByThread]) -> ByThread | None:
    """Sums of an address and numbers, and what aligns the start of shared memory."""
    name, bits = opcode[0], width(opcode)
    first = inputs[0]
    if name in ("mov", "cvt"):
        return first
    if name == "neg":
        at_start = first.base and not first.padded and not any(first.values)
        return ByThread(first.values, "", f"-{first.base}") if at_start else None
    if name == "mad" and not any(value.base or value.padded for value in inputs[:2]):
        product = multiply(opcode, [value.values for value in inputs[:2]])
        if product is None or "hi" in opcode:
            return None
        inputs = [ByThread(tuple(product)), inputs[2]]
        first, name = inputs[0], "add"
    if len(inputs) != 2:
        return None
    second = inputs[1]
    if name == "and":
        mask = second.values[0]
        if len(set(second.values)) > 1:
            return None
        if first.padded.startswith("-") and mask < 4096 and mask & (mask + 1) == 0:
            return ByThread((0,) * len(first.values), "", f"{first.padded[1:]}:{mask}")
        return None
    if any(value.padded.startswith("-") for value in inputs):
        return None
    if name not in ("add", "sub", "or") or (name == "sub" and (second.base or second.padded)):
        return None
    if (first.base and second.base) or (first.padded and second.padded):
        return None
    if name == "or":
        pad, other = (first, second) if first.padded else (second, first)
        if not pad.padded or pad.base or other.base:
            return None
        if any(value & int(pad.padded.split(":")[1]) for value in other.values):
            return None
    sign = -1 if name == "sub" else 1
    a, b = (_distances(value, bits) for value in inputs)
    values = tuple(x + sign * y for x, y in zip(a, b, strict=True))
    return ByThread(values, first.base or second.base, first.padded or second.padded)


def _distances(value: ByThread, bits: int) -> Numbers:
    if value.base or value.padded:
        return value.values
    return [signed(each, bits) for each in value.values]


def _reach(kernel: Kernel, threads: Threads) -> list[int]:
    """Threads that come to each instruction: a branch whose predicate follows from the thread's
    number sends each one way."""
    instructions = kernel.instructions
    everyone = (1 << threads.count) - 1
    reach = [0] * (len(instructions) + 1)
    due = [(0, everyone)]
    while due:
        at, who = due.pop()
        while at < len(instructions) and who & ~reach[at]:
            who |= reach[at]
            reach[at] = who
            ins = instructions[at]
            runs = who & _guarded(threads, ins, everyone)
            stays = who & ~runs if ins.guard and _is_known(threads, ins) else who
            if ins.opcode[0] == "bra":
                target = kernel.labels.get(ins.operands[0].name, at + 1)
                if runs:
                    due.append((target, runs))
                who = stays if ins.guard else 0
            elif ins.opcode[0] in ("ret", "exit"):
                who = stays if ins.guard else 0
            at += 1
    return [
        who & _guarded(threads, ins, everyone)
        for who, ins in zip(reach, instructions, strict=False)
    ]


def _is_known(threads: Threads, ins: Instruction) -> bool:
    return ins.guard in threads.known


def _guarded(threads: Threads, ins: Instruction, everyone: int) -> int:
    """Threads whose guard lets an instruction run, all where nobody knows."""
    known = threads.known.get(ins.guard)
    if known is None:
        return everyone
    runs = sum(1 << i for i, value in enumerate(known.values) if value)
    return everyone & ~runs if ins.negated else runs
