"""What threads do to the stages of a ring, as `stages` has it told: copies, waits, products,
arrivals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import RANK_BIT, Array
from hgemm_packs.generator.gates.coverage.program.registers import Frame
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

LAST_LANE: Final = 31
#: Bits of an address in shared memory that a descriptor keeps, and of those that it leaves out.
KEPT, UNIT = 14, 4
WITHIN: Final = (1 << KEPT + UNIT) - 1
UNKNOWN: Final = 2  # in place of a parity
COPY, WAIT, READ, COMMIT, LEFT, ARRIVE, MEET, FILL = range(8)
_NOTHING: Final = (Operand("number"),)

#: What a warp does as one, or its first thread.
OF_ONE: Final = frozenset((READ, COMMIT, LEFT))


class Event(NamedTuple):
    """What a thread does: `number` is a barrier, the beginning of what is read, or groups that may
    be in flight; `to` where a copy goes, or the parity of the phase that is waited for; `ctas`
    those to which a copy or an arrival goes, each arrival once."""

    kind: int
    number: int
    ins: Instruction
    to: int = 0
    ctas: tuple[int, ...] = ()


def watched(ins: Instruction) -> Iterable[Operand]:
    """Operands that say what a thread does to a stage."""
    kind = kind_of(ins)
    return () if kind is None else (*ins.operands, *_NOTHING)


def kind_of(ins: Instruction) -> int | None:
    name, words = ins.opcode[0], ins.opcode[1:]
    if name == "wgmma":
        return {"mma_async": READ, "commit_group": COMMIT, "wait_group": LEFT}.get(words[0])
    if name == "mbarrier":
        if words[0] in ("try_wait", "test_wait"):
            return WAIT
        return ARRIVE if words[0] == "arrive" and "expect_tx" not in words else None
    if name in ("bar", "barrier"):
        return MEET
    if name == "cp" and words[:3] == ("async", "mbarrier", "arrive"):
        return FILL
    is_copy = name == "cp" and "bulk" in words and "global" in words
    return COPY if is_copy and any(each.startswith("mbarrier") for each in words) else None


def numbers_of(ins: Instruction, kind: int, frame: Frame) -> Iterator[tuple[Any, Any]]:
    """The numbers of an instruction's events, with where they go; none where they are not known."""
    nowhere = np.array([0], np.int64)
    if kind == READ:
        for operand in ins.operands[1:3]:
            value = frame.value(operand, np.int64) if operand.kind == "register" else None
            if value is not None:
                yield described(value), nowhere
        return
    if kind == MEET:
        yield nowhere, nowhere
        return
    if kind in (COMMIT, LEFT):
        count = ins.operands[0].value if kind == LEFT else 0
        yield np.array([count], np.int64), nowhere
        return
    addresses = [frame.sum(each) for each in ins.operands if each.kind == "address"]
    if addresses and addresses[-1] is not None:
        of_wait = frame.value(ins.operands[-1], np.int64) if "parity" in ins.opcode else None
        other = np.array([UNKNOWN], np.int64) if kind == WAIT else nowhere
        to = of_wait if kind == WAIT else addresses[0]
        yield addresses[-1] & (1 << RANK_BIT) - 1, (other if to is None else to) & WITHIN


def described(value: Array) -> Array:
    """The address in shared memory at which an operand begins, by the lower half of its
    descriptor."""
    found: Array = (value & (1 << KEPT) - 1) << UNIT
    return found
