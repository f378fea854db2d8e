"""Which outcomes of a comparison no problem can have, and which ones a few problems are sure to
find.

Called by `gate` for outcomes that no tested problem had. Ranges are those of the data-flow gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hgemm_packs.generator.gates.coverage.launches import ranks
from hgemm_packs.generator.gates.coverage.program import widths
from hgemm_packs.generator.gates.coverage.program.outcomes import OTHER, ZERO
from hgemm_packs.generator.gates.coverage.program.slices import Slice, results
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction
from hgemm_packs.generator.gates.dataflow.values import Value

MOST_PLACES: Final = 1 << 16  # of a grid that memory has room for, whatever the tile
PLACE: Final = ("%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster")

#: Comparisons whose outcome turns once as a number grows.
_THRESHOLDS: Final = frozenset(("lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"))
#: Instructions that keep the order of numbers, or turn it round.
_GROWING: Final = frozenset(
    (
        *("mov", "cvt", "cvta", "ld", "add", "sub", "neg", "mul", "mad", "shl", "shr", "div"),
        *("shfl", "min", "max", "elect", "selp", "bfi"),
    )
)
MOST_SHARING: Final = 64  # CTAs or slices that share something: numbers that any grid has
MOST_SHIFT: Final = 6  # bits of such a number
MOST_TILE: Final = 256  # rows or columns of a tile, which a place is multiplied by
MOST_THREADS: Final = 1024  # of a CTA: they share rounds of a loop by masks
_BITS: Final = {"32": 32, "64": 64}
#: What a quick quotient is made with: a half and 2^23, of 32 bits, and what these leave.
_QUICK: Final = frozenset((0x3F000000, 0x4B000000, 0x7FFFFF))
_TILING: Final = frozenset(("add", "sub", "mul", "mad", "shl", "bfi"))
_LAID: Final = frozenset(("fma", "rcp", "setp", "rem", "and", *_GROWING)) - {"elect"}


@dataclass(frozen=True, slots=True)
class Proofs:
    """What is known of a kernel's comparisons beside what was seen: `flow` is that of the data-flow
    gate, settled; `made` as `slices.makers` has it."""

    flow: Flow
    slice: Slice
    made: Mapping[str, Sequence[Instruction]]
    placed: set[str] = field(default_factory=set)  # registers that follow from a place in the grid

    def excluded(self, ins: Instruction, outcome: int) -> bool:
        """Whether ranges say that an instruction never has an outcome."""
        flow, name = self.flow, ins.opcode[0]
        flow.active = flow.threads.reach[ins.index]
        if not flow.active:
            return True
        if ins.opcode[-1] == "pred":
            # Both inputs are comparisons of their own: what one of them decides alone is theirs.
            return name == "not" or outcome == {"and": ZERO, "or": OTHER}.get(name)
        inputs = [flow.value(operand) for operand in ins.operands[1:]]
        if name == "setp":
            truth = _truth(ins.opcode[1], inputs)
            return truth is not None and truth == (outcome == ZERO)
        if name in ("min", "max", "abs"):
            return len(inputs) == 2 and _never(inputs[0], inputs[1], outcome)
        result = flow.registers.get(results(ins)[0])
        if result is None or result.low is None or result.high is None:
            return False
        if outcome == OTHER:
            return result.low == result.high == 0
        return result.low > 0 or result.high < 0

    def turns_once(self, ins: Instruction) -> bool:
        """Whether an outcome turns a few times at most as each size grows, so that problems near
        each turn find all: a comparison that is a threshold, or a shift, of sizes that are added,
        scaled, bounded and chosen from alone."""
        if not _is_threshold(ins) and ins.opcode[0] not in ("min", "max", "shr", "div"):
            return False
        if not _is_by_a_number(ins):
            return False
        return all(
            (each.opcode[0] in _GROWING and _is_by_a_number(each))
            or _is_threshold(each)
            or _rounds_down(each)
            or self._puts_together(each)
            or self._is_rank(each)
            or not any(name in self.slice.sized for name in results(each))
            for each in self.sources(ins)
        )

    def _puts_together(self, ins: Instruction) -> bool:
        """Whether an instruction is an addition to a number that sizes do not decide, bits of which
        are free: compilers write it as a disjunction."""
        sized = [
            name
            for operand in ins.operands[1:]
            for name in operand.registers()
            if name in self.slice.sized
        ]
        return ins.opcode[0] == "or" and len(sized) < 2

    def _is_rank(self, ins: Instruction) -> bool:
        """Whether an instruction is a CTA's place in its cluster: each place is followed."""
        mask = ins.operands[-1].value if ins.operands[-1].kind == "number" else 0
        return ins.opcode[0] == "and" and 0 < mask < ranks(self.flow.fields)

    def is_masked(self, ins: Instruction, turned: bool = False) -> bool:
        """Whether only masks read what an instruction makes, or, unless it is `turned` already, its
        complement."""
        users = self.flow.used_by.get(ins.operands[0].name, ())
        for user in (self.flow.kernel.instructions[i] for i in users):
            of_complement = user.opcode[0] == "not" and user.opcode[-1] != "pred" and not turned
            if of_complement and self.is_masked(user, turned=True):
                continue
            if user.opcode[0] != "and" or widths.kept(user) is None:
                return False
        return bool(users)

    def counters(self, ins: Instruction) -> set[str]:
        """Registers among what the operands of an instruction were made of that have several
        writes: what a loop steps, or what one of several paths left there."""
        joins = self.flow.kernel.joins
        return {
            name
            for each in (ins, *self.sources(ins))
            for operand in each.operands[1:]
            for name in operand.registers()
            if name in joins and name in self.slice.sized
        }

    def nearest(self, ins: Instruction) -> set[str]:
        """Registers with several writes that the operands of an instruction follow from, and not
        what these were made of."""
        due = [x for operand in ins.operands[1:] for x in operand.registers()]
        found: set[str] = set()
        seen: set[str] = set()
        while due:
            name = due.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self.flow.kernel.joins:
                found |= {name} & self.slice.sized
                continue
            for each in self.made.get(name, ()):
                due += [x for operand in each.operands[1:] for x in operand.registers()]
        return found

    def depends(self, ins: Instruction) -> set[str]:
        """Parameters and special registers that the operands of an instruction were made of."""
        found = set()
        for each in (ins, *self.sources(ins)):
            if each.opcode[0] == "ld":
                found |= {x.name for x in each.operands[1].parts if x.kind == "symbol"}
            found |= {x.name for x in each.operands if x.kind == "special"}
        return found

    def names_a_place(self, ins: Instruction) -> bool:
        """Whether an instruction compares a place in the grid, or the grid's width, with a number
        that grids of small problems have: families lay tiles by sizes and larger numbers. Or
        whether it puts such comparisons together with others."""
        if ins.opcode[-1] == "pred":
            told = [each for each in self.sources(ins) if each.opcode[0] == "setp"]
            placed = [each for each in told if any(map(is_place, self.depends(each)))]
            return bool(placed) and all(map(self.names_a_place, placed))
        numbers = [x.value for x in ins.operands[1:] if x.kind == "number"]
        return (
            ins.opcode[0] == "setp"
            and [0 <= each < MOST_PLACES for each in numbers] == [True]
            and all(each.opcode[0] == "mov" for each in self.sources(ins))
            and all(map(is_place, self.depends(ins)))
        )

    def lays_tiles(self, ins: Instruction) -> bool:
        """Whether what an instruction asks of a place in the grid is how tiles are laid: bounds of
        sizes, quotients, and small numbers that each grid has. What asks for another number, for
        some bits, or for several things at once tells a few tiles from all others."""
        if ins.opcode[-1] == "pred" or self.names_a_place(ins):
            return False
        guards = self._guards_division(ins)
        if ins.opcode[0] == "setp" and not guards:
            # A place that a size names, or a window of such.
            numbered = any(x.kind == "number" for x in ins.operands[1:])
            told = ins.opcode[2][0] == "u" if numbered else ins.opcode[1] in ("eq", "ne")
            if told and not all(map(is_place, self.depends(ins))):
                return False
        chain = () if guards else (ins,)
        return all(self._lays(each) for each in (*chain, *self.sources(ins)))

    def _lays(self, ins: Instruction) -> bool:
        """Whether an instruction only lays tiles: it bounds, adds, scales by tiles and divides."""
        if not self._is_placed(ins):
            return True
        name, numbers = ins.opcode[0], [x.value for x in ins.operands[1:] if x.kind == "number"]
        if ins.opcode[-1] == "pred":
            return True  # each is asked for itself
        if name not in _LAID or "hi" in ins.opcode:
            return False
        if name == "shr" and numbers:
            return numbers[0] <= MOST_SHIFT or self._is_sign(ins)
        if name == "and" and numbers:  # of bits that may have been moved up
            makers_of = self.made.get(ins.operands[1].name, ())
            by = [x.operands[2].value for x in makers_of if x.opcode[0] == "shl"]
            mask = numbers[0] >> (by[0] if len(makers_of) == len(by) == 1 else 0)
            return mask in _QUICK or (mask & -mask if mask < 0 else mask) <= MOST_THREADS
        most = MOST_TILE if name in _TILING else MOST_SHARING
        return all(abs(each) <= most or each in _QUICK for each in numbers)

    def _is_sign(self, ins: Instruction) -> bool:
        """Whether a shift takes the sign of a number, or of such a sign some bits."""
        if ins.operands[2].value >= _BITS[ins.opcode[-1][1:]] - 1:
            return True
        makers_of = self.made.get(ins.operands[1].name, ())
        return bool(makers_of) and all(
            x.opcode[0] == "shr" and x.opcode[-1][0] == "s" and self._is_sign(x) for x in makers_of
        )

    def _is_placed(self, ins: Instruction) -> bool:
        """Whether an instruction reads what follows from a place in the grid."""
        if not self.placed:
            known = [self.flow.kernel.instructions[at] for at in sorted(self.slice.needed)]
            size = -1
            while size < len(self.placed):
                size = len(self.placed)
                self.placed.update(x for each in known if self._reads(each) for x in results(each))
        return self._reads(ins)

    def _reads(self, ins: Instruction) -> bool:
        joins = self.flow.kernel.joins
        return any(
            is_place(operand.name)
            or any(
                x in self.placed or not self.placed.isdisjoint(joins.get(x, ()))
                for x in operand.registers()
            )
            for operand in ins.operands[1:]
        )

    def _guards_division(self, ins: Instruction) -> bool:
        """Whether a comparison says how one number is divided: the quick way is right below a power
        of two alone. Each branch on it belongs to a division of that number."""
        if not _is_threshold(ins) or ins.operands[2].kind != "number":
            return False
        known, dividend = self.flow.kernel.instructions, ins.operands[1]
        branches = [known[at] for at in self.flow.used_by.get(ins.operands[0].name, ())]
        readers = (known[at] for at in self.flow.used_by.get(dividend.name, ()))
        divisions = [x for x in readers if x.opcode[0] == "div" and x.operands[1] == dividend]
        return all(x.opcode[0] == "bra" for x in branches) and len(branches) <= len(divisions)

    def sources(self, ins: Instruction) -> Iterator[Instruction]:
        """What the operands of an instruction were made by, and so on, each once."""
        due = [x for operand in ins.operands[1:] for x in operand.registers()]
        seen: set[str] = set()
        told: set[int] = set()
        while due:
            register = due.pop()
            if register in seen:
                continue
            seen.add(register)
            for each in self.made.get(register, ()):
                if each.index not in told:
                    told.add(each.index)
                    yield each
                due += [x for operand in each.operands[1:] for x in operand.registers()]


def is_place(name: str) -> bool:
    """Whether a special register says where in its grid a CTA is, or how wide the grid is."""
    return name.startswith(PLACE)


def _is_threshold(ins: Instruction) -> bool:
    return ins.opcode[0] == "setp" and ins.opcode[1] in _THRESHOLDS and len(ins.opcode) == 3


def _is_by_a_number(ins: Instruction) -> bool:
    """Whether an instruction is no shift, or one that is as far for all sizes."""
    return ins.opcode[0] not in ("shl", "shr") or ins.operands[2].kind == "number"


def _rounds_down(ins: Instruction) -> bool:
    """Whether an instruction rounds down to a multiple of a power of two."""
    if ins.opcode[0] != "and" or ins.operands[-1].kind != "number":
        return False
    step = -ins.operands[-1].value
    return step > 0 and step & (step - 1) == 0


def _truth(comparison: str, inputs: Sequence[Value]) -> bool | None:
    """What a comparison of two ranges is, None where it may be either."""
    a, b = inputs[:2]
    if a.bases or b.bases or a.padded or b.padded:
        return None
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None
    if min(a.low, b.low) < 0 and comparison in ("lo", "ls", "hi", "hs"):
        return None
    known = {
        "lt": (a.high < b.low, a.low >= b.high),
        "le": (a.high <= b.low, a.low > b.high),
        "gt": (a.low > b.high, a.high <= b.low),
        "ge": (a.low >= b.high, a.high < b.low),
        "eq": (a.low == a.high == b.low == b.high, a.high < b.low or a.low > b.high),
    }
    known["ne"] = known["eq"][::-1]
    same = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(comparison, comparison)
    always, never = known.get(same, (False, False))
    return True if always else False if never else None


def _never(a: Value, b: Value, outcome: int) -> bool:
    """Whether a is never smaller than b (ZERO), or never larger."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.low >= b.high if outcome == ZERO else a.high <= b.low
