"""Registers of all threads, and the frame of those that run together.

Made and read by `machine` and its watchers. A frame is kept from block to block for as long as the
same threads run, so that registers are gathered and scattered only where threads part or meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage.program import arithmetic
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.dataflow.program.parse import Operand


class Threads(NamedTuple):
    """What threads see: each a number of `total`, or one for all. `specials` by the names of
    registers, `params` by the names of parameters; `launch` is the number of the launch that a
    thread is of, `cta` that of its CTA among all; `ends` says of each launch where its groups end,
    and `ends_at` at which address."""

    total: int
    specials: Mapping[str, Array]
    params: Mapping[str, Array]
    launch: Array
    cta: Array
    ends: Array | None = None
    ends_at: Array | None = None


class Launches(NamedTuple):
    """Threads by the launch that they are of: `order` puts those of one launch together, `numbers`
    has the launches, `starts` where each begins in that order and `of` which one each thread has,
    counted from 0."""

    order: Array
    numbers: Array
    starts: Array
    of: Array


@dataclass(slots=True)
class Registers:
    """What the registers of `threads` hold. `places`: symbols by where they are; `crossing`: names
    that are read in another block than the one that wrote them, the others are not kept."""

    threads: Threads
    places: Mapping[str, Array]
    crossing: Set[str]
    everyone: Array
    values: dict[str, Array] = field(default_factory=dict)
    _owned: set[str] = field(default_factory=set)  # those whose array is no other's

    def write(self, name: str, value: Array, who: Array | None) -> None:
        """Keep what threads wrote; `who` is None for all."""
        if who is None:
            self.values[name] = value
            self._owned.discard(name)
            return
        whole = self.values.get(name)
        if whole is None or name not in self._owned or whole.dtype is not value.dtype:
            fresh = np.zeros(self.threads.total, value.dtype)
            if whole is not None and whole.dtype.itemsize == value.dtype.itemsize:
                fresh[:] = arithmetic.as_kind(whole, value.dtype.type)
            whole = self.values[name] = fresh
            self._owned.add(name)
        whole[who] = value


@dataclass(slots=True)
class Frame:
    """Threads that run together, and their registers as far as they read or wrote them. `who` is
    None for all; `fresh` names what is written and not yet in `registers`; `whole` is the frame
    that these threads are `chosen` from, where they are some of one."""

    registers: Registers
    who: Array | None
    local: dict[str, Array] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    whole: Frame | None = None
    chosen: Array | None = None
    _launches: Launches | None = None

    def launches(self) -> Launches:
        """The threads by their launches."""
        if self._launches is None:
            launch = self.registers.threads.launch[self.numbers]
            order = np.argsort(launch, kind="stable")
            ordered = launch[order]
            begins = np.ones(launch.size, np.bool_)
            np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
            starts = begins.nonzero()[0]
            self._launches = Launches(order, ordered[starts], starts, begins.cumsum() - 1)
        return self._launches

    @property
    def numbers(self) -> Array:
        """The numbers of the threads."""
        return self.registers.everyone if self.who is None else self.who

    def part(self, chosen: Array) -> Frame:
        """The same for some of the threads, which write nothing."""
        return Frame(self.registers, self.numbers[chosen], whole=self, chosen=chosen)

    def write(self, name: str, value: Array) -> None:
        """Let a register hold a value."""
        self.local[name] = value
        self.fresh.add(name)

    def leave(self) -> None:
        """Put what was written where other threads' registers are."""
        for name in self.fresh & self.registers.crossing:
            self.registers.write(name, self.local[name], self.who)
        self.fresh.clear()

    def register(self, name: str) -> Array | None:
        """What a register holds, None where it is not known."""
        found = self.local.get(name)
        if found is not None:
            return found
        if self.whole is not None:
            every = self.whole.register(name)
        else:
            every = self.registers.values.get(name)
        return self._of_these(name, every)

    def special(self, name: str) -> Array | None:
        """What a special register holds."""
        found = self.local.get(name)
        if found is not None:
            return found
        return self._of_these(name, self.registers.threads.specials.get(name), all_threads=True)

    def symbol(self, name: str) -> Array | None:
        """The number of a parameter, or where an array begins."""
        found = self.local.get(name)
        if found is not None:
            return found
        every = self.registers.threads.params.get(name, self.registers.places.get(name))
        return self._of_these(name, every, all_threads=True)

    def _of_these(self, name: str, every: Array | None, all_threads: bool = False) -> Array | None:
        if every is None:
            return None
        if every.size > 1:
            if self.chosen is not None and not all_threads:
                every = every[self.chosen]
            elif self.who is not None:
                every = every[self.who]
        self.local[name] = every
        return every

    def value(self, operand: Operand, kind: type | None) -> Array | None:
        """What an operand is as a number of a type, None where that is not known."""
        return reader(operand, kind)(self)

    def sum(self, operand: Operand) -> Array | None:
        """The address in brackets."""
        return adder(operand)(self)


#: What an operand is in a frame, None where that is not known.
Reader = Callable[[Frame], "Array | None"]


def reader(operand: Operand, kind: type | None) -> Reader:
    """What reads an operand as a number of a type, or as it is."""
    if operand.kind == "number":
        number = arithmetic.constant(operand.value, kind or np.int64)
        return lambda _: number
    find = _FINDERS.get(operand.kind)
    if find is None:
        return lambda _: None
    name = operand.name
    if kind is None:
        return lambda frame: find(frame, name)
    asked, wanted = kind, np.dtype(kind)

    def read(frame: Frame) -> Array | None:
        found = frame.local.get(name)
        if found is None:
            found = find(frame, name)
            if found is None:
                return None
        return found if found.dtype is wanted else arithmetic.as_kind(found, asked)

    return read


_FINDERS: Final[Mapping[str, Callable[[Frame, str], Array | None]]] = {
    "register": Frame.register,
    "special": Frame.special,
    "symbol": Frame.symbol,
}


def adder(operand: Operand) -> Reader:
    """What adds up the address in brackets."""
    parts = [reader(part, np.int64) for part in operand.parts]

    def add(frame: Frame) -> Array | None:
        total: Array | None = None
        for part in parts:
            found = part(frame)
            if found is None:
                return None
            total = found if total is None else total + found
        return total

    return add
