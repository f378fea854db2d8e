"""Accesses are judged many at a time: quotients and the first wrong one are as of each alone."""

from __future__ import annotations

import numpy as np
import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.gates.coverage import bounds, gate
from hgemm_packs.generator.redteam.mutation import bases, draw
from tests.generator.gates.coverage.test_coverage import SUM, judged
from tests.generator.redteam.planted import planted

pytestmark = pytest.mark.usefixtures("kept")


@pytest.mark.parametrize("most", [1 << 8, 1 << 31, 1 << 51, 1 << 57])
def test_quotients_by_floats_are_those_of_integers(most: int) -> None:
    drawn = np.random.default_rng(most)
    by = drawn.integers(1, 1 << 29, 4000)
    numbers = drawn.integers(-most, most, 4000)
    # Multiples and their neighbours are where a float may be on the wrong side.
    numbers[:2000] = numbers[:2000] // by[:2000] * by[:2000] + drawn.integers(-1, 2, 2000)
    assert np.array_equal(bounds.divided(numbers, by), numbers // by)


def test_the_first_wrong_access_is_told_however_many_are_judged_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind = (SUM, "  Problem at = g;\n  at.a += 8;\n" + SUM.replace("acc, g", "acc, at"))

    def told(most: int) -> gate.Verdict:
        monkeypatch.setattr(bounds, "MOST_WAITING", most)
        return judged(behind)

    alone = told(0)
    assert "bounds: A, " in alone.detail
    assert told(1 << 17) == alone


def test_a_row_that_is_found_in_32_bits_is_refused_however_few_rows_there_are() -> None:
    """A first row below 16 times a stride below 2^27 stayed within 32 bits."""
    base = bases.of_choice(COPIED)
    made = planted("narrow_address", "kMnMajor ? (int)at * ld", base=base).candidate
    fields = compiler.build_source(made.source, made.fields).entry_fields
    assert "bounds: B, " in gate.check(fields, made.source).detail


#: Threads copy rows of B, along K, from one of the first 16 on.
COPIED = Choice.of(
    "sm90_oneshot",
    {
        "cp_async": True,
        "dtype": "bf16",
        "epilogue": "plain",
        "k_slice": 512,
        "layout": "nn",
        "reads_ahead": True,
        "slab_group": 1,
        "split": 4,
        "tile_m": 64,
        "tile_n": 64,
        "triggers_early": True,
    },
)


def test_a_copy_takes_no_more_than_it_has_room_for() -> None:
    """PTX says nothing of such a copy. All that it took lay inside A: no problem showed it."""
    base = bases.draw(1, 2, "sm90_unaligned")
    assert base.fields["genome"]["a_bytes"] == 16
    made = planted("drop_clamp", "have < 0 ? 0 : (have)", base=base).candidate
    fields = compiler.build_source(made.source, made.fields).entry_fields
    assert "bounds: more than " in gate.check(fields, made.source).detail


def test_a_record_admits_no_more_tiles_than_a_kernel_counts_right() -> None:
    """Tiles are counted by a quotient of floats, which is exact for what the family declares."""
    base = bases.draw(1, 0, "sm90_splitk")
    assert base.fields["dims"]["m"]["max"] == 1 << 15
    built = compiler.build_source(base.source, base.fields).entry_fields
    assert gate.check(built, base.source).passed
    wider = compiler.build_source(base.source, draw.with_value(base.fields, "dims.m.max", 1 << 24))
    assert "bounds: " in gate.check(wider.entry_fields, base.source).detail
