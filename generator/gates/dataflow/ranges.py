"""Ranges of numbers and addresses: what integer arithmetic makes of them.

Called by `arithmetic` where no input is tracked. A range that might pass the bounds of its type has
no bounds, so that no address wraps round to where it does not belong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hgemm_packs.generator.gates.dataflow.program.numbers import is_narrow, is_plain
from hgemm_packs.generator.gates.dataflow.values import (
    CLEAN,
    GLOBAL,
    NO_BASES,
    ZERO,
    Value,
    is_offset,
)

Bound = int | None
NEGATIVE = "-"  # what `padded` says of the negative of an address
#: Instructions of numbers whose result depends on what the type takes for a sign.
_BY_SIGN = frozenset(("shr", "div", "rem", "min", "max"))
_LIMIT = {"16": 1 << 15, "32": 1 << 31, "64": 1 << 62}
Range = tuple[Bound, Bound]
_ANY: Range = (None, None)


def number(low: int, high: int) -> Value:
    """A number in a range."""
    return Value(CLEAN, 0, low, high)


def compute(opcode: Sequence[str], inputs: Sequence[Value]) -> Value:
    """The result of an instruction on numbers and addresses."""
    name = opcode[0]
    bases = NO_BASES
    for value in inputs:
        bases = bases | value.bases if bases and value.bases else bases or value.bases
    padded = [value for value in inputs if value.padded]
    if not is_plain(opcode) or ((bases or padded) and is_narrow(opcode)):
        return Value(CLEAN, bases=bases - GLOBAL)
    zeros = _zeros(opcode, inputs)
    if name == "and":
        special = _and_special(inputs, zeros)
        if special is not None:
            return special
    if name == "neg" and _is_start(inputs[0]):
        return Value(CLEAN, 0, None, None, zeros, inputs[0].bases, NEGATIVE)
    if name not in ("add", "sub", "mad") or (name == "sub" and is_offset(*inputs)):
        bases = bases - GLOBAL
    based = [value for value in inputs if value.bases]
    if bases or padded:
        low, high, pad = _address(name, inputs, based, padded)
    elif based:  # how far an address is from its base says nothing of what it is made into
        low, high, pad = *_ANY, ""
    else:
        rule = _RULES.get(name)
        if name in _BY_SIGN or "wide" in opcode or "hi" in opcode:
            inputs = [typed(opcode[-1], value) for value in inputs]
        low, high = rule(opcode, inputs) if rule else _ANY
        pad = ""
    limit = _LIMIT.get(opcode[-1][1:], 0)
    if name == "mul" and "wide" in opcode:
        limit = limit * limit
    if (low is not None and low < -limit) or (high is not None and high >= limit):
        low = high = None
    if low == high == 0 and not bases and not pad:
        return ZERO
    return Value(CLEAN, 0, low, high, zeros, bases, pad)


def typed(word: str, value: Value) -> Value:
    """A number as an instruction of this type reads it: bits that another type calls a number of
    the other sign have no bounds."""
    bits = int(word[1:]) if word[1:].isdecimal() else 0
    if not bits or value.low is None or value.high is None:
        return value
    least, most = (-1 << bits - 1, 1 << bits - 1) if word[0] == "s" else (0, 1 << bits)
    if least <= value.low and value.high < most:
        return value
    const = value.const
    if const is None:
        return value._replace(low=None, high=None)
    const = (const - least & (1 << bits) - 1) + least
    return value._replace(low=const, high=const)


def _is_start(value: Value) -> bool:
    """Whether a value is the address where an array begins."""
    return len(value.bases) == 1 and not value.padded and value.low == value.high == 0


def _address(
    name: str, inputs: Sequence[Value], based: Sequence[Value], padded: Sequence[Value]
) -> tuple[Bound, Bound, str]:
    """Sums of one address and numbers keep their place; of two, or of other arithmetic, there is
    none."""
    if any(value.padded == NEGATIVE for value in padded):
        return None, None, ""
    if len(based) > 1 or len(padded) > 1:
        return None, None, ""
    if name == "mad" and not any(value.bases or value.padded for value in inputs[:2]):
        low, high = _mad(("mad", "lo"), inputs)
        return low, high, padded[0].padded if padded else ""
    if name not in ("add", "sub", "or"):
        return None, None, ""
    if name == "sub" and (inputs[1].bases or inputs[1].padded):
        return None, None, ""
    if name == "or":
        other = inputs[0] if inputs[1].padded else inputs[1]
        if based or not padded or (1 << other.zeros) <= int(padded[0].padded.split(":")[1]):
            return None, None, ""
    low, high = (_sub if name == "sub" else _add)((), inputs)
    return low, high, padded[0].padded if padded else ""


def _and_special(inputs: Sequence[Value], zeros: int) -> Value | None:
    """Masks: of bits that are zero, of the last bits of an address, of all but these."""
    value, mask = inputs
    if mask.const is None:
        value, mask = mask, value
    bits = mask.const
    if bits is None or value.const is not None:
        return None
    if bits >= 0 and bits < 1 << value.zeros:
        return ZERO
    if not value.bases and not value.padded:
        return None
    if 0 <= bits < 4096:
        if bits & (bits + 1) == 0 and value.padded == NEGATIVE:
            return Value(CLEAN, 0, 0, 0, 0, NO_BASES, f"{min(value.bases)}:{bits}")
        return Value(CLEAN, 0, 0, bits, zeros)
    upper = bits < 0 and -bits & (-bits - 1) == 0
    if (
        upper
        and len(value.bases) == 1
        and not value.padded
        and value.low == value.high == -bits - 1
    ):
        return Value(CLEAN, 0, 0, 0, zeros, value.bases, f"{min(value.bases)}:{-bits - 1}")
    return None


def _zeros(opcode: Sequence[str], inputs: Sequence[Value]) -> int:
    """Last bits of a result that are zero for sure."""
    name = opcode[0]
    if name == "neg":
        value = inputs[0]
        return value.zeros
    if name == "shl" and inputs[1].const is not None:
        return min(inputs[0].zeros + inputs[1].const, 64)
    if name == "and":
        return max(value.zeros for value in inputs)
    if name == "mul" and "hi" not in opcode:
        return min(inputs[0].zeros + inputs[1].zeros, 64)
    if name in ("add", "sub", "or", "xor"):
        return min(value.zeros for value in inputs)
    return 0


def _add(_: Sequence[str], inputs: Sequence[Value]) -> Range:
    low = high = 0
    for value in inputs:
        if value.low is None or value.high is None:
            return _ANY
        low, high = low + value.low, high + value.high
    return low, high


def _sub(_: Sequence[str], inputs: Sequence[Value]) -> Range:
    a, b = inputs
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return _ANY
    return a.low - b.high, a.high - b.low


def _neg(_: Sequence[str], inputs: Sequence[Value]) -> Range:
    a = inputs[0]
    return (None if a.high is None else -a.high), (None if a.low is None else -a.low)


def _mul(opcode: Sequence[str], inputs: Sequence[Value]) -> Range:
    a, b = inputs[:2]
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return _ANY
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    if "hi" not in opcode:
        return min(ends), max(ends)
    if opcode[-1][0] != "s" and min(a.low, b.low) < 0:
        return _ANY
    bits = int(opcode[-1][1:])
    return min(ends) >> bits, max(ends) >> bits


def _mad(opcode: Sequence[str], inputs: Sequence[Value]) -> Range:
    low, high = _mul(opcode, inputs)
    return _add((), [Value(0, 0, low, high), inputs[2]])


def _shl(_: Sequence[str], inputs: Sequence[Value]) -> Range:
    a, by = inputs[0], inputs[1].const
    if by is None or by > 64 or a.low is None or a.high is None:
        return _ANY
    return a.low << by, a.high << by


def _shr(opcode: Sequence[str], inputs: Sequence[Value]) -> Range:
    a, by = inputs[0], inputs[1].const
    if by is None or by > 64:
        return _ANY
    if a.low is None or a.high is None or (a.low < 0 and opcode[-1][0] != "s"):
        bits = 64 if opcode[-1].endswith("64") else 32
        return (0, (1 << bits - by) - 1) if opcode[-1][0] != "s" and by else _ANY
    return a.low >> by, a.high >> by


def _and(_: Sequence[str], inputs: Sequence[Value]) -> Range:
    a, b = inputs if inputs[1].const is not None else inputs[::-1]
    mask = b.const
    if mask is None:
        return _ANY
    if a.low is None or a.high is None or a.low < 0:
        return (0, mask) if mask >= 0 else _ANY
    if mask >= 0:
        return 0, min(mask, a.high)
    if -mask & -mask - 1:  # it clears bits in between, which keeps no order
        return 0, a.high
    return a.low & mask, a.high & mask


def _or(opcode: Sequence[str], inputs: Sequence[Value]) -> Range:
    """Also of xor, which may be as low as 0."""
    a, b = inputs
    if a.low is None or b.low is None or a.high is None or b.high is None:
        return _ANY
    if a.low < 0 or b.low < 0:
        return _ANY
    low = max(a.low, b.low) if opcode[0] == "or" else 0
    return low, min((1 << max(a.high, b.high).bit_length()) - 1, a.high + b.high)


def _div(_: Sequence[str], inputs: Sequence[Value]) -> Range:
    a, by = inputs[0], inputs[1].const
    if by is None or by <= 0 or a.low is None or a.high is None or a.low < 0:
        return _ANY
    return a.low // by, a.high // by


def _rem(_: Sequence[str], inputs: Sequence[Value]) -> Range:
    a, by = inputs[0], inputs[1].const
    if by is None or by <= 0:
        return _ANY
    return (0 if a.low is not None and a.low >= 0 else 1 - by), by - 1


def _bfi(_: Sequence[str], inputs: Sequence[Value]) -> Range:
    field, base, at, length = inputs
    if at.const is None or length.const is None or base.low is None or base.high is None:
        return _ANY
    if base.low < 0 or base.high >= 1 << at.const:
        return _ANY
    most = (1 << length.const) - 1
    if field.low is not None and field.high is not None and field.low >= 0:
        most = min(most, field.high)
    return 0, (most << at.const) + base.high


def _bfe(opcode: Sequence[str], inputs: Sequence[Value]) -> Range:
    length = inputs[2].const
    return _ANY if length is None or opcode[-1][0] == "s" else (0, (1 << length) - 1)


def _min(_: Sequence[str], inputs: Sequence[Value]) -> Range:
    a, b = inputs
    low = None if a.low is None or b.low is None else min(a.low, b.low)
    highs = [x.high for x in inputs if x.high is not None]
    return low, min(highs) if highs else None


def _max(_: Sequence[str], inputs: Sequence[Value]) -> Range:
    a, b = inputs
    high = None if a.high is None or b.high is None else max(a.high, b.high)
    lows = [x.low for x in inputs if x.low is not None]
    return max(lows) if lows else None, high


_RULES: Mapping[str, Callable[[Sequence[str], Sequence[Value]], Range]] = {
    "add": _add,
    "sub": _sub,
    "neg": _neg,
    "mul": _mul,
    "mad": _mad,
    "shl": _shl,
    "shr": _shr,
    "and": _and,
    "or": _or,
    "xor": _or,
    "div": _div,
    "rem": _rem,
    "bfi": _bfi,
    "bfe": _bfe,
    "min": _min,
    "max": _max,
}


def convert(opcode: Sequence[str], value: Value) -> Value:
    """A number or address in a register of another width: what does not fit has no bounds."""
    to, source = opcode[-2], opcode[-1]
    if not is_plain(opcode) or "pred" in (to, source):
        return Value(value.kinds)
    if (value.bases or value.padded) and is_narrow(opcode):
        return Value(value.kinds, bases=value.bases - GLOBAL)
    bits = int(to[1:])
    low, high = value.low, value.high
    if not value.bases and low is not None and high is not None:
        read = typed(source, value)
        low, high = read.low, read.high
        least = -(1 << bits - 1) if to[0] == "s" or source[0] == "s" else 0
        most = 1 << bits - (to[0] == "s")
        if low is None or high is None or low < least or high >= most:
            low = high = None
    elif not value.bases:
        low = high = None
        if source[0] == "u" and int(source[1:]) < bits:
            low, high = 0, (1 << int(source[1:])) - 1
    return value._replace(low=low, high=high)


def narrow(value: Value, comparison: str, with_: int, holds: bool) -> Value:
    """A number of which a comparison with a constant holds, or does not."""
    low, high = value.low, value.high
    if comparison not in _OPPOSITE or low is None or high is None:
        return value
    if not holds:
        comparison = _OPPOSITE[comparison]
    if comparison == "ne":
        low, high = low + (low == with_), high - (high == with_)
    elif comparison == "eq":
        low, high = max(low, with_), min(high, with_)
    elif comparison in ("lt", "le"):
        high = min(high, with_ - (comparison == "lt"))
    else:
        low = max(low, with_ + (comparison == "gt"))
    return value._replace(low=low, high=high) if low <= high else value


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
