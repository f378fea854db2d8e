"""Integer instructions on a number of each thread, bit by bit.

Called by `threads` for registers that follow from a thread's number; a rule answers None for what
it does not compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from itertools import repeat
from typing import Final

Numbers = Sequence[int]
BITS: Final = {"16": 16, "32": 32, "64": 64}
_TYPES: Final = frozenset(kind + bits for kind in "bsu" for bits in BITS) | {"pred"}
_HALVES: Final = frozenset((word,) for word in ("lo", "hi", "wide"))
#: What may stand between an instruction's name and its type; nothing does where none is named.
_BETWEEN: Final[Mapping[str, Set[tuple[str, ...]]]] = {
    "mul": _HALVES,
    "mad": _HALVES,
    "cvt": frozenset((kind,) for kind in _TYPES),
    "setp": frozenset((word,) for word in ("eq", "ne", "lt", "le", "gt", "ge")),
    "shfl": frozenset((("sync", "idx"),)),
}
_PLAIN: Final = frozenset(((),))


def is_plain(opcode: Sequence[str]) -> bool:
    """Whether every word of an opcode is known: a type of one integer, and nothing that saturates,
    cuts at zero or works on parts of a register."""
    return opcode[-1] in _TYPES and tuple(opcode[1:-1]) in _BETWEEN.get(opcode[0], _PLAIN)


def width(opcode: Sequence[str]) -> int:
    """Bits of the type of a plain instruction, 1 of a predicate."""
    return BITS.get(opcode[-1][1:], 1)


def is_narrow(opcode: Sequence[str]) -> bool:
    """Whether a plain instruction reads or makes less than the 32 bits of an address."""
    kinds = opcode[-2:] if opcode[0] == "cvt" else opcode[-1:]
    return any(BITS.get(kind[1:], 1) < 32 for kind in kinds)


def signed(value: int, bits: int) -> int:
    """Bits as a signed number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def typed(opcode: Sequence[str], values: Numbers) -> Numbers:
    """Bits as numbers of an instruction's type."""
    bits = width(opcode)
    if opcode[-1][0] == "s":
        return [signed(each, bits) for each in values]
    mask = (1 << bits) - 1
    return [each & mask for each in values]


def _two(
    function: Callable[[int, int], int],
) -> Callable[[Sequence[str], Sequence[Numbers]], Numbers | None]:
    def apply(opcode: Sequence[str], inputs: Sequence[Numbers]) -> Numbers | None:
        if len(inputs) != 2:
            return None
        bits = width(opcode) * (2 if "wide" in opcode else 1)
        mask = (1 << bits) - 1
        a, b = (typed(opcode, values) for values in inputs)
        return [function(x, y) & mask for x, y in zip(a, b, strict=True)]

    return apply


def _shift(opcode: Sequence[str], inputs: Sequence[Numbers]) -> Numbers | None:
    value, by = typed(opcode, inputs[0]), inputs[1]
    mask = (1 << width(opcode)) - 1
    if max(by) > 63:
        return None
    if opcode[0] == "shl":
        return [x << y & mask for x, y in zip(value, by, strict=True)]
    return [x >> y & mask for x, y in zip(value, by, strict=True)]


def multiply(opcode: Sequence[str], inputs: Sequence[Numbers]) -> Numbers | None:
    """mul, its upper half and its wide form."""
    if "hi" in opcode:
        bits = width(opcode)
        return _two(lambda x, y: x * y >> bits)(opcode, inputs)
    return _two(lambda x, y: x * y)(opcode, inputs)


def _mad(opcode: Sequence[str], inputs: Sequence[Numbers]) -> Numbers | None:
    product = multiply(opcode, inputs[:2])
    if product is None or "hi" in opcode:
        return None
    mask = (1 << width(opcode) * (2 if "wide" in opcode else 1)) - 1
    return [(x + y) & mask for x, y in zip(product, inputs[2], strict=True)]


def _insert(opcode: Sequence[str], inputs: Sequence[Numbers]) -> Numbers | None:
    (at, *_), (length, *_) = inputs[2:]
    if len(set(inputs[2])) > 1 or len(set(inputs[3])) > 1:
        return None
    bits = (1 << width(opcode)) - 1
    mask = ((1 << (length & 255)) - 1 << (at & 255)) & bits
    return [x << (at & 255) & mask | y & bits & ~mask for x, y in zip(*inputs[:2], strict=True)]


def _extract(opcode: Sequence[str], inputs: Sequence[Numbers]) -> Numbers | None:
    if len(set(inputs[1])) > 1 or len(set(inputs[2])) > 1 or opcode[-1][0] == "s":
        return None
    bits, at, length = (1 << width(opcode)) - 1, inputs[1][0] & 255, inputs[2][0] & 255
    return [(x & bits) >> at & (1 << length) - 1 for x in inputs[0]]


def _divide(x: int, y: int) -> int:
    if y == 0:
        return 0
    return x // y if (x < 0) == (y < 0) else -(-x // y)


def _convert(opcode: Sequence[str], inputs: Sequence[Numbers]) -> Numbers | None:
    to, source = opcode[-2], opcode[-1]
    if "pred" in (to, source):
        return None
    mask = (1 << BITS[to[1:]]) - 1
    return [each & mask for each in typed(opcode, inputs[0])]


def _compare(opcode: Sequence[str], inputs: Sequence[Numbers]) -> Numbers | None:
    test = COMPARE[opcode[1]]
    a, b = (typed(opcode, values) for values in inputs)
    return [int(test(x, y)) for x, y in zip(a, b, strict=True)]


COMPARE: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


def _select(_: Sequence[str], inputs: Sequence[Numbers]) -> Numbers | None:
    return [x if p else y for x, y, p in zip(*inputs, strict=True)]


def _shuffle(opcode: Sequence[str], inputs: Sequence[Numbers]) -> Numbers | None:
    """From a lane that is the same for all, of a whole warp."""
    value, lane, clamp = inputs[:3]
    count = len(value)
    if set(clamp) != {31} or count % 32:
        return None
    return [value[i & ~31 | lane[i] & 31] for i in range(count)]


RULES: Final[Mapping[str, Callable[[Sequence[str], Sequence[Numbers]], Numbers | None]]] = {
    "mov": lambda opcode, inputs: typed(opcode, inputs[0]),
    "add": _two(lambda x, y: x + y),
    "sub": _two(lambda x, y: x - y),
    "and": _two(lambda x, y: x & y),
    "or": _two(lambda x, y: x | y),
    "xor": _two(lambda x, y: x ^ y),
    "min": _two(min),
    "max": _two(max),
    "div": _two(_divide),
    "rem": _two(lambda x, y: x - y * _divide(x, y)),
    "neg": lambda opcode, inputs: _two(lambda x, y: y - x)(
        opcode, [inputs[0], list(repeat(0, len(inputs[0])))]
    ),
    "not": lambda opcode, inputs: _two(lambda x, y: x ^ y)(
        opcode, [inputs[0], list(repeat((1 << width(opcode)) - 1, len(inputs[0])))]
    ),
    "bfi": _insert,
    "bfe": _extract,
    "mul": multiply,
    "mad": _mad,
    "shl": _shift,
    "shr": _shift,
    "cvt": _convert,
    "setp": _compare,
    "selp": _select,
    "shfl": _shuffle,
}
