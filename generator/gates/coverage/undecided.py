"""Numbers that nobody computes, and where they are used: a choice by one of them is not seen by any
problem.

Called by `gate`. Numbers from memory and from the state of a warp are such, and what instructions
make that `arithmetic` does not know. Addresses in other CTAs and policies of caches choose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hgemm_packs.generator.gates.coverage.program.slices import Slice, makers, results
from hgemm_packs.generator.gates.dataflow.flow import Flow
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand, written
from hgemm_packs.generator.gates.dataflow.values import NUMBERS

#: What makes numbers that choose nothing, and what hands such a number on.
_HARMLESS: Final = frozenset(("mapa", "createpolicy", "getctarank"))
_HANDS_ON: Final = frozenset(("add", "sub", "mad", "mov", "cvt", "cvta"))
#: Barriers of some lanes of a warp take who they are from what runs.
_OF_LANES: Final = ("bar", "warp", "sync")


def users(flow: Flow, found: Slice) -> Iterator[Instruction]:
    """Instructions that are run by a number that is not known, or that make or touch something
    by one."""
    made = makers(flow.kernel)
    harmless: set[str] = set()
    for ins in flow.kernel.instructions:
        if ins.opcode[0] in _HARMLESS:
            harmless |= set(results(ins))
    grown = True
    while grown:
        grown = False
        for name, each in made.items():
            if name not in harmless and each and all(_is_handed(ins, harmless) for ins in each):
                harmless.add(name)
                grown = True
    for ins in flow.kernel.instructions:
        if ins.opcode[:3] == _OF_LANES or ins.opcode[0] in _HARMLESS:
            continue
        read = [ins.guard] if ins.guard else []
        read += [x for operand in _read(ins) for x in operand.registers()]
        if any(_is_unknown(flow, found, name) and name not in harmless for name in read):
            yield ins


def _read(ins: Instruction) -> list[Operand]:
    to = written(ins)
    return [operand for operand in ins.operands if operand is not to]


def _is_handed(ins: Instruction, harmless: set[str]) -> bool:
    names = [name for operand in _read(ins) for name in operand.registers()]
    return ins.opcode[0] in _HANDS_ON and any(name in harmless for name in names)


def _is_unknown(flow: Flow, found: Slice, name: str) -> bool:
    kinds = flow.register(name).kinds
    return name not in found.known and bool(kinds & NUMBERS) and not kinds & ~NUMBERS
