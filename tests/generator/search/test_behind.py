"""Which kernels are worth a launch behind another: those that read ahead and leave room."""

from __future__ import annotations

import math

import pytest

from hgemm_packs.generator.core.space import Space, admits
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import FAMILIES, Genome
from hgemm_packs.generator.search import behind, prior
from hgemm_packs.problem import Problem
from tests.generator.kernels import BASES, READABLE_AHEAD

AHEAD = {"reads_ahead": True, "triggers_early": True}
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
        assert choice.genome.items() >= AHEAD.items() and admits(choice, DEEP)
        assert behind.leaves_room(choice, DEEP, sms)
        plain = {**choice.genome, **dict.fromkeys(AHEAD, False)}
        places.append(order[Choice.of(choice.family, plain)])
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


@pytest.mark.parametrize("already", [{}, {"reads_ahead": True}, AHEAD])
@pytest.mark.parametrize(
    ("m", "stages", "found"),
    [
        (512, 4, [4]),  # 128 CTAs: two an SM, of up to six stages
        (512, 6, [6]),
        (512, 12, [12, 6]),
        (1024, 4, [4, 2]),  # 256: four an SM, of two stages
        (1024, 2, [2]),
        (2048, 4, [4]),  # 512: eight an SM, of none
    ],
)
def test_twins_are_as_deep_as_the_choice_and_as_deep_as_leaves_room(
    m: int, stages: int, found: list[int], already: Genome
) -> None:
    """Also of one that reads ahead itself."""
    problem = Problem(m, 1024, 1024, "nt", "f16")
    plain = {**BASES["sm90_wgmma"], "stages": stages}
    choice = Choice.of("sm90_wgmma", {**plain, **already})
    twins = behind.twins(choice, problem, SMS)
    assert [twin.genome for twin in twins] == [{**plain, "stages": each, **AHEAD} for each in found]


@pytest.mark.parametrize(
    ("name", "genes", "count"),
    [
        ("sm90_oneshot", {}, 1),  # has no stages
        ("sm90_writebound", {"ctas_per_sm": 2}, 1),  # always leaves room
        ("sm90_writebound", {}, 0),
        ("sm90_wgmma", {"persistent": True}, 0),
        ("sm90_direct", {}, 0),
    ],
)
def test_twins_of_what_has_no_other_depth(name: str, genes: Genome, count: int) -> None:
    plain = {**BASES[name], **genes}
    wide = Problem(8192, 8192, 128, "nt", "f16")
    twins = behind.twins(Choice.of(name, plain), wide, SMS)
    assert [twin.genome for twin in twins] == [{**plain, **AHEAD}] * count


def test_persistent_kernels_leave_room_whatever_the_size() -> None:
    wide = Problem(8192, 8192, 128, "nt", "f16")
    for name, room in (("sm90_writebound", True), ("sm90_wgmma", False)):
        choice = Choice.of(name, {**READABLE_AHEAD[name], "reads_ahead": True})
        assert behind.leaves_room(choice, wide, SMS) == room
    found = behind.candidates(Space(wide), SMS, 400)
    assert len(found) > 20 and {choice.family for choice in found} == {"sm90_writebound"}


def test_around_the_best_are_its_neighbours_and_what_is_best_nearby() -> None:
    """Of this problem two choices count, of the eight nearest of its layout and type one."""
    base = Choice.of("sm90_wgmma", {**BASES["sm90_wgmma"], **AHEAD})
    deeper, deepest = (
        Choice.of("sm90_wgmma", {**base.genome, "stages": stages}) for stages in (5, 12)
    )
    problem = Problem(512, 1024, 1024, "nt", "f16")
    assert behind.around(problem, {}) == []
    found = behind.around(problem, {problem: [base, deeper, deepest]})
    assert len(found) == len(set(found)) > 10
    for choice in found:
        genes = [
            sum(one.genome[gene] != choice.genome[gene] for gene in one.genome)
            for one in (base, deeper)
        ]
        assert min(genes) <= 1 and choice.genome.items() >= AHEAD.items()
        assert admits(choice, problem)
    assert deepest not in found
    nearby = [Problem(512, 1024, 1024 << i, "nt", "f16") for i in range(1, 12)]
    others = [
        choice for choice in behind.candidates(Space(problem), SMS, 80) if admits(choice, nearby[0])
    ]
    best = {other: [one, base] for other, one in zip(nearby, others, strict=False)}
    strange = Problem(512, 1024, 1024, "nn", "f16"), Problem(512, 1024, 1024, "nt", "bf16")
    turned = {other: [behind.candidates(Space(other), SMS, 1)[0]] for other in strange}
    assert behind.around(problem, {**turned, **best}) == others[:8]


def test_what_is_best_nearby_may_not_take_the_problem() -> None:
    problem, other = Problem(64, 64, 64, "nt", "f16"), Problem(64, 64, 4096, "nt", "f16")
    large = Choice.of(
        "sm90_oneshot", {**BASES["sm90_oneshot"], **AHEAD, "k_slice": 256, "split": 16}
    )
    assert admits(large, other) and not admits(large, problem)
    assert behind.around(problem, {other: [large]}) == []
