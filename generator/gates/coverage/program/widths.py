"""Instructions that keep some bits of a number, or some of its values: which bits were lost, and
which values never came.

A size, a position or an offset that is cut to fewer bits is another one beyond them. `machine` asks
for each instruction that it computes; `gate` refuses what only problems that nobody runs would
lose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array, as_kind, unsigned
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Kernel

#: Whether any of the results lost a bit of its operands.
Loses = Callable[[Sequence[Array], Array], bool]


def kept(ins: Instruction) -> int | None:
    """How many of a number's last bits an instruction keeps, None where that is no constant."""
    name, numbers = ins.opcode[0], [x.value for x in ins.operands[1:] if x.kind == "number"]
    if name == "and" and ins.opcode[-1] != "pred" and len(numbers) == 1 and numbers[0] > 0:
        bits = numbers[0].bit_length()
        return bits if bits < _bits(ins.opcode[-1]) else None
    if name == "cvt" and _is_whole(ins.opcode[-1]) and _is_whole(ins.opcode[-2]):
        to, source = _bits(ins.opcode[-2]), _bits(ins.opcode[-1])
        return to if to < source else None
    if name == "shl" and len(numbers) == 1 and ins.operands[2].kind == "number":
        return max(_bits(ins.opcode[-1]) - numbers[0], 0)
    if name == "bfi" and ins.operands[1].kind != "number" and len(numbers) == 2:
        return numbers[1]
    if name == "bfe" and len(numbers) == 2:
        return sum(numbers)
    if name in ("add", "sub") and ins.opcode[-1] in _SHORT:
        return _bits(ins.opcode[-1])
    return None


def factor(ins: Instruction) -> int:
    """What an instruction takes a number of 32 bits times, as far as that is a constant."""
    if ins.opcode[-1] not in WHOLE or ins.opcode[0] not in ("mul", "mad", "shl"):
        return 1
    if ins.opcode[0] == "shl":
        by = ins.operands[2]
        return 1 << min(by.value, 32) if by.kind == "number" else 1
    numbers = [abs(x.value) for x in ins.operands[1:3] if x.kind == "number"]
    return numbers[0] if numbers and "lo" in ins.opcode else 1


def wraps(kernel: Kernel, lost: Set[int], grown_to: Callable[[str], int | None]) -> set[int]:
    """Products that `lost` bits, for it may be others that are lost in all problems of the gate,
    and what reads numbers that do not hold what they come to: `grown_to` says so of a register
    where it is known to grow."""
    found = {at for at in lost if kernel.instructions[at].opcode[0] in ("mul", "mad", "shl")}
    for ins in kernel.instructions:
        read = [x for operand in ins.operands[1:] for x in operand.registers()]
        grown = (grown_to(x) for x in read if kernel.type_of(x) == "b32")
        most = max((x for x in grown if x is not None), default=0)
        if most * factor(ins) >= MOST:
            found.add(ins.index)
    return found


def _is_whole(word: str) -> bool:
    return word[:1] in ("s", "u", "b") and word[1:].isdecimal()


def _bits(word: str) -> int:
    return int(word[1:]) if word[1:].isdecimal() else 0


def loses(ins: Instruction) -> Loses | None:
    """What tells of an instruction whether it lost bits; None for one that keeps all."""
    bits, name = kept(ins), ins.opcode[0]
    if name == "bfi" and all(x.kind == "number" for x in ins.operands[3:]):
        return _inserts(bits, ins.operands[3].value, ins.operands[4].value)
    if bits is None and name == "cvt" and _is_whole(ins.opcode[-1]):
        bits = _bits(ins.opcode[-1])  # of a register that may have more
    if bits is not None:
        at = 1 if ins.operands[1].kind == "number" else 0
        return lambda values, _: _is_beyond(values[at], bits)
    if name in ("mul", "mad") and "lo" in ins.opcode and _is_whole(ins.opcode[-1]):
        most = 2.0 ** _bits(ins.opcode[-1])
        return lambda values, _: bool(np.any(_product(values) >= most))
    return None


def _inserts(bits: int | None, at: int, count: int) -> Loses:
    """What tells whether a field was cut, or bits of the number that it is put into."""

    def loses(values: Sequence[Array], _: Array) -> bool:
        field, base = values[:2]
        under = as_kind(np.array([((1 << count) - 1) << at], np.uint64), base.dtype.type)
        return bool(np.any(base & under)) or (bits is not None and _is_beyond(field, bits))

    return loses


def cut_of(ins: Instruction) -> Loses:
    """The same of a load from a parameter, which may have more bits than are loaded."""
    bits = _bits(ins.opcode[-1])
    return lambda values, _: _is_beyond(values[0], bits)


def _product(values: Sequence[Array]) -> Array:
    size: Array = np.abs(values[0].astype(np.float64) * values[1].astype(np.float64))
    return size


def _is_beyond(value: Array, bits: int) -> bool:
    """Whether a number, with a sign or without, has more than so many bits."""
    if bits >= value.dtype.itemsize * 8:
        return False
    as_signed = (value >> max(bits - 1, 0)) if bits else value
    over = (unsigned(value) >> unsigned(as_kind(np.array([bits]), value.dtype.type))) != 0
    return bool(np.any(over & (as_signed != -1)))


@dataclass(slots=True)
class Notes:
    """What was seen of one kernel's instructions: those that `lost` bits, of all or of `asked`; the
    values of some that `came`; bytes of an array in constant memory that each load by sizes has
    read, and loads from `beyond` an array; divisions `by_zero`; those whose result nobody knew;
    and, where that is asked for, those that widen numbers `near` the end of what they hold."""

    lost: set[int] = field(default_factory=set)
    asked: Set[int] | None = frozenset()
    came: dict[int, set[int]] = field(default_factory=dict)
    tables: dict[tuple[str, int], Array] = field(default_factory=dict)
    beyond: set[int] = field(default_factory=set)
    by_zero: set[int] = field(default_factory=set)
    blank: set[int] = field(default_factory=set)
    near: set[int] | None = None

    def asks(self, at: int) -> bool:
        """Whether it is to be seen if an instruction loses bits."""
        return (self.asked is None or at in self.asked) and at not in self.lost

    def note(self, at: int, loses: Loses | None, values: Sequence[Array], result: Array) -> None:
        """Note a result of an instruction."""
        if loses is not None and self.asks(at) and loses(values, result):
            self.lost.add(at)
        if at in self.came:
            self.came[at].update(np.unique(result).tolist())

    def read(self, at: int, name: str, size: int, start: Array, width: int) -> None:
        """Note what a load read of an array of `size` bytes."""
        found = self.tables.setdefault((name, at), np.zeros(size, np.bool_))
        found[np.unique(start)[:, None] + np.arange(width)] = True


def widens(ins: Instruction) -> bool:
    """Whether an instruction reads a number of 32 bits as one of more."""
    name, words = ins.opcode[0], ins.opcode
    if name == "cvt":
        return words[-1] in WHOLE and (words[-2] == "f32" or words[-2].endswith("64"))
    return name in ("mul", "mad") and "wide" in words and words[-1] in WHOLE


WHOLE: Final = ("s32", "u32", "b32")
MOST: Final = 1 << 32  # of a number of 32 bits
_SHORT: Final = ("s16", "u16")  # in which a few thousand steps come round
NEAR: Final = 1 << 30  # more than any offset in a problem that fits a gate


def is_near(ins: Instruction, values: Sequence[Array]) -> bool:
    """Whether any number that `ins` widens would pass its end with a few more, and be another."""
    factors = zip(ins.operands[1:3], values, strict=False)
    numbers = [value for operand, value in factors if operand.kind != "number"]
    signed = ins.opcode[-1] == "s32"
    return any(
        bool(np.any(np.abs(each.astype(np.int64)) >= NEAR))
        if signed
        else bool(np.any(unsigned(each) >= NEAR))
        for each in numbers
    )


#: Instructions that make a number of two: what several comparisons or bits come to together.
JOINING: Final = frozenset(("add", "sub", "mul", "mad", "or", "xor", "bfi", "selp"))
MOST_VALUES: Final = 64


def values_of(low: int, high: int, zeros: int) -> frozenset[int]:
    """The multiples of a power of two in a range, none where there are many."""
    step = 1 << min(zeros, 32)
    found = range(-(-low // step) * step, high + 1, step)
    return frozenset(found) if 1 < len(found) <= MOST_VALUES else frozenset()


def missing(wanted: Mapping[int, frozenset[int]], came: Mapping[int, set[int]]) -> dict[int, int]:
    """Instructions that have made some of their values and not others: one of these each."""
    return {
        at: min(values - came[at])
        for at, values in wanted.items()
        if at in came and values - came[at]
    }
