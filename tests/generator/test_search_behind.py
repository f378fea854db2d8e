"""Which kernels are worth a launch behind another: those that read ahead and leave room."""

from __future__ import annotations

import math

import pytest

from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.search import behind, prior
from hgemm_packs.generator.space import Space, admits
from hgemm_packs.generator.spec import Choice
from hgemm_packs.problem import Problem

from .kernels import BASES

DEEP = Problem(256, 512, 8192, "nn", "f16")
SMS = 132


@pytest.mark.parametrize("sms", [SMS, 16])
def test_candidates_are_the_priors_first_that_leave_room(sms: int) -> None:
    space = Space(DEEP)
    found = behind.candidates(space, sms, 24)
    assert len(found) == len(set(found)) == 24
    order = {space.core[row]: place for place, row in enumerate(prior.rank(space))}
    places = []
    for choice in found:
        assert choice.genome["reads_ahead"] and admits(choice, DEEP)
        assert behind.leaves_room(choice, DEEP, sms)
        places.append(order[Choice.of(choice.family, {**choice.genome, "reads_ahead": False})])
    assert places == sorted(places)
    assert behind.candidates(space, sms, 3) == found[:3]


def test_room_is_for_two_grids() -> None:
    """CTAs of the launch twice, at most as many as fit by shared memory and threads."""
    both = {True: 0, False: 0}
    for choice in behind.candidates(Space(DEEP), 10**6, 400):
        record = FAMILIES[choice.family].record(choice.genome)
        grid = record["grid"]
        tiles = math.ceil(DEEP.m / grid["tile_m"]) * math.ceil(DEEP.n / grid["tile_n"])
        ctas = tiles * record["cluster"][2] * grid.get("slices", 1)
        fit = min(228 * 1024 // (record["smem_bytes"] + 1024), 2048 // record["block"])
        room = behind.leaves_room(choice, DEEP, SMS)
        assert room == (2 * ctas <= fit * SMS)
        both[room] += 1
    assert min(both.values()) > 20


def test_where_nothing_leaves_room_nothing_is_tried() -> None:
    assert behind.candidates(Space(Problem(8192, 8192, 8192, "nn", "f16")), SMS, 24) == []
    assert (
        behind.candidates(
            Space(DEEP, only=[Choice.of("sm90_direct", BASES["sm90_direct"])]), SMS, 24
        )
        == []
    )
