"""A stage of a ring is waited for, read to the end, given back and only then copied over.

The story: a kernel that let one group of products more be in flight when it gave a stage back was
right on every GPU, as was one that gave back the stage beside it, or whose copies were waited for
by one lane where any lane may be chosen to copy. No tool sees what copy engine and tensor cores do.
"""

from __future__ import annotations

import numpy as np
import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Verdict
from hgemm_packs.generator.gates.coverage import gate
from hgemm_packs.generator.gates.coverage.watchers import stages
from hgemm_packs.generator.gates.coverage.watchers.events import (
    ARRIVE,
    COMMIT,
    COPY,
    FILL,
    LEFT,
    MEET,
    READ,
    WAIT,
    Event,
)
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction
from tests.generator.redteam.planted import planted


def judged(name: str, text: str, family: str) -> Verdict:
    """The gate's verdict on a kernel of a family with a change."""
    made = planted(name, text, family).candidate
    fields = compiler.build_source(made.source, made.fields).entry_fields
    return gate.check(fields, made.source)


FEWER = "+      wgmma_wait<(kParts) + 1>();"
BESIDE = "release_by_warp(&barriers.ring.empty[(cursor.stage ^ 1)]"


@pytest.mark.parametrize(
    ("name", "text", "family", "words"),
    [
        ("wait_for_fewer", FEWER, "sm90_swapab", stages.PENDING),
        ("wait_for_fewer", FEWER, "sm90_splitk", stages.PENDING),
        ("wait_for_fewer", FEWER, "sm90_batched", stages.PENDING),
        ("wait_for_fewer", FEWER, "sm90_grouped", stages.PENDING),
        ("stage_off_by_one", BESIDE, "sm90_writebound", stages.UNREAD),
        ("wait_for_fewer", "+      wgmma_wait<(1) + 1>();", "sm90_unaligned", stages.PENDING),
        ("wait_by_one", "barrier_wait(&barriers.empty", "sm90_splitk", stages.OVER),
        ("wait_by_one", "barrier_wait(&barriers.empty", "sm90_swapab", stages.OVER),
        ("turn_parity", "parity ^= rounds & 1;", "sm90_writebound", stages.UNTURNED),
    ],
)
def test_a_stage_is_given_back_once_it_was_read(
    name: str, text: str, family: str, words: str
) -> None:
    assert words in judged(name, text, family).detail


FULL, EMPTY, OTHER = 8, 16, 24
PLACE, BESIDE_IT = 1024, 2048
INS = Instruction(0, ("mbarrier", "arrive"), (), "", False, "mbarrier.arrive [%r1]")
COPIES = [(WAIT, EMPTY), (COPY, FULL, PLACE), (COPY, FULL, BESIDE_IT)] * 2
ROUND = [(WAIT, FULL, 0), (READ, PLACE + 32), (READ, BESIDE_IT), (COMMIT, 0)]
GIVEN = [*ROUND, (LEFT, 0), (ARRIVE, EMPTY)]
NEXT = [(WAIT, FULL, 1), *GIVEN[1:]]


@pytest.mark.parametrize(
    ("consumed", "words"),
    [
        ([*GIVEN, *NEXT], ""),
        ([*ROUND, *GIVEN, *NEXT], ""),  # twice of the same copies
        ([*GIVEN, *GIVEN], stages.UNTURNED),
        ([*GIVEN, *NEXT, *GIVEN], stages.UNTURNED),  # copies came twice
        (NEXT, ""),  # what came first another warp has read
        ([*ROUND, (LEFT, 1), (ARRIVE, EMPTY)], stages.PENDING),
        ([*ROUND, (COMMIT, 0), (LEFT, 1), (ARRIVE, EMPTY)], ""),
        ([*ROUND[:3], (LEFT, 0), (ARRIVE, EMPTY)], stages.PENDING),
        ([*ROUND, (ARRIVE, OTHER)], stages.UNGIVEN),
        ([(WAIT, OTHER), (ARRIVE, EMPTY)], stages.UNREAD),
        ([*ROUND, (LEFT, 0), (ARRIVE, EMPTY), *ROUND[1:]], stages.UNTOLD),
        ([*ROUND, (LEFT, 0), (ARRIVE, EMPTY), (ARRIVE, EMPTY)], stages.UNREAD),
    ],
)
def test_what_a_consumer_may_do_and_when(consumed: list[tuple[int, ...]], words: str) -> None:
    assert told(COPIES, consumed) == words


@pytest.mark.parametrize(
    ("copied", "words"),
    [
        ([(COPY, FULL, PLACE), (MEET, 0), (COPY, FULL, PLACE)], ""),
        ([(COPY, FULL, PLACE), (COPY, FULL, BESIDE_IT)], ""),
        ([(COPY, FULL, PLACE), (COPY, FULL, BESIDE_IT), (COPY, FULL, PLACE)], stages.OVER),
    ],
)
def test_a_thread_copies_over_what_it_waited_for(copied: list[tuple[int, ...]], words: str) -> None:
    assert told(copied, []) == words


#: A thread's first wait for a place is over at once, as its parity says.
FIRST, LATER = (WAIT, EMPTY, 1), (WAIT, EMPTY, 0)
FOR_OTHERS = (WAIT, OTHER, 0)
ONE = (COPY, FULL, PLACE)


@pytest.mark.parametrize(
    ("copied", "words"),
    [
        ([FIRST, ONE, LATER, ONE], ""),
        ([FIRST, ONE, FOR_OTHERS, LATER, ONE], ""),
        ([FIRST, ONE, FOR_OTHERS, ONE], stages.UNGIVEN),
        ([ONE, FIRST, ONE], stages.UNGIVEN),
        ([FIRST, ONE, FOR_OTHERS, (MEET, 0), ONE], ""),
    ],
)
def test_a_thread_waits_for_who_reads_a_stage(copied: list[tuple[int, ...]], words: str) -> None:
    """A wait that was left out went unseen where the same thread waits for another ring."""
    assert told(copied, [*ROUND, (LEFT, 0), (ARRIVE, EMPTY)]) == words


@pytest.mark.parametrize(("left", "words"), [(1, ""), (2, stages.PENDING)])
def test_stages_that_threads_fill_are_given_back_once_read(left: int, words: str) -> None:
    """No copy says where such a stage is: its first place is one that is read behind its wait."""
    fills = [(FILL, FULL), (FILL, FULL + 1), (WAIT, EMPTY), (FILL, FULL), (WAIT, EMPTY + 1)]
    rounds = [(WAIT, FULL), (READ, PLACE), (COMMIT, 0), (WAIT, FULL + 1), (READ, BESIDE_IT)]
    consumed = [*rounds, (COMMIT, 0), (LEFT, left), (ARRIVE, EMPTY)]
    assert told([*fills, (FILL, FULL + 1)], consumed) == words


@pytest.mark.parametrize(
    ("waits", "words"),
    [([(WAIT, EMPTY)], ""), ([], stages.UNGIVEN), ([FOR_OTHERS], stages.UNGIVEN)],
)
def test_threads_fill_a_stage_once_it_was_read(waits: list[tuple[int, ...]], words: str) -> None:
    """They tell its barrier twice a turn here; whom they meet between are no readers."""
    fill = [(FILL, FULL), (ARRIVE, FULL)]
    copied = [*fill, (FILL, FULL + 1), (MEET, 0), *waits, *fill]
    assert told(copied, [*ROUND, (LEFT, 0), (ARRIVE, EMPTY)]) == words


def told(copied: list[tuple[int, ...]], consumed: list[tuple[int, ...]]) -> str:
    """The rule that one of a producer and a consumer breaks."""
    ring = stages.Stages(np.arange(64) % 32, np.zeros(64, np.int32))
    for thread, events in ((0, copied), (32, consumed)):
        ring.events[thread] = [
            Event(event[0], event[1], INS, event[2] if len(event) > 2 else 0) for event in events
        ]
    return next(ring.faults(), "").partition(" in '")[0]
