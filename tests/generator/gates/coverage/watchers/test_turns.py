"""A copy to a stage comes behind all who read it, and a read behind the copies.

The story: one of two warpgroups gave stages back for both, a CTA copied over what its peer still
read, and warps read what another had waited for without having met it. All were right on every GPU.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hgemm_packs.generator.gates.coverage.watchers import turns
from hgemm_packs.generator.gates.coverage.watchers.events import (
    ARRIVE,
    COMMIT,
    COPY,
    LEFT,
    LOAD,
    MEET,
    OF_WARP,
    READ,
    WAIT,
    Event,
    numbers_of,
)
from hgemm_packs.generator.gates.coverage.watchers.rings import Stage
from hgemm_packs.generator.gates.dataflow.program.parse import Instruction, Operand

FULL, EMPTY, PLACE = 8, 16, 1024
RING = {PLACE: Stage(FULL, EMPTY)}
SYNC = Instruction(0, ("bar", "sync"), (), "", False, "bar.sync 0")


def at(kind: int, number: int = 0, to: int = 0, *ctas: int) -> Event:
    """What a thread does."""
    return Event(kind, number, SYNC, to, ctas)


def told(*threads: list[Event], count: int = 2, together: int = 1) -> str:
    """The rule that is broken by the first threads of warps, of CTAs that have equally many."""
    events = {32 * i: own for i, own in enumerate(threads)}
    cta = {number: i * together // len(threads) for i, number in enumerate(events)}
    counts = {(each, EMPTY): count for each in cta.values()}
    found = turns.taken(events, cta, together, counts, RING, {PLACE: 512})
    return next(found, "").partition(" in '")[0]


COPIES = [at(WAIT, EMPTY, 1), at(COPY, FULL, PLACE, 0), at(WAIT, EMPTY, 0)]
COPIES = [*COPIES, at(COPY, FULL, PLACE, 0)]
ROUND = [at(READ, PLACE), at(COMMIT), at(LEFT)]
BACK = [at(ARRIVE, EMPTY, 0, 0)]
KEEPS = [at(WAIT, FULL, 0), *ROUND, at(WAIT, FULL, 1), *ROUND]
GIVES = [at(WAIT, FULL, 0), *ROUND, *BACK, at(WAIT, FULL, 1), *ROUND]
EARLY = [at(WAIT, FULL, 0), *BACK, *ROUND, at(WAIT, FULL, 1), *ROUND]


@pytest.mark.parametrize(
    ("readers", "count", "words"),
    [
        ([GIVES, GIVES], 2, ""),
        ([GIVES, KEEPS], 1, turns.TAKEN),
        ([GIVES, GIVES], 1, turns.TAKEN),
        ([GIVES, EARLY], 2, turns.TAKEN),
        ([GIVES, [*ROUND, *GIVES[1:]]], 2, turns.EARLY),
    ],
)
def test_all_who_read_a_stage_give_it_back(
    readers: list[list[Event]], count: int, words: str
) -> None:
    assert told(COPIES, *readers, count=count) == words


@pytest.mark.parametrize(("peers", "words"), [((0, 1), ""), ((1,), turns.TAKEN)])
def test_a_stage_is_given_back_to_each_cta_that_copies_there(
    peers: tuple[int, ...], words: str
) -> None:
    """The first CTA copies for both; a reader of each tells some of them."""
    copies = [each._replace(ctas=(0, 1)) if each.kind == COPY else each for each in COPIES]
    theirs = [each._replace(ctas=peers) if each.kind == ARRIVE else each for each in GIVES]
    assert told(copies, GIVES, theirs, [], count=len(peers), together=2) == words


def step(*meeting: Event) -> tuple[list[Event], list[Event]]:
    """One that copies, waits and reads, and one that reads, who meet before and behind it."""
    load = at(LOAD, PLACE + 8)
    one, other = [], []
    for phase in (0, 1):
        one += [at(COPY, FULL, PLACE, 0), at(WAIT, FULL, phase), *meeting[:1], load, *meeting[1:]]
        other += [*meeting[:1], load, *meeting[1:]]
    return one, other


@pytest.mark.parametrize(
    ("meetings", "words"),
    [
        ([at(MEET), at(MEET)], ""),
        ([at(MEET, 1, 64), at(MEET, 2, 64)], ""),
        ([at(MEET)], turns.TAKEN),
        ([at(MEET), at(MEET, OF_WARP)], turns.TAKEN),
        ([at(MEET), at(MEET, 1, 32)], turns.TAKEN),
        ([at(MEET, 1, 32), at(MEET)], turns.EARLY),
    ],
)
def test_threads_that_read_by_themselves_meet_the_one_that_copies(
    meetings: list[Event], words: str
) -> None:
    assert told(*step(*meetings)) == words


def test_barriers_of_two_arrays_are_two() -> None:
    wait = Instruction(
        0,
        ("mbarrier", "try_wait", "parity", "b64"),
        (Operand("register"), Operand("address"), Operand("number")),
        "",
        False,
        "",
    )
    zero = np.array([0])
    found = []
    for place in (8, 8 + (1 << 20)):
        at_place = np.array([place])
        frame: Any = SimpleNamespace(sum=lambda _, x=at_place: x, value=lambda *_: zero)
        found += [int(number[0]) for number, _ in numbers_of(wait, WAIT, cast("Any", frame))]
    assert found[0] != found[1]
