"""Waiting by value: a loop that loads words of the workspace until none is absent.

Called by `gate` for each branch that depends on whether a word is absent (kernel contract, rule 3).
Such a branch may decide how often words are loaded and nothing else: between it and where it goes
stand only loads of the workspace and what tells whether they came. Words that are waited for are
stored and loaded strongly, for the device or more: what is weak may come in parts, or from an older
line of a cache (memory model of PTX).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hgemm_packs.generator.gates.dataflow.flow import OPERANDS, Flow
from hgemm_packs.generator.gates.dataflow.program import present
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, written
from hgemm_packs.generator.gates.dataflow.program.webs import blocks, without
from hgemm_packs.generator.gates.dataflow.values import PART, PROBE, SUM, WORD, WORKSPACE, ZERO

#: What may stand in such a loop: no store, no addition of sums, no barrier.
_ALLOWED: Final = frozenset(
    [
        "add",
        "and",
        "bra",
        "cvt",
        "ld",
        "max",
        "mov",
        "nanosleep",
        "not",
        "or",
        "selp",
        "setp",
        "shl",
        "sub",
        "mul",
        "mad",
    ]
)

_STRONG: Final = frozenset(("relaxed", "acquire", "release", "volatile"))
_SCOPES: Final = ("gpu", "sys")


def check(flow: Flow, ins: Instruction) -> None:
    """Refuse a branch on absent words that is no wait."""
    target = flow.kernel.labels.get(ins.operands[0].name)
    if target is None:
        flow.refuse(ins, "branch: to where nothing is,")
        return
    first, last = sorted((target, ins.index))
    for each in flow.kernel.instructions[first:last]:
        if each.opcode[0] not in _ALLOWED or each.opcode[-1] in ("f32", "f64"):
            flow.refuse(ins, f"branch: whether a word is absent decides on '{each.text[:60]}',")
            return
        if _tells(flow, each, first, last):
            flow.refuse(ins, f"branch: whether a word is absent is told by '{each.text[:60]}',")
            return


def check_load(flow: Flow, ins: Instruction) -> None:
    """Refuse a load that an absent word decides on, but one of the workspace in a loop that waits:
    elsewhere it would say for good who came first."""
    bases = {base for part in ins.operands[1].parts for base in flow.value(part).bases}
    if bases != {WORKSPACE}:
        flow.refuse(ins, "load: whether a word is absent decides on it,")
    elif not any(_waits_over(flow, each, ins.index) for each in flow.kernel.instructions):
        flow.refuse(ins, "load: whether a word is absent decides on it outside a wait,")


def _waits_over(flow: Flow, branch: Instruction, at: int) -> bool:
    """Whether a branch leads back over an instruction while words are absent."""
    if branch.opcode[0] != "bra" or not flow.register(branch.guard).kinds & PROBE:
        return False
    target = flow.kernel.labels.get(branch.operands[0].name)
    return target is not None and target <= at < branch.index


def check_asked(flow: Flow) -> None:
    """Refuse a load of words of which one is added and nobody asks whether it has come, and an
    addition of one that is not known to have come where it is added."""
    for ins in flow.kernel.instructions:
        if ins.opcode[0] != "ld":
            continue
        for name in ins.operands[0].registers():
            kinds = flow.registers.get(name, ZERO).kinds
            if not kinds & WORD or kinds & ~WORD:
                continue
            users = list(_users(flow, name))
            added = any(_makes(flow, each) & SUM for each in users)
            if added and not any(_makes(flow, each) & PROBE for each in users):
                flow.refuse(ins, "load: a word that is not waited for,")
    if any(value.kinds & WORD for value in flow.registers.values()):
        for ins in present.absent(
            flow.kernel,
            lambda name: bool(flow.register(name).kinds & WORD),
            lambda ins: bool(_makes(flow, ins) & SUM),
        ):
            flow.refuse(ins, "add: a word that may not have come,")


def check_strong(flow: Flow) -> None:
    """Refuse weak stores and loads of words where any is waited for."""
    if not any(value.kinds & PROBE for value in flow.registers.values()):
        return
    for ins in flow.kernel.instructions:
        if ins.opcode[0] not in ("ld", "st") or "shared" in ins.opcode:
            continue
        moved, kind = (ins.operands[0], WORD) if ins.opcode[0] == "ld" else (ins.operands[1], PART)
        kinds = [flow.registers.get(name, ZERO).kinds for name in moved.registers()]
        if any(each & kind for each in kinds) and not _is_strong(ins):
            flow.refuse(ins, "order: a word that is waited for, weakly, or for a CTA alone,")


def check_ahead(flow: Flow) -> None:
    """Refuse copies of anything but A and B where some path has not waited for the grid ahead: the
    binary gate lets all copies past L1 run ahead of that, where a record says so, and does not see
    what they copy."""
    if not flow.fields.get("reads_ahead"):
        return
    early = without(flow.kernel, blocks(flow.kernel), 0, _waits_for_grid)
    for ins in flow.kernel.instructions:
        spaces = [word for word in ins.opcode if word == "global" or word.startswith("shared")]
        if ins.opcode[0] != "cp" or len(spaces) != 2 or spaces[1] != "global":
            continue
        copied = {base for part in ins.operands[1].parts[:1] for base in flow.value(part).bases}
        if ins.index in early and copied - set(OPERANDS):
            flow.refuse(ins, "order: before the grid ahead has ended, a copy of more than A and B,")


def _waits_for_grid(ins: Instruction) -> bool:
    return ins.opcode == ("griddepcontrol", "wait") and not ins.guard


def _is_strong(ins: Instruction) -> bool:
    words = set(ins.opcode)
    return bool(words & _STRONG) and bool(words & {"volatile", *_SCOPES})


def _makes(flow: Flow, ins: Instruction) -> int:
    """Kinds of what an instruction writes."""
    to = written(ins)
    kinds = 0
    for name in to.registers() if to is not None else ():
        kinds |= flow.registers.get(name, ZERO).kinds
    return kinds


def _users(flow: Flow, name: str) -> Iterator[Instruction]:
    """What reads a register, or a copy of it."""
    due, seen = [name], {name}
    while due:
        for index in flow.used_by.get(due.pop(), ()):
            ins = flow.kernel.instructions[index]
            yield ins
            to = written(ins)
            if ins.opcode[0] == "mov" and to is not None:
                fresh = [each for each in to.registers() if each not in seen]
                seen.update(fresh)
                due += fresh


def _tells(flow: Flow, ins: Instruction, first: int, last: int) -> bool:
    """Whether an instruction between a branch and its target makes a number that is read elsewhere:
    how often a loop has waited would be one."""
    to = written(ins)
    for name in to.registers() if to is not None else ():
        if not flow.register(name).kinds & (WORD | PROBE):
            users = flow.used_by.get(name, ())
            if any(not first <= user <= last for user in users):
                return True
    return False
