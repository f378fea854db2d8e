"""What lanes of a warp tell each other: shuffles, votes and sums.

Made for `machine`, and for `memory` those that say nothing without numbers from memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.registers import Frame, Reader, reader
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction

_LANES: Final = 32


def shuffle(ins: Instruction) -> Reader:
    """What takes numbers from other lanes of a warp, by their number or from so many before."""
    value_of, number_of = (reader(operand, np.int32) for operand in ins.operands[1:3])
    goes_up = "up" in ins.opcode

    def take(frame: Frame) -> Array | None:
        value, number = value_of(frame), number_of(frame)
        if value is None or number is None or value.size == 1:
            return value
        who = frame.numbers
        lane = np.where(who % _LANES < number, who, who - number) if goes_up else number
        place = np.full(frame.registers.threads.total, -1)
        place[who] = np.arange(who.size)
        of = place[(who & ~31) | (lane & 31)]
        return np.where(of >= 0, value[of], value)  # one that runs apart here has the same

    return take


def vote(ins: Instruction) -> Reader:
    """What has a bit of each lane of a warp."""
    value_of = reader(ins.operands[1], np.bool_)

    def ballot(frame: Frame) -> Array | None:
        value = value_of(frame)
        if value is None:
            return None
        bits = np.where(value, np.uint32(1), np.uint32(0))
        return _over_warps(np.bitwise_or, bits << (frame.numbers % _LANES).astype(np.uint32), frame)

    return ballot


def total(ins: Instruction) -> Reader:
    """What adds up the numbers of a warp."""
    value_of = reader(ins.operands[1], np.int32)

    def add(frame: Frame) -> Array | None:
        value = value_of(frame)
        return None if value is None else _over_warps(np.add, value, frame)

    return add


def _over_warps(rule: np.ufunc, value: Array, frame: Frame) -> Array:
    """What each thread has of a rule over all that run in its warp."""
    warp = frame.numbers // _LANES
    found = np.zeros(frame.registers.threads.total // _LANES, value.dtype)
    rule.at(found, warp, np.broadcast_to(value, warp.shape))
    told: Array = found[warp]
    return told
