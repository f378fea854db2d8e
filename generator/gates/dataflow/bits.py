"""Instructions on bits that only move whole 16-bit elements: what becomes of the places of each.

Called by `arithmetic` where an input holds elements. Everything answers None for what is no move:
a mask that cuts an element, a shift by other than a multiple of 16 bits, two elements in one place.
"""

from __future__ import annotations

from collections.abc import Sequence

from hgemm_packs.generator.gates.dataflow.values import RAW, Value

WIDTH = {"16": 16, "32": 32, "64": 64, "128": 128}


def width(opcode: Sequence[str]) -> int:
    """Bits of an instruction's type, the last of its words."""
    return WIDTH.get(opcode[-1][1:], 0)


def _all(bits: int) -> int:
    return (1 << bits // 16) - 1


def _places(mask: int, bits: int) -> int | None:
    """The places that a mask keeps, None where it cuts one."""
    places = 0
    for i in range(bits // 16):
        part = mask >> 16 * i & 0xFFFF
        if part == 0xFFFF:
            places |= 1 << i
        elif part:
            return None
    return places


def move(opcode: Sequence[str], inputs: Sequence[Value]) -> int | None:
    """Places of the result that may hold elements, None where the instruction is no move."""
    if len(opcode) > 2 and opcode[0] != "shf":
        return None  # a word that changes what it does
    rule = _RULES.get(opcode[0])
    return rule(opcode, inputs) if rule else None


def _is_seen(value: Value) -> bool:
    """Whether what a move takes of a value is elements or zero: of a constant nobody would know
    once it stands alone."""
    return bool(value.kinds & RAW) or value.const == 0


def _and(opcode: Sequence[str], inputs: Sequence[Value]) -> int | None:
    a, b = inputs
    if b.kinds & RAW:
        a, b = b, a
    if b.const is None:
        return None
    kept = _places(b.const & (1 << width(opcode)) - 1, width(opcode))
    return None if kept is None else a.halves & kept


def _or(opcode: Sequence[str], inputs: Sequence[Value]) -> int | None:
    """Also of an addition whose terms have no place in common."""
    a, b = inputs
    if opcode[-1][0] == "f" or not all(_is_seen(one) for one in inputs):
        return None
    return None if a.halves & b.halves else a.halves | b.halves


def _shift(opcode: Sequence[str], inputs: Sequence[Value]) -> int | None:
    value, by = inputs
    bits = width(opcode)
    if by.kinds & RAW or (opcode[0] == "shr" and opcode[-1][0] == "s"):
        return None
    if by.const is None:
        return _all(bits) if by.zeros >= 4 else None
    if by.const % 16:
        return None
    by_places = by.const // 16
    moved = value.halves << by_places if opcode[0] == "shl" else value.halves >> by_places
    return moved & _all(bits)


def _funnel(opcode: Sequence[str], inputs: Sequence[Value]) -> int | None:
    by = inputs[2]
    if by.kinds & RAW or by.zeros < 4:
        return None
    return 3


def _permute(opcode: Sequence[str], inputs: Sequence[Value]) -> int | None:
    """Bytes by a constant selector that keeps those of an element together."""
    a, b, selector = inputs
    if selector.const is None:
        return None
    places = 0
    for i in range(2):
        low, high = selector.const >> 8 * i & 0xF, selector.const >> 8 * i + 4 & 0xF
        if low % 2 or high != low + 1 or low >= 8 or not _is_seen(b if low >= 4 else a):
            return None
        places |= ((a.halves | b.halves << 2) >> low // 2 & 1) << i
    return places


def _insert(opcode: Sequence[str], inputs: Sequence[Value]) -> int | None:
    field, base, at, length = inputs
    if at.const is None or length.const is None or at.const % 16 or length.const % 16:
        return None
    if not _is_seen(field) or not _is_seen(base):
        return None
    mask = ((1 << length.const // 16) - 1) << at.const // 16
    moved = field.halves << at.const // 16 & mask
    return moved | (base.halves & ~mask)


def _extract(opcode: Sequence[str], inputs: Sequence[Value]) -> int | None:
    value, at, length = inputs
    if at.const is None or length.const is None or at.const % 16 or length.const % 16:
        return None
    if opcode[-1][0] == "s":
        return None
    return value.halves >> at.const // 16 & ((1 << length.const // 16) - 1)


_RULES = {
    "and": _and,
    "or": _or,
    "add": _or,
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "prmt": _permute,
    "bfi": _insert,
    "bfe": _extract,
}
