"""What sizes may not do: choose between operands or sums, be multiplied by themselves, say how far
a number is shifted, or make a number of several comparisons.

Called by `gate`. Comparisons are seen both ways, each for itself; two choices between data in a row
are never seen together, and a polynomial of one number is zero for all the numbers that problems of
the gate have. A number that is shifted out of its register is zero but for a size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hgemm_packs.generator.gates.coverage.mixtures import WIDTHS, Mixtures
from hgemm_packs.generator.gates.coverage.program.cycles import Cycles
from hgemm_packs.generator.gates.coverage.program.origins import TURN, Origins, are_parameters
from hgemm_packs.generator.gates.coverage.program.outcomes import OTHER, ZERO
from hgemm_packs.generator.gates.coverage.program.slices import Slice, results
from hgemm_packs.generator.gates.coverage.proofs import Proofs
from hgemm_packs.generator.gates.dataflow.exceptions import is_of_family
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.values import TRACKED

_PRODUCTS: Final = frozenset(("mul", "mad", "fma"))
Made = Mapping[str, Sequence[Instruction]]

_CTA: Final = ("%ctaid", "%cluster")
FEW: Final = 64  # CTAs that share a tile
MOST_COPIES: Final = 8
MOST_SHARED: Final = 6  # bits of the number of CTAs that share a tile
MOST_TIMES: Final = 1 << 16  # that a stride or a number of tiles is taken
_SHORT: Final = ("8", "16")  # bits of numbers
_HANDS_ON: Final = frozenset(("mov", "cvt"))
_COUNTING: Final = frozenset(
    ("mov", "cvt", "selp", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "bfi")
)


def faults(flow: Flow, proofs: Proofs) -> Iterator[str]:
    """Instructions that break these rules, each in words. Kernels of families are known to keep
    most, and of others problems are run for what several comparisons come to."""
    found = proofs.slice
    origins = Origins(proofs.made, flow.kernel.joins, found.sized)
    yield from _lanes(flow, found)
    yield from _shifts(flow, origins)
    if is_of_family(flow.fields):
        yield from _counts(flow, proofs)
        yield from _powers(flow, proofs.made, origins, of_sizes=True)
        yield from _meetings(flow, origins, least=2)
    else:
        yield from _floats(flow)
        yield from _wide(flow)
        yield from _choices(flow, found)
        yield from _powers(flow, proofs.made, origins)
        yield from _meetings(flow, origins)
        yield from _polynomials(flow, proofs.made, origins)
        yield from _ratios(flow, proofs, origins)
        for rule, ins in Mixtures(flow, origins).faults():
            yield _told(rule, ins)


def _told(rule: str, ins: Instruction) -> str:
    return f"{rule} in '{ins.text[:100]}'"


def _is_tracked(flow: Flow, operand: Operand) -> bool:
    return bool(flow.value(operand).kinds & TRACKED)


def _lanes(flow: Flow, found: Slice) -> Iterator[str]:
    """Shuffles of operands and sums from lanes that sizes decide."""
    for ins in flow.kernel.instructions:
        if ins.opcode[0] != "shfl" or not _is_tracked(flow, ins.operands[1]):
            continue
        if any(x in found.sized for by in ins.operands[2:] for x in by.registers()):
            yield _told("lane: sizes decide which", ins)


def _shifts(flow: Flow, origins: Origins) -> Iterator[str]:
    """Shifts by what follows from sizes, or from a place that is no CTA's among few. Kernels of
    families shift operands so, which may lie at any element."""
    for ins in flow.kernel.instructions:
        if ins.opcode[0] not in ("shl", "shr"):
            continue
        by = ins.operands[2]
        if not origins.of(by) or (is_of_family(flow.fields) and _is_tracked(flow, ins.operands[1])):
            continue
        flow.active = flow.threads.reach[ins.index]
        turns = origins.of(by) == {TURN} and _is_few(flow, by)
        if not turns and not _is_share(flow, by, origins):
            yield _told("shift: sizes decide how far", ins)


def _floats(flow: Flow) -> Iterator[str]:
    """Floats that are made of whole numbers, by value or bit by bit: they are rounded at sizes that
    no problem has."""
    for ins in flow.kernel.instructions:
        if ins.opcode[0] == "cvt":
            makes = ins.opcode[-2][0] == "f" and ins.opcode[-1][0] in "su"
        elif ins.opcode[0] == "mov" and ins.operands[1].kind == "register":
            of_float = [flow.kernel.type_of(each.name) == "f32" for each in ins.operands[:2]]
            makes = of_float == [True, False] and not _is_tracked(flow, ins.operands[1])
        else:
            continue
        if makes:
            yield _told("float: made of a whole number", ins)


def _wide(flow: Flow) -> Iterator[str]:
    """Short numbers that are put into registers of more bits: how these are filled up is the type's
    business, and is not followed. Compilers load parameters of 32 bits so."""
    for ins in flow.kernel.instructions:
        if ins.opcode[0] == "cvt":
            made = ins.opcode[-2]
        elif ins.opcode[0] == "ld" and {"const", "param"} & set(ins.opcode):
            made = ins.opcode[-1]
        else:
            continue
        own = flow.kernel.type_of(ins.operands[0].name)
        if made[1:] in _SHORT and made[1:] != own[1:]:
            yield _told("wide: a register has more bits than what is put into it", ins)


def _choices(flow: Flow, found: Slice) -> Iterator[str]:
    """Selects of one of two operands or sums by sizes; to take one or zero is what edges need."""
    for ins in flow.kernel.instructions:
        if ins.opcode[0] == "selp":
            one, other, by = ins.operands[1:]
            chosen = one != other and all(_is_tracked(flow, x) for x in (one, other))
            names = by.registers()
        elif ins.opcode[0] == "mov" and ins.guard:
            chosen, names = _is_tracked(flow, ins.operands[1]), (ins.guard,)
        else:
            continue
        if chosen and any(x in found.sized and x in found.known for x in names):
            yield _told("choice: sizes decide between operands or sums", ins)


def _powers(flow: Flow, made: Made, origins: Origins, of_sizes: bool = False) -> Iterator[str]:
    """Products of two numbers that follow from the same size, place or turn of a loop, or of which
    each is zero for some sizes: not strides, nor numbers of tiles. Those alone that are `of_sizes`,
    with no place or loop, where it is known how places come to tiles."""
    for ins in flow.kernel.instructions:
        if ins.opcode[0] not in _PRODUCTS or ins.opcode[-1][0] not in "suf":
            continue
        a, b = ins.operands[1:3]
        if any(_is_tracked(flow, x) or not origins.of(x) for x in (a, b)):
            continue
        if of_sizes and not are_parameters(origins.of(a) | origins.of(b)):
            continue
        flow.active = flow.threads.reach[ins.index]
        harmless = any(
            _is_share(flow, x, origins) or not _may_be_zero(flow, made, x) for x in (a, b)
        )
        if harmless and not origins.shared(ins):
            continue
        if not any(_is_quotient(made, *each) for each in ((a, b), (b, a))):
            yield _told("power: a product that is zero for other sizes as well", ins)


def _meetings(flow: Flow, origins: Origins, least: int = 1) -> Iterator[str]:
    """The least or the most of two sizes, or floating-point sums of them: what they come to where
    both are large no single comparison says. `least`: how many parameters have a part; kernels of
    families bound a size by what it is rounded up to."""
    for ins in flow.kernel.instructions:
        joins = ins.opcode[0] in ("min", "max") or (
            ins.opcode[0] in ("add", "sub", "fma") and ins.opcode[-1] == "f32"
        )
        if not joins or any(_is_tracked(flow, x) for x in ins.operands[1:]):
            continue
        if origins.of_sizes(ins) and len(origins.of_all(ins)) >= least:
            yield _told("meeting: what two sizes come to", ins)


def _polynomials(flow: Flow, made: Made, origins: Origins) -> Iterator[str]:
    """Numbers that loops step by what loops step, or by what says how often."""

    def is_number(name: str) -> bool:
        of = flow.kernel.type_of(name)
        return name in origins.sized and of != "pred" and not flow.register(name).kinds & TRACKED

    cycles = Cycles(made, is_number)
    told = {ins.index for ins in cycles.curved()}
    for ins, by in cycles.steps():
        sizes = _of_sizes(origins, by)
        if sizes and sizes & _of_sizes(origins, _turns(flow, made, cycles, ins.index)):
            told.add(ins.index)
    for at in sorted(told):
        words = "polynomial: a loop steps a number by more than what stays"
        yield _told(words, flow.kernel.instructions[at])


def _of_sizes(origins: Origins, names: Sequence[str]) -> set[str]:
    """Parameters that registers follow from."""
    found = {x for name in names for x in origins.of(Operand("register", name))}
    return {x for x in found if are_parameters([x])}


def _turns(flow: Flow, made: Made, cycles: Cycles, at: int) -> list[str]:
    """What says how often the loops around an instruction turn."""
    branches = [x for x in flow.kernel.instructions if x.opcode[0] == "bra"]
    loops = [(flow.kernel.labels.get(x.operands[0].name, x.index + 1), x.index) for x in branches]
    loops = [(first, last) for first, last in loops if first <= at <= last]
    return [
        begin
        for branch in branches
        if branch.guard and any(first <= branch.index <= last for first, last in loops)
        for test in made.get(branch.guard, ())
        for operand in test.operands[1:]
        for name in operand.registers()
        for begin in cycles.begins(name)
    ]


def _ratios(flow: Flow, proofs: Proofs, origins: Origins) -> Iterator[str]:
    """Comparisons of two sizes with each other: they turn along a line on which both grow, and no
    problem is looked for far out on it."""
    for ins in flow.kernel.instructions:
        if ins.opcode[0] != "setp" or ins.index not in proofs.slice.observed:
            continue
        found = {x for x in origins.weighed(ins) if x in flow.sizes or x.startswith(WIDTHS)}
        if len(found) < 2 or not proofs.is_of_sizes(ins, besides=WIDTHS):
            continue
        if not any(proofs.excluded(ins, outcome) for outcome in (ZERO, OTHER)):
            yield _told("ratio: two sizes are compared", ins)


def _counts(flow: Flow, proofs: Proofs) -> Iterator[str]:
    """Numbers that are made of several comparisons of sizes, each seen both ways and no two of them
    together."""
    made_of = {
        name: frozenset([ins.index])
        for ins in flow.kernel.instructions
        if ins.opcode[0] in ("setp", "set") and _compares_sizes(ins, proofs)
        for name in results(ins)
    }
    counting = [x for x in flow.kernel.instructions if x.opcode[0] in _COUNTING]
    goes_on = bool(made_of)
    while goes_on:
        goes_on = False
        for ins in counting:
            read = [x for operand in ins.operands[1:] for x in operand.registers()]
            read += [ins.guard] if ins.guard else []
            every = frozenset[int]().union(*(made_of.get(x, ()) for x in read))
            for name in results(ins):
                had = made_of.get(name, frozenset())
                if not every <= had:
                    made_of[name], goes_on = had | every, True
    for ins in counting:
        is_number = ins.opcode[-1] != "pred"
        if is_number and any(len(made_of.get(name, ())) > 1 for name in results(ins)):
            yield _told("count: several comparisons of sizes make a number", ins)
            return


def _compares_sizes(ins: Instruction, proofs: Proofs) -> bool:
    sized = proofs.slice.sized
    is_sized = any(x in sized for operand in ins.operands[1:] for x in operand.registers())
    return is_sized and proofs.is_of_sizes(ins)


def _is_share(flow: Flow, one: Operand, origins: Origins) -> bool:
    """Whether a number is that of a CTA among few that share a tile."""
    return _is_few(flow, one) and all(name.startswith(_CTA) for name in origins.of(one))


def _is_few(flow: Flow, one: Operand) -> bool:
    value = flow.value(one)
    return value.low is not None and value.high is not None and 0 <= value.low <= value.high < FEW


def _may_be_zero(flow: Flow, made: Made, one: Operand, divided: bool = False) -> bool:
    """Whether a number may be zero; no parameter is, no number of CTAs or of groups of them that
    share a tile, and no multiple of one. `divided`: it is a part of the number in hand."""
    value = flow.value(one)
    if not divided and value.low is not None and value.low > 0:
        return False
    if one.kind != "register" or len(made.get(one.name, ())) != 1:
        return not one.name.startswith("%n")
    maker = made[one.name][0]
    name, by = maker.opcode[0], maker.operands[-1]
    if name == "ld":
        return divided or "param" not in maker.opcode
    if name == "add":  # of a sign, as divisions by constants are made
        parts = [x for x in maker.operands[1:] if x.kind != "number"]
        return all(_may_be_zero(flow, made, x, divided) for x in parts)
    is_part = name == "shr" and 0 < by.value <= MOST_SHARED
    is_larger = name in ("shl", "mul") and "hi" not in maker.opcode and 0 < by.value <= MOST_TIMES
    if name not in _HANDS_ON and not is_part and not is_larger:
        return True
    return _may_be_zero(flow, made, maker.operands[1], divided or is_part)


def _is_quotient(made: Made, one: Operand, divisor: Operand) -> bool:
    """Whether a number is that of which another is the divisor, as a remainder is found by."""
    maker = _maker(made, one)
    return (
        maker is not None and maker.opcode[0] == "div" and _same(made, maker.operands[2], divisor)
    )


def _maker(made: Made, one: Operand) -> Instruction | None:
    """What made a number, copies and other widths of it left out; None where that is not one."""
    for _ in range(MOST_COPIES):
        makers_of = made.get(one.name, ())
        if len(makers_of) != 1:
            return None
        if makers_of[0].opcode[0] not in _HANDS_ON or makers_of[0].operands[1].kind != "register":
            return makers_of[0]
        one = makers_of[0].operands[1]
    return None


def _same(made: Made, one: Operand, other: Operand, depth: int = MOST_COPIES) -> bool:
    """Whether two operands are the same, or made in the same way of the same: the compiler may
    compute a divisor twice."""
    if one == other:
        return True
    a, b = _maker(made, one), _maker(made, other)
    if a is None or b is None or not depth:
        return False
    if a is b:
        return True
    alike = a.opcode == b.opcode and len(a.operands) == len(b.operands) and a.opcode[0] != "ld"
    pairs = zip(a.operands[1:], b.operands[1:], strict=False)
    return alike and all(_same(made, x, y, depth - 1) for x, y in pairs)
