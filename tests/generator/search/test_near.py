"""Of sizes that no run knows, the winners of the nearest sizes come first, with tiles that fit."""

from __future__ import annotations

from dataclasses import replace

from hgemm_packs.generator.core.space import Space, admits
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.search.near import MOST, fit
from hgemm_packs.generator.search.transfer import FEW, Transfer, move_choices, start_choices
from hgemm_packs.problem import Problem
from tests.generator.kernels import TOKENS

HERE = Problem(37, 4096, 4096, "nt", "bf16")


def of_family(name: str, problem: Problem, **genes: int) -> list[Choice]:
    return [
        c
        for c in Space(problem).core
        if c.family == name and all(c.genome[gene] == value for gene, value in genes.items())
    ]


def test_the_nearest_sizes_are_those_of_the_same_weight() -> None:
    near, far, other = of_family("sm90_wgmma", HERE, tile_m=64)[:3]
    known = {(64, 4096, 4096): [near], (1, 4096, 4096): [far], (37, 1024, 4096): [other]}
    assert start_choices(known, HERE) == [near, far, other]
    assert move_choices(known, HERE) == [], "of its own sizes nothing is known"


def test_a_size_of_which_enough_is_known_needs_no_neighbours() -> None:
    near, *own = of_family("sm90_wgmma", HERE, tile_m=64)[: FEW + 1]
    known = {(37, 4096, 4096): own, (64, 4096, 4096): [near]}
    assert start_choices(known, HERE) == own
    assert start_choices({**known, (37, 4096, 4096): own[1:]}, HERE) == [*own[1:], near]


def test_tokens_of_a_tile_become_those_of_the_problem() -> None:
    wide = of_family("sm90_swapab", HERE, tile_m=64, stages=6)[0]
    fitted, same = fit(wide, 37)
    assert same == wide
    assert fitted.genome == {**wide.genome, "tile_m": 40}
    assert admits(fitted, HERE)
    three = [choice.genome["tile_m"] for choice in fit(wide, 600)]
    assert three == [200, 64], "three tiles of 200 rows, none with more than 256"


def test_tiles_of_tokens_stay_as_many_and_become_equal() -> None:
    wide = Choice.of("sm90_tokens", {**TOKENS, "dtype": "bf16", "tile_m": 208})
    fitted, same = fit(wide, 777)
    assert same == wide
    assert fitted.genome == {**wide.genome, "tile_m": 200}, "four of 208 become four of 200"
    assert [c.genome["tile_m"] for c in fit(wide, 37)] == [40, 208]
    assert [*fit(wide, 416)] == [wide], "two of 208 are full"


def test_a_tile_that_grows_keeps_the_stages_that_find_room() -> None:
    narrow = max(
        of_family("sm90_swapab", HERE, tile_m=8, consumers=2), key=lambda c: c.genome["stages"]
    )
    fitted, _ = fit(narrow, 200)
    assert fitted.genome["tile_m"] == 200
    assert int(fitted.genome["stages"]) < int(narrow.genome["stages"])
    assert FAMILIES["sm90_swapab"].is_valid(fitted.genome)


def test_only_so_many_are_asked_for_and_only_what_the_problem_admits() -> None:
    many = of_family("sm90_wgmma", HERE)[: 2 * MOST]
    (turned,) = of_family("sm90_wgmma", replace(HERE, layout="nn"), tile_m=64)[:1]
    found = start_choices({(64, 4096, 4096): [turned, *many]}, HERE)
    assert len(found) == MOST
    assert all(admits(choice, HERE) for choice in found)
    asked = [each.choice for each in Transfer({(64, 4096, 4096): many}, None).ask(Space(HERE), 8)]
    assert asked == many[:8]
