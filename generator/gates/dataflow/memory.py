"""Rules for loads, stores and copies: what each piece of memory holds, and who may write it.

Called by `gate`. Memory is known by the parameter or the array that an address was made from. A
piece that holds several kinds of things gives each load all of them, and only where that can hide
nothing, or the family was allowed it, does the use of a value tell which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final

from hgemm_packs.generator.gates.dataflow import bits, ranges
from hgemm_packs.generator.gates.dataflow.common import check_coordinates, whole, whole_in_matrix
from hgemm_packs.generator.gates.dataflow.exceptions import LISTS, SHIFTS, TURNS, is_of_family
from hgemm_packs.generator.gates.dataflow.flow import ANY_SHARED, OPERANDS, Flow, Place
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.gates.dataflow.values import (
    ADDEND,
    ADDENDS,
    ALL_ONES,
    BYTES,
    CLEAN,
    ENDS,
    MIXED,
    NARROW,
    NOWHERE,
    NUMBER,
    NUMBERS,
    OPERAND,
    OUT,
    PART,
    RAW,
    SUM,
    TRACKED,
    WIDE,
    WIDE_ADDEND,
    WORD,
    WORKSPACE,
    C,
    Value,
    words,
)

_SPACES: Final = ("global", "shared", "shared::cta", "shared::cluster", "param", "const", "local")
_CLASSES: Final = (OPERAND | WIDE, SUM, OUT, ADDEND | WIDE_ADDEND, CLEAN)
_NARROW: Final = {"8": BYTES, "16": NARROW}
_ADDED: Final = ADDEND | WIDE_ADDEND
_STORABLE: Final = OPERAND | WIDE | SUM | OUT | NUMBERS | MIXED | _ADDED


def step(flow: Flow, ins: Instruction) -> bool:
    """Apply the rule of an instruction that touches memory; False where it is none."""
    rule = _RULES.get(ins.opcode[0])
    if rule is None:
        return False
    rule(flow, ins)
    return True


def places(
    flow: Flow, ins: Instruction, address: Operand, space: str, size: int | None
) -> list[Place]:
    """The parts of memory that `size` bytes from an address may be, all of one state space. Refuses
    an address that depends on more than numbers, or that was made from nothing that is declared."""
    total: Value | None = None
    for part in address.parts:
        value = flow.value(part)
        if part.kind != "number":
            flow.need(ins, value, CLEAN, "address")
        total = value if total is None else ranges.compute(("add", "s64"), (total, value))
    assert total is not None
    found = [base for base in total.bases if _in_space(flow, base, space)]
    if not found or NOWHERE & total.bases:
        flow.refuse(ins, "address: no parameter or array plus numbers")
    low, high = total.low, total.high
    if len(total.bases) > 1 or low is None or high is None or size is None:
        return [_whole(flow, base) for base in found]
    return [_part(flow, Place(base, low, high + size, total.padded)) for base in found]


def _space_of(flow: Flow, name: str) -> str:
    """The state space of a piece of memory."""
    return "shared" if name == ANY_SHARED else flow.kernel.symbols.get(name, "global")


def _whole(flow: Flow, base: str) -> Place:
    """Anywhere: in shared memory an address without bounds may leave the array that it was made
    from."""
    return Place(ANY_SHARED if flow.kernel.symbols.get(base) == "shared" else base)


def _part(flow: Flow, place: Place) -> Place:
    """A part of an array, or of any where it may lie outside."""
    if flow.kernel.symbols.get(place.name) != "shared":
        return place
    size = flow.kernel.sizes.get(place.name) or int(flow.fields["smem_bytes"])
    inside = place.low is not None and place.low >= 0 and place.high is not None
    return place if inside and place.high <= size else Place(ANY_SHARED)  # type: ignore[operator]


def tensor_places(
    flow: Flow, ins: Instruction, address: Operand, space: str, size: int | None
) -> list[Place]:
    """The same where coordinates follow the address."""
    flow.need_clean(ins, address.parts[1:], "address")
    if not is_of_family(flow.fields):
        check_coordinates(flow, ins, address.parts[1:])
    return places(flow, ins, Operand("address", parts=address.parts[:1]), space, size)


def _in_space(flow: Flow, base: str, space: str) -> bool:
    of_symbol = flow.kernel.symbols.get(base)
    if space.startswith("shared"):
        return of_symbol == "shared"
    if space == "local":
        return of_symbol == "local"
    if space == "global":
        return of_symbol in (None, "global") and base not in flow.kernel.params
    if space == "const":
        return of_symbol == "const"
    return base not in flow.kernel.params


def _space(ins: Instruction) -> str:
    return next((word for word in ins.opcode[1:] if word in _SPACES), "")


def holds(flow: Flow, ins: Instruction, parts: Sequence[Place]) -> int:
    """Kinds that a load of any of these parts of memory gives."""
    kinds = 0
    for place in parts:
        name = place.name
        if name in OPERANDS:
            kinds |= OPERANDS[name]
        elif name == C:
            flow.refuse(ins, "load: C is written and never read,")
        elif name == WORKSPACE:
            kinds |= WORD
        elif name == ADDENDS:
            kinds |= ADDEND
        elif name == ENDS or flow.kernel.symbols.get(name) in ("global", "const"):
            kinds |= CLEAN
        else:
            stored = _stored(flow, ins, place)
            if (
                stored & CLEAN
                and _space_of(flow, name) == "shared"
                and LISTS not in flow.exceptions
            ):
                flow.refuse(
                    ins, "load: a number from shared memory, which may be of another launch,"
                )
            kinds |= stored
    if kinds & BYTES and kinds & TRACKED:
        flow.refuse(ins, f"bits: {words(kinds)} of which single bytes were stored")
    if SHIFTS in flow.exceptions and kinds & OPERAND and kinds & OUT:
        kinds &= ~SUM
    if kinds & NARROW and kinds & SUM and not kinds & RAW:
        flow.refuse(ins, "bits: a sum of which 16 bits were stored")
    kinds &= ~(BYTES | NARROW)
    if not kinds:
        # What is taken for zeros may be added to anything, so it had better be written as such.
        flow.refuse(ins, "load: where zeros alone were stored")
    classes = [each for each in _CLASSES if kinds & each]
    if len(classes) > 1 and _told_apart(flow, kinds):
        kinds |= MIXED
    return kinds


def _stored(flow: Flow, ins: Instruction, place: Place) -> int:
    """What was stored in a part of an array."""
    kinds, found = 0, False
    for other, held in flow.contents.items():
        if (not found or held & ~kinds) and place.meets(other):
            kinds |= held
            found = True
    if not found:
        flow.refuse(ins, "load: where nothing was stored")
    return kinds


def _told_apart(flow: Flow, kinds: int) -> bool:
    """Whether the use of a value from memory of several kinds tells which it was. Operands taken
    for sums, or the other way round, make a result that is wrong for all values, and so need no
    gate for values. Rounded sums taken for sums would hide that a sum was rounded early, and
    numbers could be anything."""
    rounded_or_sum = kinds & (SUM | OUT)
    if kinds & CLEAN and LISTS not in flow.exceptions:
        return False
    if kinds & _ADDED and rounded_or_sum and TURNS not in flow.exceptions:
        return False
    return rounded_or_sum != SUM | OUT


def _load(flow: Flow, ins: Instruction) -> None:
    to, address = ins.operands[0], ins.operands[1]
    flow.need_clean(ins, ins.operands[2:], "address")
    space = _space(ins)
    if space.startswith("param"):
        _load_parameter(flow, ins)
        return
    if space == "const":
        flow.write(to, NUMBER)
        return
    if "nc" in ins.opcode and is_of_family(flow.fields):
        # Rule 5 of the kernel contract: ptxas moves such a load across the wait for the grid ahead.
        flow.refuse(ins, "load: by .nc")
    count = len(to.parts) if to.kind == "vector" else 1
    width = bits.width(ins.opcode)
    kinds = holds(flow, ins, places(flow, ins, address, space, count * (width // 8 or 8)))
    if kinds & TRACKED:
        kinds = whole(flow, ins, kinds)
    flow.write(to, Value(kinds, (1 << width // 16) - 1 if kinds & TRACKED else 0))


def _load_parameter(flow: Flow, ins: Instruction) -> None:
    name = ins.operands[1].parts[0].name
    role = flow.roles.get(name)
    if len(ins.operands[1].parts) > 1 or ins.operands[0].kind == "vector" or name in flow.maps:
        flow.refuse(ins, "load: of a part of a parameter,")
    if ins.opcode[-1] not in (("u64", "b64") if role else ("u32", "s32", "b32")):
        flow.refuse(ins, "load: of a part of a parameter, or as what it is not,")
    if role is None:
        flow.write(ins.operands[0], flow.sizes.get(name, NUMBER))
        return
    # The launcher refuses addresses that are no multiple of what the record promises.
    align = int(flow.fields["align"].get(role.lower(), 16)) if len(role) == 1 else 16
    zeros = align.bit_length() - 1
    flow.write(ins.operands[0], Value(CLEAN, 0, 0, 0, zeros, frozenset((role,))))


def _store(flow: Flow, ins: Instruction) -> None:
    address, source = ins.operands[0], ins.operands[1]
    parts = source.parts if source.kind == "vector" else (source,)
    size = len(parts) * (bits.width(ins.opcode) // 8 or 8)
    to = places(flow, ins, address, _space(ins), size)
    narrow = _NARROW.get(ins.opcode[-1][1:], 0)
    for part in parts:
        value = flow.value(part)
        if value.kinds & TRACKED:
            value = value._replace(kinds=whole(flow, ins, value.kinds))
        put(flow, ins, to, value, narrow)


def put(flow: Flow, ins: Instruction, to: Sequence[Place], value: Value, narrow: int = 0) -> None:
    """Leave a value in memory, where it may go; `narrow` tells of less than 32 bits."""
    for place in to:
        name = place.name
        if name == C:
            flow.need(ins, value, OUT, "store")
        elif name == WORKSPACE:
            absent = value.const is not None and value.const & ALL_ONES == ALL_ONES
            if not absent:
                flow.need(ins, value, PART, "store")
        elif _space_of(flow, name) not in ("shared", "local"):
            flow.refuse(ins, f"store: into {name}")
        elif flow.need(ins, value, _STORABLE, "store"):
            flow.leave(place, value.kinds & ~MIXED | narrow)


def _matrices(flow: Flow, ins: Instruction) -> None:
    """stmatrix: a lane has the address of a row of 16 bytes."""
    if ins.opcode[-1] != "b16":
        flow.refuse(ins, "bits: matrices of other than 16-bit elements")
    to = places(flow, ins, ins.operands[0], "shared", 16)
    for part in ins.operands[1].parts:
        value = flow.value(part)
        put(flow, ins, to, value._replace(kinds=whole_in_matrix(flow, ins, value.kinds)))


def _load_matrices(flow: Flow, ins: Instruction) -> None:
    if ins.opcode[-1] != "b16":
        flow.refuse(ins, "bits: matrices of other than 16-bit elements")
    kinds = holds(flow, ins, places(flow, ins, ins.operands[1], "shared", 16))
    flow.write(ins.operands[0], Value(whole_in_matrix(flow, ins, kinds), 3))


def _copy(flow: Flow, ins: Instruction) -> None:
    """cp.async and its bulk forms; what only waits or commits touches no memory."""
    opcode = ins.opcode
    if {"wait_group", "commit_group", "wait_all"} & set(opcode):
        return
    if "mbarrier" in opcode:
        flow.need_clean(ins, ins.operands[0].parts, "address")
        return
    if "reduce" in opcode:
        flow.refuse(ins, "arithmetic: in memory,")
    to, source = ins.operands[0], ins.operands[1]
    flow.need_clean(ins, [x for x in ins.operands[2:] if x.kind != "address"], "address")
    spaces = [word for word in opcode if word in _SPACES]
    if len(spaces) != 2:
        flow.refuse(ins, "unknown: an instruction that this gate does not follow")
        return
    size = _box_bytes(flow, ins) if "tensor" in opcode else _copied_bytes(ins)
    target = tensor_places(flow, ins, to, spaces[0], size)
    kinds = holds(flow, ins, tensor_places(flow, ins, source, spaces[1], size))
    if kinds & WORD:
        flow.refuse(ins, f"load: {words(kinds)}")
    put(flow, ins, target, Value(kinds, 15))


def _copied_bytes(ins: Instruction) -> int | None:
    size = ins.operands[2]
    return size.value if size.kind == "number" else None


def _box_bytes(flow: Flow, ins: Instruction) -> int | None:
    """Bytes of a box of the map that a copy names, the largest where it may be one of several."""
    boxes = flow.fields.get("tma") or ()
    sizes = [2 * prod(int(side) for side in each["box"]) for each in boxes]
    return max(sizes) if sizes else None


def _atomic(flow: Flow, ins: Instruction) -> None:
    """Atomics on numbers in shared memory; never on sums, whose order would be that of arrival."""
    address = next(operand for operand in ins.operands if operand.kind == "address")
    to = places(flow, ins, address, _space(ins), 16)
    inputs = [x for x in ins.operands if x.kind != "address"][ins.opcode[0] == "atom" :]
    for operand in inputs:
        flow.need(ins, flow.value(operand), CLEAN, "atomic")
    for place in to:
        if _space_of(flow, place.name) != "shared":
            flow.refuse(ins, f"atomic: on {place.name}")
            continue
        held = holds(flow, ins, [place])
        if held & TRACKED:
            flow.refuse(ins, f"atomic: {words(held & TRACKED)}")
        flow.leave(place, CLEAN)
    if ins.opcode[0] == "atom":
        flow.write(ins.operands[0], NUMBER)


_RULES: Mapping[str, Callable[[Flow, Instruction], None]] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "stmatrix": _matrices,
    "ldmatrix": _load_matrices,
    "cp": _copy,
    "atom": _atomic,
    "red": _atomic,
}
