"""Instructions on integers, predicates and the few floats that quotients are found by (`floats`),
for many threads at once.

Called by `machine`, for opcodes that `opcodes` has. A register of 16, 32 or 64 bits is a numpy
array of int16, int32 or int64, one number a thread or one for all; a predicate is bool, a float
float32. Numbers wrap as registers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program import floats
from hgemm_packs.generator.gates.coverage.program.opcodes import is_known

Array = np.ndarray[Any, Any]
Rule = Callable[..., Array]

TYPES: Final[Mapping[str, type]] = {
    "16": np.int16,
    "32": np.int32,
    "64": np.int64,
    "pred": np.bool_,
    "f32": np.float32,
}
_UNSIGNED: Final[Mapping[type, type]] = {
    np.int16: np.uint16,
    np.int32: np.uint32,
    np.int64: np.uint64,
}
_WIDER: Final[Mapping[type, type]] = {np.int16: np.int32, np.int32: np.int64}
#: Where an address in shared memory tells of which CTA of its cluster it is, by the CTA's rank plus
#: one; zeros for the own one.
RANK_BIT: Final = 26


def type_of(word: str) -> type | None:
    """The array type of an instruction's type, None for one that this module has no numbers of."""
    if word in ("pred", "f32"):
        return TYPES[word]
    return TYPES.get(word[1:]) if word[:1] in "sub" else None


def constant(value: int, kind: type) -> Array:
    """A number of an instruction as a register holds it."""
    if kind is np.bool_:
        return np.array([bool(value)])
    if kind is np.float32:
        return np.array([value & 0xFFFFFFFF], np.uint32).view(np.float32)
    bits = np.dtype(kind).itemsize * 8
    value &= (1 << bits) - 1
    return np.array([value - (1 << bits) if value >> bits - 1 else value], kind)


def as_kind(value: Array, kind: type) -> Array:
    """A register read as another type: bits of the same width, or the lower bits."""
    if value.dtype == kind:
        return value
    if value.dtype.itemsize == np.dtype(kind).itemsize and value.dtype != np.bool_:
        return value.view(kind)
    return value.astype(kind)


def unsigned(value: Array) -> Array:
    """The same bits as a number without a sign."""
    return value.view(_UNSIGNED[value.dtype.type])


def _typed(word: str, value: Array) -> Array:
    return unsigned(value) if word[0] in "ub" and value.dtype.kind == "i" else value


def _signed(value: Array) -> Array:
    if value.dtype.kind != "u":
        return value
    return value.view({2: np.int16, 4: np.int32, 8: np.int64}[value.dtype.itemsize])


def _two(function: Callable[[Array, Array], Array]) -> Callable[[Sequence[str]], Rule]:
    def make(opcode: Sequence[str]) -> Rule:
        word = opcode[-1]
        if word[0] != "u":
            return lambda a, b: function(a, b)
        return lambda a, b: _signed(function(_typed(word, a), _typed(word, b)))

    return make


def _add(opcode: Sequence[str]) -> Rule:
    if opcode[-1] == "f32" and "rz" in opcode:
        return floats.add_towards_zero
    return np.add


def _multiply(opcode: Sequence[str]) -> Rule:
    word = opcode[-1]
    if word == "f32" or "lo" in opcode:
        return np.multiply
    if "wide" in opcode:
        return lambda a, b: _wide(word, a, b)
    if word[1:] == "64":
        return lambda a, b: _upper_of_64(word, a, b)
    bits = int(word[1:])

    def upper(a: Array, b: Array) -> Array:
        product = _wide(word, a, b)
        shifted = product >> bits if word[0] == "s" else unsigned(product) >> np.uint64(bits)
        return shifted.astype(a.dtype)

    return upper


def _wide(word: str, a: Array, b: Array) -> Array:
    to = _WIDER[a.dtype.type]
    return _typed(word, a).astype(to) * _typed(word, b).astype(to)


def _upper_of_64(word: str, a: Array, b: Array) -> Array:
    if word[0] != "s":
        a, b = unsigned(a), unsigned(b)
    product = (a.astype(object) * b.astype(object)) >> 64
    wrapped = [(int(x) + (1 << 63)) % (1 << 64) - (1 << 63) for x in np.atleast_1d(product)]
    return np.array(wrapped, np.int64)


def _mad(opcode: Sequence[str]) -> Rule:
    times = _multiply(opcode)
    return lambda a, b, c: times(a, b) + c


def _shift(opcode: Sequence[str]) -> Rule:
    word = opcode[-1]
    bits = int(word[1:])
    fills = opcode[0] == "shr" and word[0] == "s"

    def by_one(a: Array, amount: int) -> Array:
        if amount >= bits and not fills:
            return np.zeros_like(a)
        least = a.dtype.type(min(amount, bits - 1))
        if opcode[0] == "shr" and not fills:
            return _signed(unsigned(a) >> unsigned(least))
        shifted: Array = a << least if opcode[0] == "shl" else a >> least
        return shifted

    def shift(a: Array, by: Array) -> Array:
        if by.size == 1:
            return by_one(a, int(by[0]) & 0xFFFFFFFF)
        amount = unsigned(as_kind(by, np.int32)).astype(np.int64)
        beyond = amount >= bits
        amount = np.minimum(amount, bits - 1).astype(a.dtype)
        if opcode[0] == "shl":
            return np.where(beyond, a.dtype.type(0), a << amount)
        if fills:
            return a >> amount
        return np.where(beyond, a.dtype.type(0), _signed(unsigned(a) >> unsigned(amount)))

    return shift


def _divide(opcode: Sequence[str]) -> Rule:
    word = opcode[-1]
    if word == "f32":
        return lambda a, b: a / b

    def divide(a: Array, b: Array) -> Array:
        a, b = _typed(word, a), _typed(word, b)
        a, b = np.broadcast_arrays(a, np.where(b == 0, b.dtype.type(1), b))
        if word[0] != "s":
            return _signed(a // b if opcode[0] == "div" else a % b)
        rest = np.fmod(a, b)
        quotient: Array = (a - rest) // b
        return rest if opcode[0] == "rem" else quotient

    return divide


def _compare(opcode: Sequence[str]) -> Rule:
    test = COMPARISONS[opcode[1]]
    word = opcode[-1]
    if opcode[1] in ("lo", "ls", "hi", "hs"):
        word = "u" + word[1:]
    if word[0] not in "ub" or opcode[1] in ("eq", "ne"):
        return test
    return lambda a, b: test(_typed(word, a), _typed(word, b))


COMPARISONS: Final[Mapping[str, Callable[[Array, Array], Array]]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def _convert(opcode: Sequence[str]) -> Rule | None:
    to, source = opcode[-2], opcode[-1]
    kind, other = type_of(to), type_of(source)
    if kind is None or other is None:
        return None
    if source == "f32":
        whole = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
        rounds = next((whole[word] for word in opcode if word in whole), np.rint)
        bits = int(to[1:])
        least, most = (
            (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
        )
        most = min(most, (1 << 62))  # in float64, which has not each number of 64 bits
        return lambda a: (
            np.clip(rounds(np.nan_to_num(a.astype(np.float64))), least, most)
            .astype(np.int64)
            .astype(kind)
        )
    # A register may be wider than the type: `a` is as the register holds it.
    return lambda a: _typed(source, as_kind(a, other)).astype(kind)


def _insert(opcode: Sequence[str]) -> Rule:
    def insert(field: Array, base: Array, at: Array, length: Array) -> Array:
        bits = np.dtype(field.dtype).itemsize * 8
        start, count = int(at.flat[0]) & 255, int(length.flat[0]) & 255
        mask = ((1 << count) - 1 << start) & ((1 << bits) - 1)
        over = constant(mask, field.dtype.type)
        return (field << min(start, bits - 1)) & over | base & ~over

    return insert


def _extract(opcode: Sequence[str]) -> Rule:
    word = opcode[-1]

    def extract(value: Array, at: Array, length: Array) -> Array:
        bits = int(word[1:])
        start, count = int(at.flat[0]) & 255, min(int(length.flat[0]) & 255, bits)
        if not count:
            return np.zeros_like(value)
        if word[0] == "s":
            return (value << max(bits - start - count, 0)) >> (bits - count)
        mask = constant((1 << count) - 1, value.dtype.type)
        return _signed(unsigned(value) >> unsigned(constant(start, value.dtype.type))) & mask

    return extract


def _logic(opcode: Sequence[str]) -> Rule:
    return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[opcode[0]]


def _reciprocal(opcode: Sequence[str]) -> Rule:
    if "approx" not in opcode:
        return floats.reciprocal
    flushes = "ftz" in opcode
    return lambda a: floats.estimate(a, flushes)


def _in_another_cta(address: Array, rank: Array) -> Array:
    found: Array = address + ((rank + 1) << RANK_BIT)
    return found


def rule_of(opcode: tuple[str, ...]) -> Rule | None:
    """What computes the result of an instruction of its operands; None where nothing here does."""
    make = RULES.get(opcode[0])
    return make(opcode) if make is not None and is_known(opcode) else None


RULES: Final[Mapping[str, Callable[[Sequence[str]], Rule | None]]] = {
    "mov": lambda _: lambda a: a,
    "cvta": lambda _: lambda a: a,
    "mapa": lambda _: _in_another_cta,
    "add": _add,
    "sub": lambda _: np.subtract,  # with a sign or without: the bits are the same
    "mul": _multiply,
    "mad": _mad,
    "fma": lambda _: floats.multiply_and_add,
    "rcp": _reciprocal,
    "shl": _shift,
    "shr": _shift,
    "div": _divide,
    "rem": _divide,
    "and": _logic,
    "or": _logic,
    "xor": _logic,
    "not": lambda _: lambda a: ~a,
    "neg": lambda _: lambda a: -a,
    "abs": lambda _: lambda a: np.abs(a),
    "min": _two(np.minimum),
    "max": _two(np.maximum),
    "setp": _compare,
    "selp": lambda _: lambda a, b, p: np.where(p, a, b),
    "cvt": _convert,
    "bfi": _insert,
    "bfe": _extract,
}


def operand_kinds(opcode: Sequence[str], count: int) -> list[type | None]:
    """The types that an instruction reads its `count` operands as."""
    kind = type_of(opcode[-1])
    if opcode[0] == "cvt" and opcode[-1] != "f32":
        return [None]
    if opcode[0] == "selp":
        return [kind, kind, np.bool_]
    if opcode[0] in ("shl", "shr"):
        return [kind, np.int32]
    if opcode[0] == "bfe":
        return [kind, np.int32, np.int32]
    if opcode[0] == "bfi":
        return [kind, kind, np.int32, np.int32]
    if opcode[0] == "mad" and "wide" in opcode and kind is not None:
        return [kind, kind, _WIDER[kind]]
    return [kind] * count
