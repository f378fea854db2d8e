"""Which outcomes of a comparison no problem can have, and which ones a few problems are sure to
find.

Called by `gate` for outcomes that no tested problem had. Ranges are those of the data-flow gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hgemm_packs.generator.gates.coverage.launches import ranks
from hgemm_packs.generator.gates.coverage.program import widths
from hgemm_packs.generator.gates.coverage.program.outcomes import OTHER, ZERO
from hgemm_packs.generator.gates.coverage.program.slices import Slice, results
from hgemm_packs.generator.gates.dataflow.exceptions import is_of_family
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction
from hgemm_packs.generator.gates.dataflow.values import Value

MOST_PLACES: Final = 1 << 16  # of a grid that memory has room for, whatever the tile
PLACE: Final = ("%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster")
NEXT_BITS: Final = 16
NEXT: Final = 1 << NEXT_BITS  # what is added to the last sizes of a record may be as much
RANK: Final = "%cluster_cta"  # a place in a cluster alone

#: Comparisons whose outcome turns once as a number grows.
_THRESHOLDS: Final = frozenset(("lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"))
#: Instructions that keep the order of numbers, or turn it round.
_GROWING: Final = frozenset(
    (
        *("mov", "cvt", "cvta", "ld", "add", "sub", "neg", "mul", "mad", "shl", "shr", "div"),
        *("shfl", "min", "max", "elect", "selp", "bfi"),
    )
)
#: Of these, those whose results may be too large.
_WRAPPING: Final = frozenset(("add", "sub", "mul", "mad", "shl"))
_RISING: Final = frozenset(
    ("mov", "cvt", "ld", "add", "mul", "mad", "shl", "shr", "div", "shfl", "min", "max")
)


@dataclass(frozen=True, slots=True)
class Proofs:
    """What is known of a kernel's comparisons beside what was seen: `flow` is that of the data-flow
    gate, settled; `made` as `slices.makers` has it."""

    flow: Flow
    slice: Slice
    made: Mapping[str, Sequence[Instruction]]

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
        if not is_threshold(ins) and ins.opcode[0] not in ("min", "max", "shr", "div"):
            return False
        if not _is_by_a_number(ins):
            return False
        return all(
            (each.opcode[0] in _GROWING and _is_by_a_number(each) and not self._may_wrap(each))
            or is_threshold(each)
            or _rounds_down(each)
            or self._puts_together(each)
            or self._is_rank(each)
            or not any(name in self.slice.sized for name in results(each))
            for each in self.sources(ins)
        )

    def _may_wrap(self, ins: Instruction) -> bool:
        """Whether a stranger's sum or product of sizes may come round, as far as ranges tell. Of
        loops and places they tell little: a number beside these is to be small."""
        if ins.opcode[0] not in _WRAPPING or is_of_family(self.flow.fields):
            return False
        made = self.flow.registers.get(results(ins)[0])
        adds = ins.opcode[0] in ("add", "sub")
        if made is None or made.low is None or made.high is None:
            numbers = [abs(x.value) for x in ins.operands[1:] if x.kind == "number"]
            most = NEXT_BITS if ins.opcode[0] == "shl" else NEXT
            return max(numbers, default=0) >= most or self.is_of_sizes(ins)
        end = 1 << int(ins.opcode[-1][1:]) * (2 if "wide" in ins.opcode else 1) - 1
        spare = NEXT if adds else 0
        return not -end - spare <= made.low <= made.high < end + spare

    def joins(self) -> dict[int, frozenset[int]]:
        """Instructions that make one of few numbers of two that sizes decide, and the numbers."""
        flow, found = self.flow, {}
        needed = self.slice.needed
        for ins in flow.kernel.instructions:
            if ins.opcode[0] not in widths.JOINING or ins.index not in needed:
                continue
            made = flow.registers.get(ins.operands[0].name)
            if made is None or made.low is None or made.high is None or made.bases or made.padded:
                continue
            values = widths.values_of(made.low, made.high, made.zeros)
            if values and self._joins_sizes(ins):
                found[ins.index] = values
        return found

    def _joins_sizes(self, ins: Instruction) -> bool:
        """Whether sizes decide two operands of an instruction, and no loop or place does."""
        sized = [
            x for operand in ins.operands[1:] for x in operand.registers() if x in self.slice.sized
        ]
        return len(sized) > 1 and self.is_of_sizes(ins)

    def is_of_sizes(self, ins: Instruction, besides: str = "") -> bool:
        """Whether no place, thread or loop has a part in an instruction's operands; places whose
        names begin as `besides` does may."""
        depends = {x for x in self.depends(ins) if not (besides and x.startswith(besides))}
        places = any(each.startswith((*PLACE, "%tid", "%laneid")) for each in depends)
        return not places and not self.counters(ins)

    def may_divide_by_zero(self) -> set[int]:
        """Divisions by what sizes alone decide, and which does not grow with each of them: what is
        not zero for the smallest problem may be for another."""
        found = set()
        for ins in self.flow.kernel.instructions:
            if ins.opcode[0] not in ("div", "rem") or ins.opcode[-1] == "f32":
                continue
            by = reading(ins, 2)
            told = [each for each in self.sources(by) if self._is_sized(each)]
            if all(map(_rises, told)):
                continue
            if not self.is_of_sizes(by):
                continue
            self.flow.active = self.flow.threads.reach[ins.index]
            number = self.flow.value(ins.operands[2])
            if number.low is None or number.high is None or number.low <= 0 <= number.high:
                found.add(ins.index)
        return found

    def _is_sized(self, ins: Instruction) -> bool:
        return any(name in self.slice.sized for name in results(ins))

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


def reading(ins: Instruction, operand: int) -> Instruction:
    """An instruction as if it read this operand alone."""
    return replace(ins, operands=(ins.operands[0], ins.operands[operand]))


def _rises(ins: Instruction) -> bool:
    """Whether the result of an instruction is no smaller where its operands are larger."""
    numbers = [x.value for x in ins.operands[1:] if x.kind == "number"]
    return _rounds_down(ins) or (ins.opcode[0] in _RISING and min(numbers, default=0) >= 0)


def is_place(name: str) -> bool:
    """Whether a special register says where in its grid a CTA is, or how wide the grid is."""
    return name.startswith(PLACE)


def is_threshold(ins: Instruction) -> bool:
    """Whether an instruction asks which of two numbers is larger."""
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
