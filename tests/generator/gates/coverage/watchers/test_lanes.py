"""Lanes of a warp meet between what they stage and what others of them read.

The story: kernels without the meeting were right on every GPU, and racecheck looks at warps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates.coverage import gate, launches
from hgemm_packs.generator.gates.coverage.program.registers import Frame, Registers, Threads
from hgemm_packs.generator.gates.coverage.watchers import lanes
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand
from hgemm_packs.generator.redteam.mutation import bases

MEETING = "__syncwarp();"


@pytest.mark.parametrize(
    ("number", "family", "turn", "words"),
    [(1, "sm90_splitk", 6, lanes.UNSEEN), (2, "sm90_wgmma", 2, lanes.OVER)],
)
def test_lanes_meet_round_what_they_stage(number: int, family: str, turn: int, words: str) -> None:
    base = bases.draw(28, turn, family)  # of 128 columns, which it stages
    at = base.source.index("stage_blocks(at, v);")
    for _ in range(number):
        at = base.source.index(MEETING, at + 1)
    changed = base.source[:at] + base.source[at + len(MEETING) :]
    fields = compiler.build_source(changed, base.fields).entry_fields
    verdict = gate.check(fields, changed)
    assert verdict.status is Status.COVERAGE
    assert words in verdict.detail


ADDRESS = (Operand("address", parts=(Operand("register", name="%r1"),)),)
BY_FOUR, TURNED = range(0, 256, 4), range(252, -4, -4)  # addresses of the threads of two warps


def ins(at: int, *opcode: str) -> Instruction:
    """One that reads, stages or meets."""
    return Instruction(at, opcode, ADDRESS, "", False, f"{opcode[0]} {at}")


STAGE = ins(1, "st", "shared", "u32")
READ = ins(2, "ld", "shared", "u32")
ROWS = ins(3, "stmatrix", "sync", "aligned", "m8n8", "x4", "shared", "b16")
EVERYONE = (Operand("number", value=lanes.ALL),)
MEET = Instruction(4, ("bar", "warp", "sync"), EVERYONE, "", False, "")
SOME = Instruction(4, MEET.opcode, (Operand("register", name="%r2"),), "", False, "")  # unknown
GENERIC = ins(5, "st", "u32")
BASES = {name: base << launches.APART for name, base in launches.BASES.items()}
WITHIN = [i ^ 4 for i in BY_FOUR]  # a neighbour's


@pytest.mark.parametrize(
    ("done", "words"),
    [
        ([(STAGE, BY_FOUR), (READ, BY_FOUR)], ""),
        ([(STAGE, BY_FOUR), (READ, WITHIN)], lanes.UNSEEN),
        ([(STAGE, BY_FOUR), (MEET, BY_FOUR), (READ, WITHIN)], ""),
        ([(STAGE, BY_FOUR), (SOME, BY_FOUR), (READ, WITHIN)], lanes.UNSEEN),
        ([(GENERIC, BY_FOUR), (READ, WITHIN)], lanes.UNSEEN),
        ([(GENERIC, [each + BASES["A"] for each in BY_FOUR]), (READ, WITHIN)], ""),
        ([(READ, WITHIN), (STAGE, BY_FOUR)], lanes.OVER),
        ([(READ, WITHIN), (MEET, BY_FOUR), (STAGE, BY_FOUR)], ""),
        ([(ROWS, range(0, 1024, 16)), (READ, BY_FOUR)], lanes.UNSEEN),
        ([(STAGE, BY_FOUR), (READ, TURNED)], ""),  # of the other warp: other tools see that
    ],
)
def test_what_lanes_may_do_and_when(
    done: list[tuple[Instruction, range | list[int]]], words: str
) -> None:
    told = watch(lambda see: [see(*each) for each in done])
    assert told.partition(" in '")[0] == words


def watch(run: Callable[[Callable[[Instruction, range | list[int]], None]], object]) -> str:
    """The first rule that two warps break."""
    everyone = np.arange(64)
    nothing = np.zeros(64, np.int64)
    seen = lanes.Lanes.of(everyone % 32, nothing)
    threads = Threads(64, {}, {}, nothing, nothing)

    def see(what: Instruction, addresses: range | list[int]) -> None:
        frame = Frame(Registers(threads, {}, set(), everyone), None)
        frame.write("%r1", np.array(addresses, np.int64))
        seen(what, everyone, frame)

    run(see)
    return next(seen.faults(), "")


def test_named_places_are_looked_at_beside_the_first_ctas() -> None:
    """A kernel that names many places would hide what its other CTAs do."""
    cta = np.repeat(np.arange(40), 32)
    seen = lanes.Lanes.of(np.arange(cta.size) % 32, cta, named=range(20, 40))
    looked = np.flatnonzero(seen.slot >= 0).tolist()
    assert looked == [*range(8), *range(20, 28)]
    assert len({*seen.slot[looked].tolist()}) == len(looked)
