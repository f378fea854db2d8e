"""Numbers that loops step, and what they are stepped by.

Called by `steering`. A number that grows by what grows itself is a polynomial of the loop's turns,
and so may be the same for all the sizes that problems of the gate have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

#: Instructions that make a number of numbers; what comes from memory or from other lanes is none.
_COUNTING: Final = frozenset(
    ("mov", "cvt", "selp", "add", "sub", "neg", "mul", "mad", "fma", "div", "rem", "shl", "shr")
) | frozenset(("and", "or", "xor", "not", "min", "max", "abs", "bfi", "bfe", "shf", "prmt", "sad"))
_HANDS_ON: Final = frozenset(("mov", "cvt", "selp"))
_SCALES: Final = {"mul": (1, 2), "mad": (1, 2), "fma": (1, 2), "shl": (1, 2), "sad": (1, 2)}


@dataclass(slots=True)
class Cycles:
    """`made` as `slices.makers` has it; `is_number`: which registers are followed. `of` has the
    cycle of each register that is made of itself, as a number of its own."""

    made: Mapping[str, Sequence[Instruction]]
    is_number: Callable[[str], bool]
    of: dict[str, int] = field(default_factory=dict)
    turning: set[str] = field(default_factory=set)  # what follows from a register of a cycle

    def __post_init__(self) -> None:
        self._search()

    def curved(self) -> Iterator[Instruction]:
        """Steps of a loop's number by another number that a loop steps, by itself, or by more than
        an addition."""
        for name, cycle in self.of.items():
            yield from (ins for ins in self.made[name] if self._is_curved(ins, cycle))

    def steps(self) -> Iterator[tuple[Instruction, list[str]]]:
        """Instructions that step a loop's number, each with what else they read."""
        for name, cycle in self.of.items():
            for ins in self.made[name]:
                read = [x for operand in ins.operands[1:] for x in self._read(operand)]
                if ins.opcode[0] not in _HANDS_ON and any(self.of.get(x) == cycle for x in read):
                    yield ins, [x for x in read if self.of.get(x) != cycle]

    def begins(self, name: str) -> list[str]:
        """What the cycle of a register begins with; the register itself where it has none."""
        cycle = self.of.get(name)
        if cycle is None:
            return [name]
        found = []
        for member in (x for x, number in self.of.items() if number == cycle):
            for ins in self.made[member]:
                read = [x for operand in ins.operands[1:] for x in self._read(operand)]
                if all(self.of.get(x) != cycle for x in read):
                    found += read
        return found

    def _is_curved(self, ins: Instruction, cycle: int) -> bool:
        if ins.opcode[0] in _HANDS_ON:
            return False
        read = [self._read(operand) for operand in ins.operands[1:]]
        own = [i for i, names in enumerate(read, 1) if any(self.of.get(x) == cycle for x in names)]
        if not own:
            return False
        if len(own) > 1 or own[0] in _SCALES.get(ins.opcode[0], ()):
            return True
        others = (x for i, names in enumerate(read, 1) if i != own[0] for x in names)
        return any(x in self.turning for x in others)

    def _read(self, operand: Operand) -> list[str]:
        return [x for x in operand.registers() if self.is_number(x)]

    def _sources(self, name: str) -> list[str]:
        """Numbers that a number is made of."""
        return [
            x
            for ins in self.made.get(name, ())
            if ins.opcode[0] in _COUNTING
            for operand in ins.operands[1:]
            for x in self._read(operand)
        ]

    def _search(self) -> None:
        """Strongly connected registers, after Tarjan: a cycle is told once all it is made of is."""
        found: dict[str, int] = {}  # in the order in which they were met
        low: dict[str, int] = {}
        path: list[str] = []
        on_path: set[str] = set()
        for start in [x for x in self.made if self.is_number(x)]:
            if start in found:
                continue
            due = [(start, iter(self._enter(start, found, low, path, on_path)))]
            while due:
                name, sources = due[-1]
                for each in sources:
                    if each not in found:
                        due.append((each, iter(self._enter(each, found, low, path, on_path))))
                        break
                    if each in on_path:
                        low[name] = min(low[name], found[each])
                else:
                    due.pop()
                    if due:
                        low[due[-1][0]] = min(low[due[-1][0]], low[name])
                    if low[name] == found[name]:
                        self._close(name, path, on_path)

    def _enter(
        self,
        name: str,
        found: dict[str, int],
        low: dict[str, int],
        path: list[str],
        on_path: set[str],
    ) -> list[str]:
        found[name] = low[name] = len(found)
        path.append(name)
        on_path.add(name)
        return self._sources(name)

    def _close(self, name: str, path: list[str], on_path: set[str]) -> None:
        """Take what is connected off the path."""
        at = path.index(name)
        members = path[at:]
        del path[at:]
        on_path.difference_update(members)
        is_cycle = len(members) > 1 or name in self._sources(name)
        if is_cycle:
            number = len(self.of)
            self.of |= dict.fromkeys(members, number)
        if is_cycle or any(x in self.turning for x in self._sources(name)):
            self.turning.update(members)
