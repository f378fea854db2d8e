"""Threads of a cluster touch the same bytes in an order that something keeps.

The story: warps met in fewer than they are, a CTA sent sums over what its partner had not read,
one of two warpgroups gave stages back for both, sums were staged over a ring in use. All were right
on every GPU, for those who came late were late by far.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest

from hgemm_packs.generator.gates.coverage.watchers import clusters, races
from hgemm_packs.generator.gates.coverage.watchers.strands import (
    ARRIVE,
    COPIED,
    COPIES,
    COPY,
    FENCE,
    FETCH,
    FILL,
    LOOK,
    MAKE,
    MEET,
    MULTIPLIED,
    MULTIPLY,
    OF_CLUSTER,
    OF_WARP,
    PASS,
    PLACES,
    PRODUCTS,
    READ,
    SEND,
    SENT,
    STORE,
    STORED,
    STORES,
    UNIT,
    UNKNOWN,
    WAIT,
    WRITE,
    Act,
    Strand,
    Strands,
    Touch,
)
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Kernel

INS = Instruction(0, ("bar", "sync"), (), "", False, "bar.sync 0")
FULL, EMPTY, PLACE, BYTES = 8, 16, 1024, 64
AT = PLACE // 16  # the descriptor of an operand there
AWAY = (1 << 26) * 2  # in the second CTA of a cluster
TOUCHES = {"read": READ, "write": WRITE, "fetch": FETCH, "sent": SENT}

#: What a strand does: an act's kind and numbers, or a word and the CTA that it touches.
Thing = tuple[Any, ...]


def strand(cta: int, warp: int, things: list[Thing], weight: int = 32) -> Strand:
    """One that does things in their order."""
    made = Strand(cta, warp, weight)
    for thing in things:
        if thing[0] in TOUCHES:
            first = (thing[1] if len(thing) > 1 else cta) * PLACES + PLACE
            places = np.arange(first // UNIT, (first + BYTES) // UNIT)
            touch = Touch(TOUCHES[thing[0]], 0, places)
            made.touched.setdefault(len(made.acts), []).append(touch)
        else:
            made.acts.append(Act(thing[0], INS, tuple(thing[1:])))
    return made


def judge(*strands: Strand, together: int = 1, count: int = 1) -> str:
    """The rule that they break, whose barriers are known to be made."""
    with mock.patch.object(races.Races, "_is_made", return_value=True):
        return judge_alone(*strands, together=together, count=count)


def judge_alone(*strands: Strand, together: int = 1, count: int = 1) -> str:
    """The same of strands of which some make the barriers, if any do."""
    kernel = cast(Kernel, SimpleNamespace(instructions=[INS]))
    noted = SimpleNamespace(unknown=None, together=together, clusters=lambda: [list(strands)])
    counts = {(cta, at): count if at == EMPTY else 1 for cta in (0, 1) for at in (FULL, EMPTY)}
    found = clusters.faults(kernel, cast(Strands, noted), counts, clusters.ACTS)
    return next(found, "").partition(" in '")[0]


SYNC, NAMED, FEW = (MEET, 0, 0, 0), (MEET, 1, 64, 0), (MEET, 1, 32, 0)
COMES, MEETS, SAYS = (MEET, 1, 64, 1), (OF_WARP, 1), (OF_CLUSTER, 0, 0)
WAITS, RELAXED = (OF_CLUSTER, 1, 0), (OF_CLUSTER, 0, 1)
WRITES, READS = [("write",)], [("read",)]


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ([*WRITES, SYNC], [SYNC, *READS], ""),
        (WRITES, READS, races.READS),
        ([*WRITES, NAMED], [NAMED, *READS], ""),
        ([*WRITES, FEW], [FEW, *READS], races.READS),
        ([*WRITES, COMES], [NAMED, *READS], ""),
        ([*WRITES, NAMED], [COMES, *READS], races.READS),
        ([*WRITES, MEETS], [MEETS, *READS], races.READS),
        ([*READS, SYNC, *WRITES], [*READS, SYNC], ""),
        ([*WRITES, SYNC, *WRITES], [SYNC, *READS], races.WRITES),
        ([*WRITES, SYNC, SYNC, *WRITES], [SYNC, *READS, SYNC], ""),
        ([SYNC, *WRITES], [*READS, SYNC, *READS], races.WRITES),
        ([("write",), COMES, NAMED, ("write",)], [NAMED, ("read",), COMES], ""),
        ([("write",), COMES, COMES, ("write",)], [NAMED, ("read",), NAMED], races.WRITES),
    ],
)
def test_warps_meet_between_a_write_and_a_read(
    one: list[Thing], other: list[Thing], words: str
) -> None:
    assert judge(strand(0, 0, one), strand(0, 1, other)) == words


def test_lanes_of_a_warp_are_looked_at_elsewhere() -> None:
    assert judge(strand(0, 0, WRITES, 1), strand(0, 0, READS, 31)) == ""


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ([("write", 1), SAYS, WAITS], [SAYS, WAITS, ("read",)], ""),
        ([("write", 1), RELAXED, WAITS], [SAYS, WAITS, ("read",)], races.READS),
        ([SAYS, ("write", 1), WAITS], [SAYS, WAITS, ("read",)], races.READS),
        ([("write", 1), SAYS, WAITS, ("write", 1)], [SAYS, WAITS, ("read",)], races.WRITES),
        ([SAYS, WAITS, ("write", 1)], [(MULTIPLY, AT), (PRODUCTS, 0), RELAXED, WAITS], "W"),
        (
            [SAYS, WAITS, ("write", 1)],
            [(MULTIPLY, AT), (PRODUCTS, 0), (MULTIPLIED, 0), RELAXED, WAITS],
            "",
        ),
        (
            [("sent", 1), (SEND, AWAY + EMPTY, BYTES)],
            [(ARRIVE, EMPTY, BYTES, 1), (WAIT, EMPTY, 0), ("read",)],
            "",
        ),
        ([("sent", 1), (SEND, AWAY + EMPTY, BYTES)], [(ARRIVE, EMPTY, BYTES, 1), ("read",)], "R"),
        (
            [(PASS, AWAY + FULL, BYTES, AWAY + PLACE, PLACE)],
            [(ARRIVE, FULL, BYTES, 1), (WAIT, FULL, 0), ("read",)],
            "",
        ),
        (
            [("write",), (PASS, AWAY + FULL, BYTES, AWAY + PLACE, PLACE), ("write",)],
            [(ARRIVE, FULL, BYTES, 1), (WAIT, FULL, 0)],
            "W",
        ),
    ],
)
def test_a_cluster_is_told_of_what_is_sent(
    one: list[Thing], other: list[Thing], words: str
) -> None:
    """By a meeting that releases it, or by a barrier that gets its bytes. A relaxed one tells of
    products that are over, for nothing of theirs is still to be read."""
    told = {"W": races.WRITES, "R": races.READS}.get(words, words)
    assert judge(strand(0, 0, one, 1), strand(1, 1, other, 1), together=2) == told


FILLED = [(ARRIVE, FULL, BYTES, 1), (COPY, FULL, BYTES, PLACE, 0)]
COPIER = [(WAIT, EMPTY, 1), *FILLED, (WAIT, EMPTY, 0), *FILLED]
ROUND = [(MULTIPLY, AT, UNKNOWN), (PRODUCTS, 0), (MULTIPLIED, 0)]
BACK = [(ARRIVE, EMPTY, 0, 1)]
GIVES = [(WAIT, FULL, 0), *ROUND, *BACK, (WAIT, FULL, 1), *ROUND]
KEEPS = [(WAIT, FULL, 0), *ROUND, (WAIT, FULL, 1), *ROUND]
EARLY = [(WAIT, FULL, 0), *BACK, *ROUND, (WAIT, FULL, 1), *ROUND]
FLYING = [(WAIT, FULL, 0), *ROUND[:2], (MULTIPLIED, 1), *BACK, (WAIT, FULL, 1), *ROUND]


@pytest.mark.parametrize(
    ("readers", "count", "words"),
    [
        ([GIVES], 1, ""),
        ([GIVES, GIVES], 2, ""),
        ([GIVES, KEEPS], 1, races.WRITES),
        ([GIVES, GIVES], 1, races.WRITES),
        ([EARLY], 1, races.WRITES),
        ([FLYING], 1, races.WRITES),
        ([[*ROUND, *GIVES[1:]]], 1, races.READS),
        ([GIVES], 2, races.STUCK),
        ([[*GIVES, (WAIT, FULL, 0)]], 1, races.STUCK),
    ],
)
def test_a_copy_comes_behind_all_who_read_its_place(
    readers: list[list[Thing]], count: int, words: str
) -> None:
    own = [strand(0, 1 + i, things, 1) for i, things in enumerate(readers)]
    assert judge(strand(0, 0, COPIER, 1), *own, count=count) == words


def test_a_cta_ends_when_all_that_is_brought_has_come() -> None:
    reader = [(WAIT, FULL, 0), *ROUND, *BACK]
    assert judge(strand(0, 0, FILLED, 1), strand(0, 1, reader, 1)) == ""
    assert judge(strand(0, 0, FILLED, 1)) == races.UNENDED
    assert judge(strand(0, 0, COPIER, 1), strand(0, 1, reader, 1)) == races.UNENDED
    sends, takes = [("sent", 1), (SEND, AWAY + EMPTY, BYTES)], [(ARRIVE, EMPTY, BYTES, 1)]
    waits = [*takes, (WAIT, EMPTY, 0)]
    assert judge(strand(0, 0, sends, 1), strand(1, 1, waits, 1), together=2) == ""
    assert judge(strand(0, 0, sends, 1), strand(1, 1, takes, 1), together=2) == races.UNENDED


def test_a_wait_that_may_be_over_at_once_teaches_nothing() -> None:
    """The parity of the phase before the first is that of the second."""
    late = [(WAIT, FULL, 1), *ROUND, *BACK]
    told = [(WAIT, FULL, 0), *ROUND, *BACK, (WAIT, FULL, 1), SYNC]
    copier, knows = strand(0, 0, [*COPIER, SYNC], 1), strand(0, 1, told, 1)
    assert judge(copier, knows, strand(0, 2, [SYNC, *late])) == ""
    early = [(WAIT, FULL, 1), *ROUND, SYNC]
    copier, knows = strand(0, 0, [*COPIER, SYNC], 1), strand(0, 1, told, 1)
    assert judge(copier, knows, strand(0, 2, early)) == races.READS


@pytest.mark.parametrize(
    ("waits", "words"),
    [
        ([(WAIT, EMPTY, 0)], ""),
        ([(LOOK, EMPTY, 0)], races.READS),
        ([(LOOK, EMPTY, 0), (FENCE, 0)], ""),
        ([(LOOK, EMPTY, 0), (FENCE, 1)], races.READS),  # a fence for the CTA alone
        ([(FENCE, 0), (LOOK, EMPTY, 0)], races.READS),
        ([(LOOK, EMPTY, 0), (WAIT, EMPTY, 0)], ""),
    ],
)
def test_a_relaxed_wait_teaches_nothing_until_a_fence(waits: list[Thing], words: str) -> None:
    sends = strand(0, 0, [("sent", 1), (SEND, AWAY + EMPTY, BYTES)], 1)
    takes = strand(1, 1, [(ARRIVE, EMPTY, BYTES, 1), *waits, ("read",)], 1)
    assert judge(sends, takes, together=2) == words


@pytest.mark.parametrize(
    ("behind", "words"), [([SYNC, *READS], ""), ([SYNC, SYNC, *READS], ""), (READS, races.READS)]
)
def test_a_cluster_that_goes_another_way_is_always_looked_at(
    behind: list[Thing], words: str
) -> None:
    """Others had used up what may be looked at."""
    syncs = [[SYNC] * i for i in (4, 3, 2)]
    every = [[strand(0, 0, [*WRITES, *i]), strand(0, 1, [*i, *READS])] for i in syncs]
    own = [each for each in behind if each == SYNC]
    every.append([strand(0, 0, [*WRITES, *own]), strand(0, 1, behind)])
    kernel = cast(Kernel, SimpleNamespace(instructions=[INS]))
    noted = SimpleNamespace(unknown=None, together=1, clusters=lambda: every)
    found = next(clusters.faults(kernel, cast(Strands, noted), {}, 0), "")
    assert found.partition(" in '")[0] == words


def test_a_warp_multiplies_as_one() -> None:
    """Its first lane gives a stage back for all."""
    lane = [*GIVES[:1], *ROUND, *BACK, *GIVES[5:]]
    others = [each for each in lane if each not in BACK]
    assert judge(strand(0, 0, COPIER, 1), strand(0, 1, others, 31), strand(0, 1, lane, 1)) == ""


@pytest.mark.parametrize(
    ("things", "words"),
    [
        ([("fetch",), (COPIES, 0), (COPIED, 0), SYNC], ""),
        ([("fetch",), (COPIES, 0), (COPIED, 1), SYNC], races.READS),
        ([("fetch",), (COPIED, UNKNOWN), SYNC], ""),
        ([("fetch",), (COPIED, 0), SYNC], races.READS),
        ([("fetch",), SYNC], races.READS),
    ],
)
def test_a_thread_s_copies_are_waited_for(things: list[Thing], words: str) -> None:
    assert judge(strand(0, 0, things), strand(0, 1, [SYNC, ("read",)])) == words


def test_copies_tell_a_barrier() -> None:
    reads = [(WAIT, FULL, 0), ("read",)]
    fills = [("fetch",), (FILL, FULL, 0, 1)]
    assert judge(strand(0, 0, fills, 1), strand(0, 1, reads)) == ""
    assert judge(strand(0, 0, fills[::-1], 1), strand(0, 1, reads)) == races.READS


STORES_IT = [(STORE, PLACE, BYTES), (STORES, 0)]


@pytest.mark.parametrize(
    ("things", "words"),
    [
        ([SYNC, *STORES_IT, (STORED, 0), SYNC], ""),
        ([SYNC, *STORES_IT, SYNC], races.WRITES),
        ([SYNC, *STORES_IT, (STORED, 1), SYNC], races.WRITES),
        ([*STORES_IT, SYNC, (STORED, 0), SYNC], races.WRITES),
    ],
)
def test_a_bulk_store_reads_what_warps_have_staged(things: list[Thing], words: str) -> None:
    staging = [("write",), SYNC, SYNC, ("write",)]
    told = judge(strand(0, 0, things, 1), strand(0, 1, staging))
    assert told == words or (told == races.READS and things[0][0] == STORE)


@pytest.mark.parametrize(
    ("behind", "words"),
    [
        ([(STORES, 0), (STORED, 0)], ""),
        ([(STORES, 0)], races.UNREAD),
        ([(STORES, 0), (STORED, 1)], races.UNREAD),
        ([(STORED, 0)], races.UNREAD),
        ([(STORES, 0), (STORED, 0), (STORE, PLACE, BYTES)], races.UNREAD),
    ],
)
def test_a_cta_ends_when_its_bulk_stores_have_read(behind: list[Thing], words: str) -> None:
    """Shared memory is another's then. One that waited for all but one store was right on every
    GPU."""
    assert judge(strand(0, 0, [(STORE, PLACE, BYTES), *behind], 1)) == words


MAKES = [(MAKE, FULL), (MAKE, EMPTY)]
TELLS = [(ARRIVE, FULL, 0, 1)]


@pytest.mark.parametrize(
    ("maker", "user", "words"),
    [
        ([*MAKES, SYNC], [SYNC, *TELLS], ""),
        ([*MAKES, SYNC], [*TELLS, SYNC], races.UNMADE),
        ([SYNC, *MAKES], [SYNC, *TELLS], races.UNMADE),
        ([SYNC], [SYNC, *TELLS], races.UNMADE),
        ([*MAKES, MEETS], [MEETS, *TELLS], races.UNMADE),
        ([*MAKES, SYNC], [SYNC, (WAIT, FULL, 1)], ""),
        (MAKES, [(WAIT, FULL, 1)], races.UNMADE),
        ([*MAKES, SYNC], [SYNC, *FILLED, (WAIT, FULL, 0)], ""),
        (MAKES, FILLED, races.UNMADE),
        ([*MAKES, *TELLS], [], ""),
    ],
)
def test_a_barrier_is_used_by_those_who_have_met_its_maker(
    maker: list[Thing], user: list[Thing], words: str
) -> None:
    assert judge_alone(strand(0, 0, maker, 1), strand(0, 1, user, 1)) == words


def test_a_cluster_meets_before_barriers_of_others_are_told() -> None:
    tells = [(ARRIVE, AWAY + FULL, 0, 1)]
    for met, words in (((SAYS, WAITS), ""), ((SYNC, SYNC), races.UNMADE)):
        maker, user = strand(1, 1, [*MAKES, *met], 1), strand(0, 0, [*met, *tells], 1)
        assert judge_alone(user, maker, together=2) == words


def test_a_cta_has_sixteen_barriers_to_meet_at() -> None:
    last, beyond = (MEET, races.MEETINGS - 1, 0, 0), (MEET, races.MEETINGS, 0, 0)
    assert judge(strand(0, 0, [last])) == ""
    assert judge(strand(0, 0, [beyond])) == races.NO_SUCH
