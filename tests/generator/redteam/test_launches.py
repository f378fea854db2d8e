"""An honest kernel that is launched as its own record allows is no fault, whatever record it was
given; one that is promised more than it was made for is.

The story: a kernel with a ring of four stages, under the record of one with six, counted as a fault
that no gate saw.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from hgemm_packs.generator.redteam.mutation import bases, draw, judge, launches
from tests.generator.redteam.planted import BY_NAME

FIELDS = bases.draw(1, 0, "sm90_wgmma").fields
DIM = {"min": 64, "max": 4096, "multiple_of": 16}


def given(path: str, value: Any, own: Any = None) -> bool:
    """Whether a record with a value is allowed to a kernel with this one, or that of FIELDS."""
    mine = FIELDS if own is None else draw.with_value(FIELDS, path, own)
    return launches.are_allowed(mine, draw.with_value(FIELDS, path, value))


@pytest.mark.parametrize(
    ("path", "own", "value", "is_allowed"),
    [
        ("dims.k", DIM, {**DIM, "min": 128}, True),
        ("dims.k", DIM, {**DIM, "min": 32}, False),
        ("dims.k", DIM, {**DIM, "max": 8192}, False),
        ("dims.k", DIM, {**DIM, "multiple_of": 32}, True),
        ("dims.k", DIM, {**DIM, "multiple_of": 8}, False),
        ("align.a", 8, 16, True),
        ("align.a", 16, 8, False),
        ("smem_bytes", 1024, 2048, True),
        ("smem_bytes", 2048, 1024, False),
        ("grid.persistent", True, False, True),
        ("grid.persistent", False, True, False),
        ("grid.tile_m", 64, 32, False),
        ("grid.tile_m", 64, 128, False),
        ("reads_ahead", False, True, True),
        ("reads_ahead", True, False, False),
        ("triggers_early", True, False, False),
        ("cooperative", True, False, False),
        ("block", 384, 352, False),
        ("block", 384, 416, False),
        ("cluster", [1, 1, 1], [2, 1, 1], False),
        ("workspace_bytes", 64, 128, False),
        ("layout", "nn", "nt", False),
    ],
)
def test_a_record_may_ask_less_and_never_more(
    path: str, own: Any, value: Any, is_allowed: bool
) -> None:
    assert given(path, value, own) is is_allowed
    assert given(path, own, own)


def test_a_grid_of_groups_may_be_of_any_size() -> None:
    """Where groups end is known to the device alone, so CTAs take what tiles there are."""
    fields = bases.draw(1, 0, "sm90_grouped").fields
    for name in ("tile_m", "tile_n"):
        for tile in (fields["grid"][name] // 2, fields["grid"][name] * 2):
            other = draw.with_value(fields, f"grid.{name}", tile)
            assert launches.are_allowed(fields, other)
            once = draw.with_value(other, "grid.persistent", False)
            assert not launches.are_allowed(once, other)


def test_a_grid_of_one_row_is_never_bounded() -> None:
    """A persistent grid has at least one cluster along x; tiles of N go along y."""
    fields = bases.draw(1, 0, "sm90_gemv").fields
    rows = fields["grid"]["tile_m"]
    for most, is_allowed in ((rows, True), (rows + 1, False)):
        own = draw.with_value(fields, "dims.m.max", most)
        assert own["grid"]["persistent"] is False
        given = draw.with_value(own, "grid.persistent", True)
        assert launches.are_allowed(own, given) is is_allowed
    mapped = draw.with_value(FIELDS, "dims.m.max", 1)
    once = draw.with_value(mapped, "grid.persistent", False)
    assert not launches.are_allowed(once, draw.with_value(once, "grid.persistent", True))


def test_a_kernel_of_fewer_stages_is_an_honest_one_with_more_room() -> None:
    """Of the genome whose ring is longer the record promises shared memory that is not there."""
    base = bases.draw(1, 0, "sm90_wgmma")
    made = (of_another_depth(base, number) for number in range(40))
    mutant = next(each for each in made if each is not None)
    assert mutant.own is not None and mutant.own["smem_bytes"] < base.fields["smem_bytes"]
    said = "an honest kernel, launched as its own record allows"
    assert judge.decide(mutant)[:3] == (judge.EQUIVALENT, "", said)
    assert not launches.are_allowed(base.fields, mutant.own)


def of_another_depth(base: Any, number: int) -> draw.Mutant | None:
    """The base with the ring of another genome."""
    operator = BY_NAME["depth_of_another"]
    made = draw.plant(operator, base, 1, number, random.Random(number))
    return made if made is not None and made.diff[0].startswith("-stages: ") else None
