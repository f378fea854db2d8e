"""Which registers of a kernel follow from its parameters and from where a thread stands, and which
instructions have to be computed to know what it decides and which memory it touches.

Called by `machine` once a kernel. Numbers that come from memory are not known, nor is what is made
of them; results of waits and elections are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from hgemm_packs.generator.gates.coverage.program.arithmetic import rule_of
from hgemm_packs.generator.gates.coverage.program.opcodes import is_known
from hgemm_packs.generator.gates.coverage.program.origins import Origins
from hgemm_packs.generator.gates.coverage.program.signs import signs_of
from hgemm_packs.generator.gates.coverage.program.widths import JOINING
from hgemm_packs.generator.gates.dataflow.program.parse import (
    Instruction,
    Kernel,
    Operand,
    inputs,
    written,
)

#: Instructions whose outcomes are counted: what compares, and arithmetic that can stand for it.
OBSERVED: Final = frozenset(
    ("setp", "min", "max", "shr", "and", "or", "xor", "not", "div", "rem", "bfe", "abs")
)
#: Of these the ones that count between predicates alone.
_OF_PREDICATES: Final = frozenset(("or", "xor", "not"))
#: Where a thread stands in the grid: what a tile index follows from.
_PLACES: Final = ("%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_")
_ACCESSES: Final = frozenset(("ld", "ldu", "st", "atom", "red", "prefetch"))
_SPACES: Final = frozenset(("global", "shared", "param", "const", "local", "tensormap"))


@dataclass(slots=True)
class Slice:
    """`known`: registers whose numbers are computed; `sized`: registers that depend on sizes, on a
    place in the grid or on the turn of a loop; `needed`: instructions to be computed; `observed`:
    those of which both outcomes must be seen; `joined`: those that read what sizes decide."""

    known: set[str] = field(default_factory=set)
    sized: set[str] = field(default_factory=set)
    needed: set[int] = field(default_factory=set)
    observed: set[int] = field(default_factory=set)
    joined: set[int] = field(default_factory=set)


def touched(ins: Instruction) -> Iterable[Operand]:
    """Operands that say which global memory an instruction touches."""
    name = ins.opcode[0]
    if name in _ACCESSES and ("global" in ins.opcode or is_generic(ins)):
        return [each for each in ins.operands if each.kind == "address"][:1]
    if name == "cp" and "async" in ins.opcode:
        return ins.operands
    return ()


def is_generic(ins: Instruction) -> bool:
    """Whether an instruction names no state space: its address says which it is."""
    words = {word.split("::")[0] for word in ins.opcode[1:]}
    return ins.opcode[0] in _ACCESSES and not words & _SPACES


#: Operands of an instruction that a watcher asks for; none of what it does not watch.
Watched = Callable[[Instruction], Iterable[Operand]]
#: Whether a memory that is kept has the result of an instruction.
Kept = Callable[[Instruction], bool]


def joined(one: Watched, other: Watched) -> Watched:
    """The operands that either asks for."""
    return lambda ins: (*one(ins), *other(ins))


def nothing(_: Instruction) -> bool:
    """No memory is kept."""
    return False


def cut(
    kernel: Kernel,
    watched: Watched = touched,
    known: Slice | None = None,
    kept: Kept = nothing,
) -> Slice:
    """The slice of a kernel whose registers have a name for each write (`webs.split`). `known` is
    that for another watcher."""
    made = makers(kernel)
    if known is not None:
        return replace(known, needed=_needed(kernel, made, known, watched))
    found = Slice()
    found.known = _known(kernel, made, kept)
    found.sized = _sized(kernel, made)
    signs = signs_of(kernel, made)
    found.observed = {
        ins.index
        for ins in kernel.instructions
        if ins.index not in signs and _is_observed(made, ins, found)
    }
    found.needed = _needed(kernel, made, found, watched)
    found.joined = {
        ins.index
        for ins in kernel.instructions
        if any(name in found.sized for operand in ins.operands[1:] for name in operand.registers())
    }
    return found


def makers(kernel: Kernel) -> dict[str, list[Instruction]]:
    """What may have made what a reader finds in a register, by the reader's name for it."""
    made: dict[str, list[Instruction]] = {}
    for ins in kernel.instructions:
        for name in results(ins):
            made.setdefault(name, []).append(ins)
    for name, members in kernel.joins.items():
        made[name] = [ins for each in members for ins in made.get(each, ())]
    return made


def results(ins: Instruction) -> tuple[str, ...]:
    """Registers that an instruction writes, by their own names for each write."""
    return _names(written(ins))


def _names(operand: Operand | None) -> tuple[str, ...]:
    return operand.registers() if operand is not None else ()


def _known(kernel: Kernel, made: dict[str, list[Instruction]], kept: Kept) -> set[str]:
    unknown: set[str] = set()
    readers: dict[str, list[Instruction]] = {}
    due: list[str] = []
    for ins in kernel.instructions:
        for name in inputs(ins):
            for each in (name, *kernel.joins.get(name, ())):
                readers.setdefault(each, []).append(ins)
        is_computed = kept(ins) or _is_computed(ins, made)
        computed = _names(made_by(ins)) if is_computed else ()
        due += [name for name in results(ins) if name not in computed]
    while due:
        name = due.pop()
        if name not in unknown:
            unknown.add(name)
            for ins in readers.get(name, ()):
                due += () if _is_always_known(ins) else results(ins)
    unknown |= {name for name, members in kernel.joins.items() if not unknown.isdisjoint(members)}
    return made.keys() - unknown


def is_wait(ins: Instruction) -> bool:
    """Whether an instruction asks for what another thread or a copy will do: it is taken to have
    happened."""
    return ins.opcode[0] == "mbarrier" and ins.opcode[1] in ("try_wait", "test_wait")


def _is_always_known(ins: Instruction) -> bool:
    return is_wait(ins) or ins.opcode[0] == "elect"


def made_by(ins: Instruction) -> Operand | None:
    """The register that the machine writes where an instruction does: of a pair the predicate of an
    election, else the first."""
    to = written(ins)
    if to is not None and to.kind == "pair":
        to = to.parts[-1] if ins.opcode[0] == "elect" else to.parts[0]
    return to if to is not None and to.kind == "register" else None


def _is_computed(ins: Instruction, made: Mapping[str, Sequence[Instruction]]) -> bool:
    """Whether the result of an instruction follows from its operands by a rule."""
    if is_wait(ins):
        return True
    if made_by(ins) is None or not is_known(ins.opcode):
        return False
    if ins.opcode[0] == "shfl":
        return _is_number(made, ins.operands[3], 31)  # all of a warp, none clamped
    if ins.opcode[0] == "ld":
        return "const" in ins.opcode or len(ins.operands[1].parts) == 1
    if ins.opcode[0] in ("bfe", "bfi"):
        fields = ins.operands[-2:]
        bits = int(ins.opcode[-1][1:])
        if any(x.kind != "number" or x.value < 0 for x in fields):
            return False
        if sum(x.value for x in fields) > bits:
            return False  # nothing here says what stands beyond the end
    if any(x.kind == "vector" for x in ins.operands):
        return False
    return ins.opcode[0] == "elect" or rule_of(ins.opcode) is not None


def _is_number(made: Mapping[str, Sequence[Instruction]], one: Operand, value: int) -> bool:
    """Whether an operand is a number, or a copy of that."""
    if one.kind == "number":
        return one.value == value
    found = made.get(one.name, ())
    return len(found) == 1 and found[0].opcode[0] == "mov" and found[0].operands[1].value == value


def reads_constants(ins: Instruction) -> bool:
    """Whether an instruction loads a number of an array in constant memory."""
    return ins.opcode[0] == "ld" and "const" in ins.opcode and is_known(ins.opcode)


def _sized(kernel: Kernel, made: dict[str, list[Instruction]]) -> set[str]:
    sized: set[str] = set()
    readers: dict[str, list[Instruction]] = {}
    due: list[str] = []
    for ins in kernel.instructions:
        for name in inputs(ins):
            for each in (name, *kernel.joins.get(name, ())):
                readers.setdefault(each, []).append(ins)
        of_place = any(x.kind == "special" and x.name.startswith(_PLACES) for x in ins.operands)
        if of_place or (ins.opcode[0] == "ld" and "param" in ins.opcode):
            due += results(ins)
    due += [name for name in kernel.joins if name in made]
    while due:
        name = due.pop()
        if name not in sized:
            sized.add(name)
            for ins in readers.get(name, ()):
                due += [] if _is_always_known(ins) else results(ins)
    return sized


def _is_observed(made: Mapping[str, Sequence[Instruction]], ins: Instruction, found: Slice) -> bool:
    name, word = ins.opcode[0], ins.opcode[-1]
    if (name == "mul" and "hi" in ins.opcode) or (name == "cvt" and _is_rounding(ins)):
        pass  # a quotient, or what tells a number from zero
    elif name not in OBSERVED or (word == "f32" and name == "div"):
        return False
    if name in _OF_PREDICATES and word != "pred":
        return False
    read = [name for operand in ins.operands[1:] for name in operand.registers()]
    if not any(each in found.sized for each in read):
        return False
    if name == "setp" and len(read) == 1 and _is_echo(made.get(read[0], ())):
        return False
    return all(each in found.known for each in read)


def _is_rounding(ins: Instruction) -> bool:
    """Whether an instruction makes a whole number of a floating-point one."""
    return ins.opcode[-1] == "f32" and ins.opcode[-2][0] in "su"


def _is_echo(makers_of: Sequence[Instruction]) -> bool:
    """Whether a number is a predicate that one instruction hands on: what is asked of it says no
    more than the predicate. What two have made tells of both."""
    return (
        len(makers_of) == 1
        and makers_of[0].opcode[0] == "selp"
        and not makers_of[0].guard
        and all(x.kind == "number" for x in makers_of[0].operands[1:3])
    )


def _is_whole(ins: Instruction) -> bool:
    return ins.opcode[-1][:1] in "sub" and ins.opcode[-1][1:].isdecimal()


def _needed(
    kernel: Kernel, made: dict[str, list[Instruction]], found: Slice, watched: Watched
) -> set[int]:
    origins = Origins(made, kernel.joins, found.sized)
    wanted: list[str] = []
    for ins in kernel.instructions:
        wanted += [ins.guard] if ins.guard else []
        for operand in watched(ins):
            wanted += operand.registers()
        if ins.index in found.observed:
            wanted += inputs(ins)
        # What two sizes come to together may decide where nobody looks: a place in shared memory.
        if ins.opcode[0] in JOINING and _is_whole(ins) and origins.of_sizes(ins):
            wanted += results(ins)
    needed = set(found.observed)
    seen: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in seen or name not in found.known:
            continue
        seen.add(name)
        for ins in made.get(name, ()):
            needed.add(ins.index)
            wanted += inputs(ins)
    return needed
