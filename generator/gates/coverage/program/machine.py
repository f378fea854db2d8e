"""Runs the part of a kernel that follows from sizes and places, for many threads of many launches
at once, and without a GPU.

Made by `trial`. Nothing is loaded, multiplied or stored: the machine follows branches, counts which
outcomes each comparison had, and tells a watcher which addresses were touched. A wait is over at
once. What depends on numbers from memory is not followed: such a branch is taken by one half of the
threads and not by the other, but never back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage.program import arithmetic, slices, widths
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.outcomes import Outcomes
from hgemm_packs.generator.gates.coverage.program.pieces import Piece, Step
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Kernel, Operand, written
from hgemm_packs.generator.gates.dataflow.program.webs import blocks

MOST_STEPS: Final = 60_000  # blocks that are run, over all threads together

#: Told of an access: the instruction, the threads, and each operand of `touched` in its parts.
Watcher = Callable[[Instruction, Array, "Frame"], None]


def _by_own_names(ins: Instruction) -> Instruction:
    """An instruction with registers by the names that the kernel has for them."""
    operands = tuple(each.renamed(_own) for each in ins.operands)
    return replace(ins, operands=operands, guard=_own(ins.guard))


def _own(name: str) -> str:
    return name.partition("#")[0]


class Endless(RuntimeError):
    """A kernel that does not end within MOST_STEPS."""


class Threads(NamedTuple):
    """What threads see: each a number of `total`, or one for all. `specials` by the names of
    registers, `params` by the names of parameters; `launch` is the number of the launch that a
    thread is of, `cta` that of its CTA among all."""

    total: int
    specials: Mapping[str, Array]
    params: Mapping[str, Array]
    launch: Array
    cta: Array


@dataclass(slots=True)
class Frame:
    """The threads that run a block together, and their registers as far as the block read or wrote
    them. `who` is None for all."""

    machine: Machine
    who: Array | None
    local: dict[str, Array] = field(default_factory=dict)

    @property
    def numbers(self) -> Array:
        """The numbers of the threads."""
        return self.machine.everyone if self.who is None else self.who

    def register(self, name: str) -> Array | None:
        """What a register holds, None where it is not known."""
        found = self.local.get(name)
        if found is None:
            whole = self.machine.registers.get(name)
            if whole is None:
                return None
            found = whole if self.who is None or whole.size == 1 else whole[self.who]
            self.local[name] = found
        return found

    def value(self, operand: Operand, kind: type | None) -> Array | None:
        """What an operand is as a number of a type, None where that is not known."""
        if operand.kind == "number":
            return arithmetic.constant(operand.value, kind or np.int64)
        if operand.kind == "register":
            found = self.register(operand.name)
            return found if found is None or kind is None else arithmetic.as_kind(found, kind)
        if operand.kind in ("special", "symbol"):
            threads, name = self.machine.threads, operand.name
            seen = threads.specials.get(name) if operand.kind == "special" else None
            if operand.kind == "symbol":
                seen = threads.params.get(name, self.machine.places.get(name))
            if seen is None:
                return None
            if self.who is not None and seen.size > 1:
                seen = seen[self.who]
            return seen if kind is None else arithmetic.as_kind(seen, kind)
        return None

    def sum(self, operand: Operand) -> Array | None:
        """The address in brackets."""
        total: Array | None = None
        for part in operand.parts:
            found = self.value(part, np.int64)
            if found is None:
                return None
            total = found if total is None else total + found
        return total


class Machine:
    """One kernel, its registers with a name for each write. `constants` has the numbers of arrays
    in constant memory; `watched` says which operands of an instruction a watcher is told of."""

    def __init__(
        self,
        kernel: Kernel,
        constants: Mapping[str, Array] | None = None,
        watched: slices.Watched = slices.touched,
    ) -> None:
        self.watched = watched
        self.slice: slices.Slice = slices.cut(kernel, watched)
        self.kernel = kernel = replace(
            kernel, instructions=[_by_own_names(ins) for ins in kernel.instructions]
        )
        self.constants = dict(constants or {})
        self.places = {
            name: np.array([(1 + i) << 40], np.int64)
            for i, (name, space) in enumerate(kernel.symbols.items())
            if space != "param"
        }
        self._pieces = self._compile()
        self.outcomes = Outcomes()
        self.spans: dict[str, tuple[int, int]] | None = None  # least and most of registers
        self.notes = widths.Notes()
        self.everyone: Array = np.arange(0)
        self.threads = Threads(0, {}, {}, self.everyone, self.everyone)
        self.registers: dict[str, Array] = {}
        self._owned: set[str] = set()  # registers whose array is no other's

    def run(self, threads: Threads, watcher: Watcher | None = None, most: int = MOST_STEPS) -> None:
        """Follow all threads to their ends. Raises Endless where that takes more than `most`
        blocks."""
        self.threads, self.registers, self._owned = threads, {}, set()
        self.everyone = np.arange(threads.total)
        due: dict[int, list[Array]] = {0: [self.everyone]}
        for _ in range(most):
            if not due:
                return
            at = min(due)
            parts = due.pop(at)
            who: Array | None = parts[0] if len(parts) == 1 else np.concatenate(parts)
            assert who is not None
            if len(who) == threads.total:
                who = None
            self._run_piece(at, Frame(self, who), due, watcher)
        raise Endless(f"more than {most} steps")

    def _compile(self) -> dict[int, Piece]:
        found = {}
        for block in blocks(self.kernel).values():
            steps = []
            for ins in self.kernel.instructions[block.first : block.end]:
                step = self._step(ins)
                if step is not None:
                    steps.append(step)
            last = self.kernel.instructions[block.end - 1]
            is_branch = last.opcode[0] in ("bra", "ret", "exit")
            target = None
            if last.opcode[0] == "bra":
                target = self.kernel.labels.get(last.operands[0].name)
            goes_on = (not is_branch or last.guard) and block.end < len(self.kernel.instructions)
            found[block.first] = Piece(
                steps, last if is_branch else None, target, block.end if goes_on else None
            )
        return found

    def _step(self, ins: Instruction) -> Step | None:
        watched = any(True for _ in self.watched(ins))
        if ins.index not in self.slice.needed:
            return Step(ins, watched=True) if watched else None
        to = written(ins)
        if to is None:
            return None
        if to.kind == "pair":
            to = to.parts[-1] if ins.opcode[0] == "elect" else to.parts[0]
        if to.kind != "register":
            return None
        make = arithmetic.RULES.get(ins.opcode[0])
        rule = make(ins.opcode) if make is not None else None
        kinds = arithmetic.operand_kinds(ins.opcode, len(ins.operands) - 1)
        if ins.opcode[0] == "cvt":
            kinds = [arithmetic.type_of(ins.opcode[-1])]
        observed = ins.index in self.slice.observed
        loss = widths.loses(ins) if ins.index in self.slice.joined else None
        widens = ins.index in self.slice.joined and widths.widens(ins)
        return Step(ins, to.name, rule, kinds, observed, loss, watched, widens)

    def _run_piece(
        self, at: int, frame: Frame, due: dict[int, list[Array]], watcher: Watcher | None
    ) -> None:
        piece = self._pieces.get(at)
        if piece is None:
            return
        for step in piece.steps:
            if step.watched and watcher is not None:
                self._watch(step.ins, frame, watcher)
            if step.result:
                self._compute(step, frame)
        self._go(piece, frame, due)

    def _watch(self, ins: Instruction, frame: Frame, watcher: Watcher) -> None:
        who = frame.numbers
        if ins.guard:
            runs = frame.register(ins.guard)
            if runs is not None:
                chosen = np.broadcast_to(runs != ins.negated, who.shape)
                if not chosen.any():
                    return
                if not chosen.all():
                    watcher(ins, who[chosen], Frame(self, who[chosen]))
                    return
        watcher(ins, who, frame)

    def _compute(self, step: Step, frame: Frame) -> None:
        ins, name = step.ins, step.result
        value = self._result(step, frame)
        if value is None:
            self.notes.blank.add(ins.index)
            return
        if ins.guard:
            runs, before = frame.register(ins.guard), frame.register(name)
            if runs is not None:
                runs = runs != ins.negated
                old = np.zeros_like(value) if before is None else before
                value = np.where(runs, value, arithmetic.as_kind(old, value.dtype.type))
        frame.local[name] = value
        self._keep(name, value, frame)

    def _keep(self, name: str, value: Array, frame: Frame) -> None:
        if self.spans is not None and name in self.spans:
            low, high = self.spans[name]
            self.spans[name] = min(low, int(value.min())), max(high, int(value.max()))
        if frame.who is None:
            self.registers[name] = value
            self._owned.discard(name)
            return
        whole = self.registers.get(name)
        if whole is None or name not in self._owned or whole.dtype != value.dtype:
            fresh = np.zeros(self.threads.total, value.dtype)
            if whole is not None and whole.dtype.itemsize == value.dtype.itemsize:
                fresh[:] = arithmetic.as_kind(whole, value.dtype.type)
            whole = self.registers[name] = fresh
            self._owned.add(name)
        whole[frame.who] = value

    def _result(self, step: Step, frame: Frame) -> Array | None:
        ins = step.ins
        name = ins.opcode[0]
        if slices.is_wait(ins):
            return np.array([True])
        if name == "elect":
            lane = frame.value(Operand("special", "%laneid"), np.int32)
            return None if lane is None else np.equal(lane, 0)
        if name == "ld":
            return self._load(ins, frame)
        if name == "shfl":
            return self._shuffle(ins, frame)
        if step.rule is None:
            return None
        values = []
        for operand, kind in zip(ins.operands[1:], step.kinds, strict=False):
            found = frame.value(operand, kind)
            if found is None:
                return None
            values.append(found)
        result = step.rule(*values)
        if step.observed:
            of = self.threads.launch[frame.numbers]
            self.outcomes.observe(ins, of, values, result)
        self.notes.note(ins.index, step.loses, values, result)
        if step.widens and self.notes.near is not None and widths.is_near(ins, values):
            self.notes.near.add(ins.index)
        kind = arithmetic.type_of(ins.opcode[-1])
        if name == "mov" and kind is not None and result.dtype != kind:
            result = arithmetic.as_kind(result, kind)
        return result

    def _load(self, ins: Instruction, frame: Frame) -> Array | None:
        kind = arithmetic.type_of(ins.opcode[-1])
        if not slices.reads_constants(ins):
            part = ins.operands[1].parts[0]
            return frame.value(part, kind) if len(ins.operands[1].parts) == 1 else None
        address = frame.sum(ins.operands[1])
        if address is None or kind is None:
            return None
        names = [name for name, place in self.places.items() if place[0] >> 40 == address[0] >> 40]
        numbers = self.constants.get(names[0]) if names else None
        if numbers is None:
            return None
        start = address - self.places[names[0]]
        size = np.dtype(kind).itemsize
        start = np.where((start >= 0) & (start + size <= numbers.size), start, 0)
        if ins.index in self.slice.joined:
            self.notes.read(names[0], numbers.size, start, size)
        bytes_ = np.stack([numbers[start + i] for i in range(size)], axis=-1)
        return np.ascontiguousarray(bytes_).view(kind)[..., 0]

    def _shuffle(self, ins: Instruction, frame: Frame) -> Array | None:
        value = frame.value(ins.operands[1], np.int32)
        lane = frame.value(ins.operands[2], np.int32)
        if value is None or lane is None or value.size == 1:
            return value
        who = frame.numbers
        whole = np.zeros(self.threads.total, np.int32)
        whole[who] = value
        found: Array = whole[(who & ~31) | (lane & 31)]
        return found

    def _go(self, piece: Piece, frame: Frame, due: dict[int, list[Array]]) -> None:
        who, branch = frame.numbers, piece.branch
        if branch is None or not branch.guard:
            onward = piece.follows if branch is None else piece.target
            if onward is not None:
                due.setdefault(onward, []).append(who)
            return
        by = frame.register(branch.guard)
        if by is None:
            taken = self._guess(piece, branch, who)
        else:
            taken = np.broadcast_to(by != branch.negated, who.shape)
        every = bool(taken.all())
        parts = ((piece.target, taken, every), (piece.follows, ~taken, not taken.any()))
        for onward, chosen, whole in parts:
            if onward is not None and (whole or chosen.any()):
                due.setdefault(onward, []).append(who if whole else who[chosen])

    def _guess(self, piece: Piece, branch: Instruction, who: Array) -> Array:
        """Who takes a branch that depends on memory: nobody one that leads back, everybody one past
        a branch back, else every other thread."""
        if piece.target is not None and piece.target <= branch.index:
            return np.zeros(who.shape, np.bool_)
        after = self._pieces.get(piece.follows) if piece.follows is not None else None
        if after is not None and after.leads_back(branch.index):
            return np.ones(who.shape, np.bool_)
        half: Array = (who + branch.index) % 2 == 0
        return half
