"""The state of one analysis: what each register and each piece of memory may hold, and what was
refused.

Made by `gate`, written by the rules (`arithmetic`, `memory`, `products`). Registers and memory only
ever gain kinds, whatever the order of instructions, so that going over them until nothing changes
is sound for every path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hgemm_packs.generator.gates.dataflow import values
from hgemm_packs.generator.gates.dataflow.program.loops import Induction
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Kernel, Operand
from hgemm_packs.generator.gates.dataflow.program.threads import ByThread, Threads
from hgemm_packs.generator.gates.dataflow.values import (
    CLEAN,
    FINISHED,
    NUMBER,
    ONES,
    SUM,
    ZERO,
    Value,
    constant,
    fits,
    join,
)
from hgemm_packs.pack.manifest import MAPPED

#: What a parameter is, and what its memory is called: see `roles`.
OPERANDS: Final = {"A": values.A, "B": values.B}


#: So often may the bounds of a register move before they are given up: a stage of a ring moves as
#: often as the ring has stages.
MOST_MOVES: Final = 24


#: The name of all arrays in shared memory together.
ANY_SHARED: Final = "shared memory"


class Place(NamedTuple):
    """A part of a piece of memory: bytes from `low` to `high`, None where there is no bound."""

    name: str
    low: int | None = None
    high: int | None = None
    padded: str = ""

    def meets(self, other: Place) -> bool:
        """Whether both may be the same bytes. What aligns one and not the other may be anything
        up to its size."""
        if self.name != other.name:
            return ANY_SHARED in (self.name, other.name)
        if None in (self.low, self.high, other.low, other.high):
            return True
        slack = 0 if self.padded == other.padded else 4096
        assert self.low is not None and self.high is not None
        assert other.low is not None and other.high is not None
        return self.low < other.high + slack and other.low < self.high + slack


@dataclass(slots=True)
class Flow:
    """`roles`: parameter -> what it points to, none of those that are numbers; `fields` are the
    kernel's manifest fields; `exceptions` names what its family was allowed."""

    kernel: Kernel
    roles: Mapping[str, str]
    fields: Mapping[str, Any]
    exceptions: frozenset[str] = frozenset()
    sizes: Mapping[str, Value] = field(default_factory=dict)  # parameters: M, N and K
    inductions: Mapping[str, Induction] = field(default_factory=dict)
    unset: frozenset[int] = frozenset()  # products whose sums some path has not set
    threads: Threads = field(default_factory=lambda: Threads(0))
    active: int = 0  # threads that come to the instruction in hand, a bit for each
    registers: dict[str, Value] = field(default_factory=dict)
    hulls: dict[tuple[str, int], tuple[int, int] | None] = field(default_factory=dict)
    contents: dict[Place, int] = field(default_factory=dict)
    defined_by: dict[str, list[Instruction]] = field(default_factory=dict)
    used_by: dict[str, list[int]] = field(default_factory=dict)
    readers: list[int] = field(default_factory=list)  # of memory
    moves: dict[str, int] = field(default_factory=dict)
    due: bytearray = field(default_factory=bytearray)  # instructions to be looked at again
    refusals: dict[int, str] = field(default_factory=dict)
    reporting: bool = False

    @property
    def maps(self) -> Sequence[str]:
        """Parameters that are tensor maps: copies name them, and nothing reads them."""
        return self.kernel.params[: len(MAPPED[str(self.fields["param_layout"])])]

    @property
    def strides(self) -> Sequence[str]:
        """Parameters that are strides of those of A, B and C that are no tensor maps."""
        numbers = [x for x in self.kernel.params if x not in self.roles and x not in self.maps]
        return numbers[3 : 6 - len(self.maps)]

    @property
    def dtype(self) -> str:
        """The type of A, B and C."""
        return str(self.fields["dtype"])

    def value(self, operand: Operand) -> Value:
        """What an operand that is no address may be."""
        kind = operand.kind
        if kind == "register":
            return self._narrowed(operand.name, self.register(operand.name))
        if kind == "number":
            return constant(operand.value)
        if kind == "symbol":
            name = self.roles.get(operand.name, operand.name)
            return Value(CLEAN, 0, 0, 0, 0, frozenset((name,)))
        if kind == "special":
            return self._special(operand.name)
        whole = ZERO
        for part in operand.parts:
            whole = join(whole, self.value(part))
        return whole

    def register(self, name: str) -> Value:
        """What a register may hold where it is read."""
        joined = self.kernel.joins.get(name)
        if joined is None:
            return self.registers.get(name, ZERO)
        stepped = self.inductions.get(name)
        if stepped is not None:
            return self._stepped(stepped)
        found: Value | None = None
        for each in joined:
            value = self.registers.get(each)
            if value is not None:
                found = value if found is None else join(found, value)
        if found is None:
            return ZERO
        if found.kinds & SUM and found.kinds & FINISHED:
            # Sums that are finished where they stand are still there when the next tile's come.
            return found._replace(kinds=found.kinds & ~FINISHED)
        return found

    def _stepped(self, by: Induction) -> Value:
        """A number or address that a loop steps."""
        first = self.registers.get(by.first, ZERO)
        if first.low is None or first.high is None:
            return first
        way = by.step * (by.times - 1)
        zeros = min(first.zeros, (by.step & -by.step).bit_length() - 1)
        return first._replace(
            kinds=first.kinds | CLEAN,
            low=first.low + min(way, 0),
            high=first.high + max(way, 0),
            zeros=zeros,
        )

    def maker(self, operand: Operand) -> Instruction | None:
        """The one instruction that made a register, None where there are several."""
        makers = self.defined_by.get(operand.name, ())
        return makers[0] if len(makers) == 1 and not makers[0].guard else None

    def _narrowed(self, name: str, value: Value) -> Value:
        """A register, as far as it follows from the thread's number in the threads that are
        here."""
        known = self.threads.known.get(name)
        if known is not None:
            hull = self._hull(name, known)
            return value if hull is None else _placed(value, known, *hull)
        whole = self.threads.sums.get(name)
        if whole is None or value.kinds != CLEAN:
            return value
        known, rest = whole
        hull = self._hull(name, known)
        if hull is None:
            return value
        low, high = hull
        base, padded = known.base, known.padded
        for each in rest:
            other = self.register(each)
            if other.low is None or other.high is None or len(other.bases) > 1:
                return value
            if (base and other.bases) or (padded and other.padded):
                return value
            low, high = low + other.low, high + other.high
            base, padded = base or "".join(other.bases), padded or other.padded
        if (
            value.low is not None
            and value.high is not None
            and value.high - value.low <= high - low
        ):
            return value
        return _placed(value, ByThread((), base, padded), low, high)

    def _hull(self, name: str, known: ByThread) -> tuple[int, int] | None:
        """The least and the most of a part that follows from the thread's number."""
        key = name, self.active
        if key not in self.hulls:
            values, who = known.values, self.active
            everyone = who + 1 == 1 << len(values)
            here = values if everyone else [x for i, x in enumerate(values) if who >> i & 1]
            self.hulls[key] = (min(here), max(here)) if here else None
        return self.hulls[key]

    def _special(self, name: str) -> Value:
        """Where a thread stands."""
        if name == "%tid.x":
            return Value(CLEAN, 0, 0, int(self.fields["block"]) - 1)
        if name in ("%tid.y", "%tid.z"):
            return ZERO
        if name == "%laneid":
            return Value(CLEAN, 0, 0, 31)
        if name in ("%cluster_ctarank", "%cluster_ctaid.x"):
            ranks = 1
            for side in self.fields["cluster"]:
                ranks *= int(side)
            return Value(CLEAN, 0, 0, max(ranks - 1, 1))
        if name.startswith(("%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%ntid")):
            return Value(CLEAN, 0, 0, (1 << 31) - 1)
        return NUMBER

    def write(self, operand: Operand, value: Value) -> None:
        """Let a register, or each of several, also be `value`."""
        if operand.kind != "register":
            for part in operand.parts:
                self.write(part, value)
            return
        name = operand.name
        before = self.registers.get(name)
        after = value if before is None else join(before, value)
        if after == before:
            return
        if before is not None and (after.low, after.high) != (before.low, before.high):
            moves = self.moves.get(name, 0) + 1
            self.moves[name] = moves
            if moves > MOST_MOVES:
                after = after._replace(low=None, high=None)
                if after == before:
                    return
        self.registers[name] = after
        due = self.due
        for index in self.used_by.get(name, ()):
            due[index] = 1

    def leave(self, place: Place, kinds: int) -> None:
        """Let a part of memory also hold `kinds`."""
        before = self.contents.get(place)
        if before is None or kinds & ~before:
            self.contents[place] = (before or 0) | kinds
            for index in self.readers:
                self.due[index] = 1

    def refuse(self, ins: Instruction, rule: str) -> None:
        """Note what an instruction does that no kernel may; the first rule that it breaks."""
        if self.reporting and ins.index not in self.refusals:
            self.refusals[ins.index] = f"{rule} in '{ins.text[:120]}'"

    def need(self, ins: Instruction, value: Value, allowed: int, rule: str) -> bool:
        """Refuse unless a value is of the kinds `allowed` alone, or one of several kinds that its
        memory holds is."""
        if allowed & CLEAN:
            allowed |= ONES
        if fits(value.kinds, allowed):
            return True
        self.refuse(ins, f"{rule}: {values.words(value.kinds & ~allowed)}")
        return False

    def need_clean(self, ins: Instruction, operands: Iterable[Operand], rule: str) -> None:
        """Refuse unless all operands are numbers."""
        for operand in operands:
            if operand.kind != "number":
                self.need(ins, self.value(operand), CLEAN, rule)


def _placed(value: Value, known: ByThread, low: int, high: int) -> Value:
    """A number or address with other bounds; those that a signed register would not hold are
    none."""
    if known.padded.startswith("-") or (not known.base and high >= 1 << 31):
        return value
    bases = frozenset((known.base,)) if known.base else value.bases
    return value._replace(low=low, high=high, bases=bases, padded=known.padded)
