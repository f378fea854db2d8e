"""What threads do to the stages of a ring, as `stages` has it told: copies, waits, products,
arrivals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import RANK_BIT
from hgemm_packs.generator.gates.coverage.program.registers import Frame
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

LAST_LANE: Final = 31
#: Bits of an address in shared memory that a descriptor keeps, and of those that it leaves out.
KEPT, UNIT = 14, 4
WITHIN: Final = (1 << KEPT + UNIT) - 1
UNKNOWN: Final = 2  # in place of a parity
COPY, WAIT, READ, COMMIT, LEFT, ARRIVE, MEET, FILL = range(8)
OF_WARP, OF_CLUSTER = 16, 17  # in place of the number of a CTA's barrier
HALF: Final = 16  # threads that one of a warp's first and last stands for where they meet
_NOTHING: Final = (Operand("number"),)

#: What a warp does as one, or its first thread.
OF_ONE: Final = frozenset((READ, COMMIT, LEFT))


class Event(NamedTuple):
    """What a thread does: `number` is a barrier, the beginning of what is read, or groups that may
    be in flight; `to` where a copy goes, the parity of the phase that is waited for, or how many
    threads meet, 0 for all; `ctas` those to which a copy or an arrival goes, each arrival once."""

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
                yield (value & (1 << KEPT) - 1) << UNIT, nowhere
        return
    if kind == MEET:
        yield _meeting(ins, frame)
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


def _meeting(ins: Instruction, frame: Frame) -> tuple[Any, Any]:
    """The number of a meeting, and how many threads meet."""
    everyone = np.array([0], np.int64)
    if "cluster" in ins.opcode:
        return np.array([OF_CLUSTER], np.int64), everyone
    values = [frame.value(each, np.int64) for each in ins.operands]
    if "warp" in ins.opcode:
        mask = values[0] if values else None
        alone = np.array([1], np.int64)
        return np.array([OF_WARP], np.int64), alone if mask is None else np.where(
            mask & 0xFFFFFFFF == 0xFFFFFFFF, 0, 1
        )
    number, count = (*values, None, None)[:2] if values else (None, None)
    if len(ins.operands) == 1:
        count = everyone
    if number is None or count is None:
        return np.array([OF_WARP], np.int64), np.array([1], np.int64)  # nobody else is met
    return number, count
