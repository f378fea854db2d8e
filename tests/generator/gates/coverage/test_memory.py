"""What the machine keeps for kernels of groups: ends, words of shared memory, and what lanes tell
each other; and the lists that such kernels are followed on."""

from __future__ import annotations

import numpy as np
import pytest

from hgemm_packs.generator.gates.coverage import lists, problems
from hgemm_packs.generator.gates.coverage.program.machine import Machine
from hgemm_packs.generator.gates.coverage.program.memory import Memory
from hgemm_packs.generator.gates.coverage.program.registers import Frame, Threads
from hgemm_packs.generator.gates.dataflow.program import webs
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, parse
from hgemm_packs.generator.redteam.mutation import bases

AT = 5 << 57  # where the ends lie
ENDS = (np.arange(64, dtype=np.int32) * 7 % 13 - 2)[None]
KERNEL = """.visible .entry k(.param .u64 out, .param .u64 ends) {
.shared .align 4 .b8 words[512];
mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [ends]; ld.param.u64 %rd4, [out];
mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; ld.global.s32 %r2, [%rd3];
shfl.sync.up.b32 %r3|%p1, %r2, 2, 0, -1;
setp.gt.s32 %p2, %r2, 3; vote.sync.ballot.b32 %r4, %p2, -1; popc.b32 %r5, %r4;
redux.sync.add.s32 %r6, %r2, -1;
mov.u32 %r7, words; shl.b32 %r8, %r1, 2; add.s32 %r9, %r7, %r8; st.shared.u32 [%r9], %r3;
bar.sync 0;
xor.b32 %r10, %r8, 128; add.s32 %r11, %r7, %r10; ld.shared.u32 %r12, [%r11+MORE];
st.global.u32 [%rd4], %r3; st.global.u32 [%rd4], %r4; st.global.u32 [%rd4], %r5;
st.global.u32 [%rd4], %r6; st.global.u32 [%rd4], %r12; ret; }"""


def followed(more: int) -> tuple[list[np.ndarray], Memory]:
    """What 64 threads store, in their order, and the memory that was kept."""
    stored: list[np.ndarray] = []

    def note(ins: Instruction, who: np.ndarray, frame: Frame) -> None:
        value = frame.value(ins.operands[1], np.int32)
        assert value is not None
        stored.append(np.broadcast_to(value, who.shape).copy())

    kernel = webs.split(parse(KERNEL.replace("MORE", str(more))))
    memory = Memory()
    machine = Machine(
        kernel,
        watched=lambda ins: ins.operands if ins.opcode[:2] == ("st", "global") else (),
        memory=memory,
    )
    tid = np.arange(64, dtype=np.int32)
    zeros = np.zeros(64, np.int64)
    params = {"out": np.array([0], np.int64), "ends": np.array([AT], np.int64)}
    specials = {"%tid.x": tid, "%laneid": tid & 31}
    machine.run(Threads(64, specials, params, zeros, zeros, ENDS, np.array([AT])), note)
    return stored, memory


def test_lanes_and_words_are_what_a_card_makes_of_them() -> None:
    before, bits, count, total, word = followed(0)[0]
    ends = ENDS[0].reshape(2, 32)
    up = np.where(np.arange(32) < 2, ends, np.roll(ends, 2, axis=1)).ravel()
    masks = [sum(1 << i for i, end in enumerate(warp) if end > 3) for warp in ends.tolist()]
    assert before.tolist() == up.tolist()
    assert bits.view(np.uint32).tolist() == np.repeat(masks, 32).tolist()
    assert count.tolist() == np.repeat([mask.bit_count() for mask in masks], 32).tolist()
    assert total.tolist() == np.repeat(ends.sum(axis=1), 32).tolist()
    assert word.tolist() == np.roll(up, 32).tolist(), "each warp reads the words of the other"


def test_a_word_that_nobody_stored_is_told_of() -> None:
    assert not followed(0)[1].unwritten
    assert len(followed(4)[1].unwritten) == 1, "the last thread reads one word too far"


def test_lists_have_groups_of_none_of_one_row_and_of_many() -> None:
    fields = bases.draw(3, 0, "sm90_grouped").fields
    rows = int(fields["grid"]["tile_m"])
    sizes = {
        int(size)
        for each in lists.problems(fields)
        if min(np.diff((0, *each.ends))) >= 0
        for size in np.diff((0, *each.ends))
    }
    assert {0, 1, rows, rows + 1} <= sizes
    assert {len(each.ends) for each in lists.problems(fields)} >= {1, 3, 300, 512}
    assert any(min(each.ends) < 0 and max(each.ends) > each.m for each in lists.problems(fields))


@pytest.mark.parametrize(("stages", "tiles"), [(2, 1), (3, 2), (4, 3), (6, 2), (8, 3)])
def test_stages_change_hands_between_tiles(stages: int, tiles: int) -> None:
    """The tile of a stage's next round is an odd number of tiles on for some stage."""
    fields = {"genome": {"stages": stages, "tile_k": 64}, "cluster": (1, 1, 1), "grid": {}}
    assert problems.handed_on(fields) == tiles * 64
    odd = [((stage + stages) // tiles - stage // tiles) % 2 for stage in range(stages)]
    assert any(odd) is (stages > 2)
