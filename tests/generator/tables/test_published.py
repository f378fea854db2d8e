"""What lines of public.py say of a table: figures, and what leaves its row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.tables import published
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem
from tests.generator.called import FORMER, A, B, C, identity, line, row, source
from tests.generator.kernels import SPLITK

ONE = Problem(64, 64, 64, "nn", "f16")
TWO, THREE = replace(ONE, m=128), replace(ONE, m=256)
LONG = Problem(8192, 8192, 8192, "nn", "f16")


def test_torch_over_ours_is_the_median_of_pairs() -> None:
    one = line(ONE, [A])
    one["us"]["regime"] = {"torch": [10.0, 30.0, 80.0], "ours": [10.0, 10.0, 40.0]}
    assert published.over_torch(one, "regime") == 2.0  # of 1, 3 and 2; 3 by the medians


def test_what_lies_between_single_calls_is_taken_off() -> None:
    """The median of it, and of single calls alone."""
    one = line(ONE, [A, B], {"plain": 2.0, "2x1": 2.0}, gap=50.0)
    one["gap_us"] = [49.0, 50.0, 90.0]
    assert one["us"]["plain"] == {"torch": [250.0] * 3, "ours": [150.0] * 3}
    assert published.over_torch(one, "plain") == published.over_torch(one, "2x1") == 2.0


def test_a_line_whose_gaps_all_took_longer_than_gaps_take_has_no_figures() -> None:
    """One block that did is a hiccup; three shorten both sides, torch's by the lesser share."""
    once, always = line(ONE, [A]), line(ONE, [A], {"plain": 0.5})
    once["gap_us"], always["gap_us"] = [19.0, 300.0, 98.0], [97.0, 98.0, 114.0]
    assert published.find_single_lines([once, always]) == [once]
    assert published.find_slow([once, always]) == (set(), set())


def test_a_graph_that_is_not_there_is_stood_for() -> None:
    plainly = line(ONE, [A], {"plain": 1.25, "8x1": 2.0, "regime": 3.0})
    for name in published.CHAINS:
        assert published.over_torch(plainly, name) == 2.0
    for name in published.MIXED:
        assert published.over_torch(plainly, name) == 3.0
    long = {**plainly, "us": {"plain": plainly["us"]["plain"]}}
    for name in (*published.CHAINS, *published.MIXED):
        assert published.over_torch(long, name) == 1.25


def test_the_graphs_of_a_row() -> None:
    every = published.graphs(ONE, True)
    assert every == published.graphs(LONG, True)
    assert every == ("plain", "2x1", "2x2", "8x1", "8x2", "32x1", "32x2", "regime", "all")
    assert published.graphs(ONE, False) == ("plain", "8x1", "regime")
    assert published.graphs(LONG, False) == ("plain",)
    assert [published.calls(one) for one in ("2x1", "8x2", "32x2")] == [2, 8, 32]


def test_the_slowest_chain() -> None:
    assert published.find_slowest(line(ONE, [A, B], {"plain": 0.5, "32x1": 1.1, "all": 1.2})) == 1.1
    assert published.find_slowest({**line(LONG, [A], {"plain": 0.5})}) == 1.0


def pairs(*lines: dict[str, Any]) -> tuple[list[int], list[int]]:
    """How many kernels each of what was slow is known by."""
    own, both = published.find_slow(lines)
    return sorted(len(k) for _, k in own), sorted(len(k) for _, k in both)


def test_what_was_slow_or_wrong() -> None:
    assert pairs(line(ONE, [A, B]), line(TWO, [A], {"8x1": 0.99})) == ([], [])
    # A chain of a row without dependent launches is of its own kernel; else it is of both.
    assert pairs(line(ONE, [A], {"regime": 0.985})) == ([1], [1])
    assert pairs(line(ONE, [A, B], {"regime": 0.985})) == ([], [2])
    assert pairs(line(ONE, [A, B], {"2x1": 0.985})) == ([], [2])
    assert pairs(line(ONE, [A, B], {"plain": 0.985})) == ([1], [])
    assert pairs(line(ONE, [A, B], wrong=["32x2"])) == ([1], [2])
    # Once is enough, and what has no figures, or is no problem's, says nothing.
    fast, slow = line(ONE, [A, B]), line(ONE, [A, B], {"all": 0.5})
    assert pairs(fast, slow, fast) == ([], [2])
    assert pairs({**slow, "error": "no"}, {"group": [], "us": {}}) == ([], [])


def leveled(rows: list[Row], *lines: dict[str, Any], unseen: bool = False) -> SourceManifest:
    return published.drop_slow_rows(source(*rows), lines, unseen)


def test_without_lines_nothing_is_asked() -> None:
    whole = source(row(ONE, A, B), row(TWO, None))
    assert published.drop_slow_rows(whole, []) is whole


@pytest.mark.parametrize("unseen", [False, True])
def test_what_was_slow_leaves_its_row(unseen: bool) -> None:
    rows = [row(ONE, A, B), row(TWO, C, B), row(THREE, A), row(LONG, None)]
    good = [line(ONE, [A, B]), line(TWO, [C, B]), line(THREE, [A])]
    assert leveled(rows, *good, unseen=unseen).table == tuple(rows)
    for bad, kept in (
        (line(ONE, [A, B], {"plain": 0.98}), (None, None)),
        (line(ONE, [A, B], {"8x2": 0.98}), (A, None)),
        (line(ONE, [A, B], wrong=["plain"]), (None, None)),
    ):
        found = leveled(rows, *good, bad, unseen=unseen)
        changed = rows[0]._replace(kernel=kept[0], dependent=kept[1])
        assert found.table == (changed, *rows[1:])
    # What no row names any more leaves.
    slow = (line(TWO, [C, B], {"plain": 0.5}), line(ONE, [A, B], {"all": 0.5}))
    found = leveled(rows, *good, *slow, unseen=unseen)
    assert [kernel.id for kernel in found.kernels] == [A]
    slowly = line(THREE, [A], {"8x1": 0.5})
    assert leveled(rows, *good, slowly, unseen=unseen).table[2].kernel is None
    # Slow single calls of a kernel are so whatever was launched dependent then.
    once = line(ONE, [A, C], {"plain": 0.5})
    assert leveled(rows, *good, once, unseen=unseen).table[0].kernel is None


def test_chains_that_nobody_measured_stay_only_if_they_may() -> None:
    rows = [row(ONE, A, B), row(TWO, C)]
    plainly = [rows[0]._replace(dependent=None), rows[1]]
    for lines in (
        [line(TWO, [C])],
        [line(ONE, [A])],
        [line(TWO, [A, B])],
        [line(ONE, [A, C])],
        [line(ONE, [A, FORMER[B]])],
        [line(ONE, [A, B], error="no")],
    ):
        assert leveled(rows, *lines).table == tuple(plainly)
        assert leveled(rows, *lines, unseen=True).table == tuple(rows)


def test_kernels_of_the_same_name_say_nothing() -> None:
    rows = [row(ONE, A, B)]
    former = [
        line(ONE, [FORMER[A], B], {"plain": 0.5, "8x1": 0.5}),
        line(ONE, [A, FORMER[B]], {"8x1": 0.5}),
        line(TWO, [A, B], {"plain": 0.5, "8x1": 0.5}),
    ]
    assert leveled(rows, *former, line(ONE, [A, B])).table == tuple(rows)


def test_lines_of_rows_as_they_are_now() -> None:
    whole = source(row(ONE, A, B), row(TWO, C), row(THREE, None))
    first, last = line(ONE, [A, B], {"plain": 2.0}), line(ONE, [A, B], {"plain": 3.0})
    others = [
        line(ONE, [A]),
        line(ONE, [A, C]),
        line(TWO, [C, C]),
        line(TWO, [FORMER[C]]),
        line(THREE, [A]),
    ]
    found = published.of_rows(whole, [first, last, *others])
    assert found == {ONE.key[:5]: last}


def test_a_row_with_an_epilogue_takes_no_line_of_a_product() -> None:
    """Lines name sizes, layout and type: the row with a bias stood in the way of the other."""
    biased = row(ONE, C)._replace(epilogue="bias")
    mine = line(ONE, [A, B])
    assert published.of_rows(source(row(ONE, A, B), biased), [mine]) == {ONE.key[:5]: mine}
    assert published.of_rows(source(biased), [line(ONE, [C])]) == {}


def group(*samples: tuple[float, float]) -> dict[str, Any]:
    torch, ours = map(list, zip(*samples, strict=True))
    fields = {"group": ["f16", "nn", "tiny", 0], "chain": [[64, 64, 64]]}
    return {**fields, "us": {"chain": {"torch": torch, "ours": ours}}}


def test_the_summary() -> None:
    layer = Problem(1, 4096, 4096, "nt", "bf16")
    whole = source(row(ONE, A, B), row(TWO, C), row(layer, A), row(THREE, A, B))
    lines = [
        line(ONE, [A, B], {"plain": 2.0, "32x2": 4.0, "2x2": 3.0, "regime": 1.6, "all": 1.2}),
        line(TWO, [C], {"plain": 0.98, "8x1": 1.0, "regime": 1.6}, fallbacks=2),
        line(layer, [A], {"plain": 1.1, "8x1": 1.1, "regime": 1.21}, wrong=["plain"]),
        line(THREE, [A, C], {"plain": 9.0}),  # of another kernel
        group((2.0, 1.0), (3.0, 1.0), (9.0, 1.0)),
        group((12.0, 1.0)),
        {**group((0.1, 1.0)), "error": "no"},
    ]
    found = published.summary(whole, lines)
    assert found["public"] == {
        "rows": 3,
        "dependent_rows": 1,
        "below_099": 1,
        "wrong": 1,
        "fallbacks": 2,
        "gmean": round((4.0 * 1.0 * 1.1) ** (1 / 3), 4),
        "gmean_plain": round((2.0 * 0.98 * 1.1) ** (1 / 3), 4),
        "worst": 0.98,
        "mixed_gmean": {
            "bf16 nt": {"M<=256": 1.21},
            "f16 nn": {"grid": 1.6, "tiny": 1.6},
        },
    }
    assert found["groups"]["f16 nn"]["grid"] == {
        "rows": 2,
        "plain": round((2.0 * 0.98) ** 0.5, 4),
        "chain": 2.0,
        "pair": round(3.0**0.5, 4),
        "mixed": 1.6,
        "mixed_all": round((1.2 * 1.6) ** 0.5, 4),
        "worst": 0.98,
    }
    assert {sort: each["rows"] for sort, each in found["families"].items()} == {"direct": 1}
    assert found["sixteen"] == {"f16 nn tiny": {"chains": 2, "gmean": 6.0, "worst": 3.0}}


def test_families_of_dependent_kernels_are_told_apart_by_what_they_may() -> None:
    whole = source(row(ONE, A, B), row(TWO, A, A))
    genome = {**SPLITK, "reads_ahead": True, "triggers_early": True}
    marked = replace(whole.kernels[1], family="sm90_splitk", genome=genome)
    whole = replace(whole, kernels=(whole.kernels[0], marked))
    pair = [identity(A), published.kernel_identity(marked)]
    lines = [line(ONE, [A, B], {"32x2": 2.0}, identities=pair), line(TWO, [A, A])]
    found = published.summary(whole, lines)["families"]
    assert {sort: each["chain"] for sort, each in found.items()} == {"splitk+!": 2.0, "direct": 1.5}
