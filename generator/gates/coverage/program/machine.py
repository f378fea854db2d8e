"""Runs the part of a kernel that follows from sizes and places, for many threads of many launches
at once, and without a GPU.

Made by `trial`. Nothing is loaded, multiplied or stored: the machine follows branches, counts which
outcomes each comparison had, and tells a watcher which addresses were touched. A wait is over at
once. What depends on numbers from memory is not followed, but for what a `Memory` keeps: such a
branch is taken by one half of the threads and not by the other, but never back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program import arithmetic, slices, warps, widths
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.memory import Memory, is_kept, stores
from hgemm_packs.generator.gates.coverage.program.memory import watched as stored
from hgemm_packs.generator.gates.coverage.program.outcomes import Apart, Outcomes
from hgemm_packs.generator.gates.coverage.program.pieces import Piece, Step
from hgemm_packs.generator.gates.coverage.program.registers import (
    Frame,
    Reader,
    Registers,
    Threads,
    adder,
    reader,
)
from hgemm_packs.generator.gates.dataflow.program.parse import (
    Instruction,
    Kernel,
    Operand,
    inputs,
)
from hgemm_packs.generator.gates.dataflow.program.webs import blocks

MOST_STEPS: Final = 60_000  # blocks that are run, over all threads together

#: Told of an access: the instruction, the threads, and each operand of `touched` in its parts.
Watcher = Callable[[Instruction, Array, Frame], None]


def _by_own_names(ins: Instruction) -> Instruction:
    """An instruction with registers by the names that the kernel has for them."""
    operands = tuple(each.renamed(_own) for each in ins.operands)
    return replace(ins, operands=operands, guard=_own(ins.guard))


def _own(name: str) -> str:
    return name.partition("#")[0]


class Endless(RuntimeError):
    """A kernel that does not end within MOST_STEPS."""


class Machine:
    """One kernel, its registers with a name for each write. `constants` has the numbers of arrays
    in constant memory; `watched` says which operands of an instruction a watcher is told of;
    `known` is the slice of the same kernel for another watcher, `memory` what is kept of numbers
    that others take for unknown."""

    def __init__(
        self,
        kernel: Kernel,
        constants: Mapping[str, Array] | None = None,
        watched: slices.Watched = slices.touched,
        known: slices.Slice | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.watched, self.memory = watched, memory
        kept = slices.nothing if memory is None else is_kept
        asked = watched if memory is None else slices.joined(watched, stored)
        self.slice = slices.cut(kernel, asked, known, kept)
        self.kernel = kernel = replace(
            kernel, instructions=[_by_own_names(ins) for ins in kernel.instructions]
        )
        self.constants = dict(constants or {})
        self.places = {
            name: np.array([(1 + i) << 40], np.int64)
            for i, (name, space) in enumerate(kernel.symbols.items())
            if space != "param"
        }
        self._crossing: set[str] = set()  # registers that a block reads before it writes them
        self._pieces = self._compile()
        self.outcomes: Outcomes | Apart = Outcomes()
        self.spans: dict[str, tuple[int, int]] | None = None  # least and most of registers
        self.notes = widths.Notes()
        self.elected = 0  # the lane of a warp that an election names: it may be any
        self._noted: set[int] = set()  # instructions of whose results something is to be noted
        self.threads = Threads(0, {}, {}, np.arange(0), np.arange(0))

    def run(self, threads: Threads, watcher: Watcher | None = None, most: int = MOST_STEPS) -> None:
        """Follow all threads to their ends. Raises Endless where that takes more than `most`
        blocks."""
        self.threads = threads
        if self.memory is not None:
            self.memory.begin(threads)
        everyone = np.arange(threads.total)
        registers = Registers(threads, self.places, self._crossing, everyone)
        steps = (step for piece in self._pieces.values() for step in piece.steps)
        self._noted = {step.at for step in steps if self._is_open(step)}
        due: dict[int, list[Array]] = {0: [everyone]}
        frame = Frame(registers, None)
        for _ in range(most):
            if not due:
                return
            at = min(due)
            parts = due.pop(at)
            who = parts[0] if len(parts) == 1 else np.concatenate(parts)
            if who is not frame.numbers:
                frame.leave()
                frame = Frame(registers, None if len(who) == threads.total else who)
            piece = self._pieces.get(at)
            if piece is not None:
                self._run_piece(piece, frame, due, watcher)
        raise Endless(f"more than {most} steps")

    def _compile(self) -> dict[int, Piece]:
        found = {}
        for block in blocks(self.kernel).values():
            steps = []
            made: set[str] = set()
            for ins in self.kernel.instructions[block.first : block.end]:
                self._crossing.update(name for name in inputs(ins) if name not in made)
                step = self._step(ins)
                if step is None:
                    continue
                steps.append(step)
                if ins.guard:
                    self._crossing.update({step.result} - made)
                elif step.result:
                    made.add(step.result)
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
        keeps = self.memory is not None and stores(ins)
        if ins.index not in self.slice.needed:
            return Step(ins, ins.index, watched=watched, stores=keeps) if watched or keeps else None
        to = slices.made_by(ins)
        if to is None:
            return None
        step = Step(ins, ins.index, to.name, watched=watched, make=self._maker(ins))
        if step.make is not None:
            return step
        step.rule = arithmetic.rule_of(ins.opcode)
        if step.rule is None:
            step.make = _unknown
        kinds = arithmetic.operand_kinds(ins.opcode, len(ins.operands) - 1)
        step.reads = [reader(x, kind) for x, kind in zip(ins.operands[1:], kinds, strict=False)]
        step.kind = arithmetic.type_of(ins.opcode[-1]) if ins.opcode[0] == "mov" else None
        step.observed = ins.index in self.slice.observed
        step.divides = ins.opcode[0] in ("div", "rem") and ins.opcode[-1] != "f32"
        if ins.index in self.slice.joined:
            step.loses, step.widens = widths.loses(ins), widths.widens(ins)
        return step

    def _maker(self, ins: Instruction) -> Reader | None:
        """What makes the result of an instruction that no rule of arithmetic speaks of."""
        if slices.is_wait(ins):
            return lambda _: _TRUE
        if self.memory is not None and is_kept(ins):
            return self.memory.maker(ins)
        name = ins.opcode[0]
        if name == "elect":
            lane_of = reader(Operand("special", "%laneid"), np.int32)

            def elect(frame: Frame) -> Array | None:
                lane = lane_of(frame)
                return None if lane is None else np.equal(lane, self.elected)

            return elect
        if name == "shfl":
            return warps.shuffle(ins)
        if name != "ld":
            return None
        return self._constants(ins) if slices.reads_constants(ins) else self._parameter(ins)

    def _is_open(self, step: Step) -> bool:
        """Whether anything is left to be noted of an instruction's results."""
        notes, at = self.notes, step.at
        if step.observed and len(self.outcomes.seen.get(at, ())) < 2:
            return True
        if step.widens and notes.near is not None and at not in notes.near:
            return True
        return at in notes.came or (step.loses is not None and notes.asks(at))

    def _run_piece(
        self, piece: Piece, frame: Frame, due: dict[int, list[Array]], watcher: Watcher | None
    ) -> None:
        for step in piece.steps:
            if step.watched and watcher is not None:
                self._watch(step.ins, frame, watcher)
            if step.stores and self.memory is not None:
                self._watch(step.ins, frame, self.memory.store)
            if step.result:
                self._compute(step, frame)
        self._go(piece, frame, due)

    def _watch(self, ins: Instruction, frame: Frame, watcher: Watcher) -> None:
        who = frame.numbers
        if ins.guard:
            runs = frame.register(ins.guard)
            if runs is not None:
                chosen = runs != ins.negated
                count = np.count_nonzero(chosen)
                if not count:
                    return
                if count < chosen.size:
                    part = frame.part(chosen)
                    watcher(ins, part.numbers, part)
                    return
        watcher(ins, who, frame)

    def _compute(self, step: Step, frame: Frame) -> None:
        name = step.result
        value = self._result(step, frame)
        if value is None:
            self.notes.blank.add(step.at)
            return
        ins = step.ins
        if ins.guard:
            runs, before = frame.register(ins.guard), frame.register(name)
            if runs is not None:
                runs = runs != ins.negated
                old = np.zeros_like(value) if before is None else before
                value = np.where(runs, value, arithmetic.as_kind(old, value.dtype.type))
        frame.write(name, value)
        if self.spans is not None and name in self.spans:
            low, high = self.spans[name]
            self.spans[name] = min(low, int(value.min())), max(high, int(value.max()))

    def _result(self, step: Step, frame: Frame) -> Array | None:
        if step.make is not None:
            return step.make(frame)
        values = []
        for read in step.reads:
            found = read(frame)
            if found is None:
                return None
            values.append(found)
        assert step.rule is not None
        if step.divides and not values[1].all():
            self.notes.by_zero.add(step.at)
        result = step.rule(*values)
        if step.at in self._noted:
            self._note(step, frame, values, result)
        if step.kind is not None and result.dtype != step.kind:
            result = arithmetic.as_kind(result, step.kind)
        return result

    def _note(self, step: Step, frame: Frame, values: list[Array], result: Array) -> None:
        if step.observed:
            self.outcomes.observe(step.ins, frame, values, result)
        self.notes.note(step.at, step.loses, values, result)
        if step.widens and self.notes.near is not None and widths.is_near(step.ins, values):
            self.notes.near.add(step.at)
        if not self._is_open(step):
            self._noted.discard(step.at)

    def _parameter(self, ins: Instruction) -> Reader:
        """What loads a parameter."""
        kind, whole_of = arithmetic.type_of(ins.opcode[-1]), reader(ins.operands[1].parts[0], None)
        loses = widths.cut_of(ins)

        def load(frame: Frame) -> Array | None:
            whole = whole_of(frame)
            if whole is None or kind is None:
                return None
            self.notes.note(ins.index, loses, [whole], whole)
            return arithmetic.as_kind(whole, kind)

        return load

    def _constants(self, ins: Instruction) -> Reader:
        """What loads from an array in constant memory."""
        kind, address_of = arithmetic.type_of(ins.opcode[-1]), adder(ins.operands[1])

        def load(frame: Frame) -> Array | None:
            address = address_of(frame)
            if address is None or kind is None:
                return None
            at = address[0] >> 40
            names = [name for name, place in self.places.items() if place[0] >> 40 == at]
            numbers = self.constants.get(names[0]) if names else None
            if numbers is None:
                return None
            start = address - self.places[names[0]]
            size = np.dtype(kind).itemsize
            inside = (start >= 0) & (start + size <= numbers.size)
            if not inside.all():
                self.notes.beyond.add(ins.index)
            start = np.where(inside, start, 0)
            if ins.index in self.slice.joined:
                self.notes.read(ins.index, names[0], numbers.size, start, size)
            bytes_ = np.stack([numbers[start + i] for i in range(size)], axis=-1)
            return np.ascontiguousarray(bytes_).view(kind)[..., 0]

        return load

    def _go(self, piece: Piece, frame: Frame, due: dict[int, list[Array]]) -> None:
        who, branch = frame.numbers, piece.branch
        if branch is None or not branch.guard:
            onward = piece.follows if branch is None else piece.target
            if onward is not None:
                due.setdefault(onward, []).append(who)
            return
        by = frame.register(branch.guard)
        taken = self._guess(piece, branch, who) if by is None else by != branch.negated
        count = np.count_nonzero(taken)
        if not count or count == taken.size:
            onward = piece.target if count else piece.follows
            if onward is not None:
                due.setdefault(onward, []).append(who)
            return
        for onward, chosen in ((piece.target, taken), (piece.follows, ~taken)):
            if onward is not None:
                due.setdefault(onward, []).append(who[chosen])

    def _guess(self, piece: Piece, branch: Instruction, who: Array) -> Array:
        """Who takes a branch that depends on memory: nobody one that leads back, everybody one past
        a branch back, else every other thread."""
        if piece.target is not None and piece.target <= branch.index:
            return np.zeros(who.shape, np.bool_)
        after = self._pieces.get(piece.follows) if piece.follows is not None else None
        if after is not None and after.leads_back(branch.index):
            return np.ones(who.shape, np.bool_)
        chosen: Array = (who + branch.index) % 2 == 0
        return chosen


_TRUE: Final = np.array([True])


def _unknown(_: Frame) -> Array | None:
    return None
