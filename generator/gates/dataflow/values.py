"""What a register or a piece of memory may hold: a small lattice, joined where paths meet.

Called by the other modules of the gate. A value is a set of kinds, the 16-bit places of it that may
hold elements, and for numbers and addresses the range that they are in.
"""

from __future__ import annotations

from typing import Final, NamedTuple

CLEAN: Final = 1  # follows from sizes, positions, addresses and constants but 0
ONES: Final = 1 << 1  # a constant of all ones
A: Final = 1 << 2  # 16-bit elements of the operands, as they are stored
B: Final = 1 << 3
WIDE: Final = 1 << 4  # one element of A or B as a float32
ADDEND: Final = 1 << 5  # elements of a bias or residual
WIDE_ADDEND: Final = 1 << 6  # one of them as a float32
SUM: Final = 1 << 7  # products and their sums, in float32 or float64
PART: Final = 1 << 8  # a sum as it is left in the workspace
WORD: Final = 1 << 9  # a word of the workspace: a part, or all ones where it has not come
PROBE: Final = 1 << 10  # what tells whether words are absent, and nothing else
OUT: Final = 1 << 11  # sums that were rounded to C's type
FINISHED: Final = 1 << 12  # what a declared epilogue made of sums
VERDICT: Final = 1 << 13  # a predicate of a declared epilogue
MIXED: Final = 1 << 14  # from memory that holds things of several kinds: its use tells which
BYTES: Final = 1 << 15  # memory alone: single bytes were stored there
NARROW: Final = 1 << 16  # memory alone: 16 bits were stored there

OPERAND: Final = A | B
RAW: Final = OPERAND | ADDEND | OUT  # 16-bit elements
NUMBERS: Final = CLEAN | ONES
TRACKED: Final = (1 << 14) - 1 & ~NUMBERS
#: Kinds by the words that a verdict has for them.
NAMES: Final = {
    A: "bits of A",
    B: "bits of B",
    WIDE: "an operand's value",
    ADDEND: "bits of the addend",
    WIDE_ADDEND: "the addend's value",
    SUM: "a sum",
    PART: "a sum for the workspace",
    WORD: "a word of the workspace",
    PROBE: "whether a word is absent",
    OUT: "a rounded sum",
    FINISHED: "a finished sum",
    VERDICT: "a comparison of sums",
    NUMBERS: "a number",
}
#: Of what is an address on some paths, and a number on others.
NOWHERE: Final = frozenset(("",))
#: What parameters point to, by the names that bases have: global memory. A pointer is a parameter
#: plus numbers; of other arithmetic on one comes a number.
C: Final = "C"
WORKSPACE: Final = "the workspace"
ADDENDS: Final = "the addend"
ENDS: Final = "the ends of groups"
GLOBAL: Final = frozenset(("A", "B", C, WORKSPACE, ADDENDS, ENDS))
ALL_ONES: Final = 0xFFFFFFFF
NO_BASES: Final[frozenset[str]] = frozenset()


class Value(NamedTuple):
    """`zeros` is how many of its last bits are zero for sure. `bases` names what it is the address
    of; then `low` to `high`, None where there is no bound, count bytes from there on. `padded`
    names a round number of bytes that is added to both: what aligns the start of shared memory."""

    kinds: int = 0
    halves: int = 0
    low: int | None = None
    high: int | None = None
    zeros: int = 0
    bases: frozenset[str] = NO_BASES
    padded: str = ""

    @property
    def const(self) -> int | None:
        """The value where it is one and known."""
        return self.low if self.low == self.high and not self.bases and not self.padded else None


NUMBER: Final = Value(CLEAN)
ZERO: Final = Value(0, 0, 0, 0, 64)


def constant(bits: int) -> Value:
    """The value of a constant."""
    if bits == 0:
        return ZERO
    zeros = (bits & -bits).bit_length() - 1
    return Value(ONES if bits in (-1, ALL_ONES) else CLEAN, 0, bits, bits, zeros)


def join(a: Value, b: Value) -> Value:
    """What may be either."""
    if a is b or a == b:
        return a
    low = None if a.low is None or b.low is None else min(a.low, b.low)
    high = None if a.high is None or b.high is None else max(a.high, b.high)
    bases = a.bases | b.bases
    if a.padded != b.padded or a.bases != b.bases:
        low = high = None
        if not a.bases or not b.bases:
            bases |= NOWHERE
    return Value(
        a.kinds | b.kinds,
        a.halves | b.halves,
        low,
        high,
        min(a.zeros, b.zeros),
        bases,
        a.padded if a.padded == b.padded else "",
    )


def is_offset(address: Value, start: Value) -> bool:
    """Whether an address less another one is how far apart they lie in the same operand."""
    return address.bases == start.bases and len(start.bases) == 1 and start.bases <= GLOBAL


def fits(kinds: int, allowed: int) -> bool:
    """Whether a value is of the kinds `allowed` alone, or one of several kinds that its memory
    holds is."""
    return not kinds & ~(allowed | MIXED) or bool(kinds & MIXED and kinds & allowed)


def words(kinds: int) -> str:
    """Kinds in words."""
    return " or ".join(name for kind, name in NAMES.items() if kinds & kind) or "zero"
