"""What a kernel does before the grid ahead of it has ended, read off its instructions.

Two ways, for neither is enough: by the order of the text, which misses what another part of the
code does without a wait of its own, and by the ways that a thread can take, which says nothing of
threads that may leave early. Called by `sass` for a census; the binary gate judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Instruction = Mapping[str, Any]

#: What must come after the wait for the grid ahead: accesses to global memory, the end of a thread,
#: leave for the next grid to start.
UPSTREAM = {
    *("LD", "LDG", "LDGSTS", "LDGSTS.BYPASS", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG", "CCTL"),
    *("EXIT", "PREEXIT", "UTMALDG", "UTMAPF", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKPF", "UBLKRED"),
}
#: Of these, copies to shared memory that go past L1: they see what a grid that has ended wrote,
#: whenever their own began.
PAST_L1 = {"UTMALDG", "LDGSTS.BYPASS"}
_WAIT = "ACQBULK"
_BYTES = 16  # of an instruction
_ADDRESS = re.compile(r"(?:^|,)(0x[0-9a-f]+)$")
_BARRIER = re.compile(r"B\d+")
#: Marked as control flow by the disassembler, and followed by the next instruction all the same.
_THROUGH = {_WAIT, *("PREEXIT", "BSSY", "BREAK", "ELECT", "ENDCOLLECTIVE", "NANOSLEEP", "YIELD")}


def word(one: Instruction) -> str:
    """The first word of an opcode: LDG of LDG.E.128."""
    return str(one["opcode"]).split(".", 1)[0]


def _access(one: Instruction) -> str:
    """An instruction as UPSTREAM has it: its first word, but a copy by a thread that goes past L1
    is told from one that does not, and what empties L1 from what fetches a line into it."""
    name, words = word(one), str(one["opcode"]).split(".")
    told = {"LDGSTS": "BYPASS", "CCTL": "IVALL"}.get(name)
    return f"{name}.{told}" if told in words else name


def find_early(instructions: Sequence[Instruction]) -> set[str]:
    """What of UPSTREAM stands before the first wait, or anywhere where there is none."""
    found = set()
    for one in instructions:
        if word(one) == _WAIT:
            break
        found.add(_access(one))
    return found & UPSTREAM


def find_unwaited(instructions: Sequence[Instruction]) -> set[str]:
    """What of UPSTREAM a thread can come to without having waited. Jumps of which the text does
    not say where they lead are taken to lead everywhere."""
    seen: set[_State] = set()
    todo = [_State(0, ())]
    while todo:
        state = todo.pop()
        if state in seen or not 0 <= state.at < len(instructions):
            continue
        seen.add(state)
        one = instructions[state.at]
        if word(one) != _WAIT or not _is_unconditional(one):
            todo += _next(state, one, len(instructions))
    return {_access(instructions[state.at]) for state in seen} & UPSTREAM


class _State(NamedTuple):
    """A thread at an instruction, and where it goes on after it met others at a barrier (B0)."""

    at: int
    joins: tuple[tuple[str, int], ...]


def _is_unconditional(one: Instruction) -> bool:
    return one.get("predicate", "") in ("", "@PT")


def _next(state: _State, one: Instruction, total: int) -> Iterator[_State]:
    """Where a thread may be after the instruction `one`, at which it is."""
    at, joins = state
    kind, operands = word(one), str(one.get("operands", ""))
    to = _ADDRESS.search(operands)
    target = int(to[1], 16) // _BYTES if to else None
    barrier = _BARRIER.match(operands)
    if kind == "BSSY" and barrier and target is not None:
        joins = tuple(sorted({**dict(joins), barrier[0]: target}.items()))
    # BRA.DIV and the like jump for some threads only.
    if not (
        _is_unconditional(one)
        and (kind == "EXIT" or (one["opcode"] == "BRA" and operands[:2] == "0x"))
    ):
        yield _State(at + 1, joins)
    if kind in _THROUGH or "control-flow" not in one.get("other-attributes", {}):
        return
    if kind == "BSYNC" and barrier:
        target = dict(joins).get(barrier[0])
    if target is not None and kind in ("BRA", "BSYNC", "WARPSYNC"):
        yield _State(target, joins)
    elif kind not in ("EXIT", "WARPSYNC"):
        yield from (_State(other, joins) for other in range(total))
