"""All CTAs of a persistent grid together store each element of C once, however many a card runs.

The story: a CTA's step was the number of clusters rounded up to an even one. The card that all
gates run on has 66, so nothing showed; a card of 57 would have left tiles out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates.coverage.reads import dealt
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate

pytestmark = pytest.mark.usefixtures("kept")

CASES = {case.name: case for case in corpus.load()}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("even_step", dealt.TOLD.format(2, 0, 128, "765x504x64", 0)),
        ("even_step_of_a_stranger", dealt.TOLD.format(3, 16, 0, "45x24x32", 0)),
        ("grouped_step_of_one", dealt.TOLD.format(2, 64, 0, "70x128x512", 0)),
    ],
)
def test_tiles_that_a_grid_of_another_size_leaves_out_are_found(name: str, told: str) -> None:
    verdict = evaluate.build_gates(CASES[name].candidate)[0][-1]
    assert (verdict.status, verdict.detail.split("; ")[0]) == (Status.COVERAGE, told)


def test_a_first_tile_by_a_factor_is_found_for_as_many_clusters() -> None:
    """A cluster began with 61 times its number, modulo the clusters: right for all but 61 and its
    multiples, and 57 and 66 were the only larger numbers that were followed."""
    case = CASES["wgmma_persistent"].candidate
    assert case is not None
    first = "    first = blockIdx.x / kClusterSize;"
    assert case.source.count(first) == 1
    other = first.replace(";", " * 61 % step;")
    verdict = evaluate.build_gates(replace(case, source=case.source.replace(first, other)))[0][-1]
    told = dealt.TOLD.format(122, 0, 0, "509x4088x64", 61)
    assert (verdict.status, verdict.detail.split("; ")[0]) == (Status.COVERAGE, told)


@pytest.mark.parametrize(
    ("spans", "told"),
    [
        ([(0, 0, 2, 3), (0, 3, 2, 4), (2, 0, 3, 4)], [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]),
        ([(0, 0, 2, 2), (0, 2, 2, 4)], [[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]),
        ([(0, 0, 2, 3), (1, 2, 3, 4)], [[1, 1, 1, 0], [1, 1, 2, 1], [0, 0, 1, 1]]),
        ([(0, 0, 3, 4), (0, 0, 1, 4)], [[2, 2, 2, 2], [1, 1, 1, 1], [1, 1, 1, 1]]),
        ([], [[0] * 4] * 3),
    ],
)
def test_stores_are_added_up(spans: list[tuple[int, ...]], told: list[list[int]]) -> None:
    found = [*np.array(spans, np.int64).reshape(-1, 4).T]
    assert dealt.times(3, 4, found).tolist() == told
    for wanted in (2, 3):
        is_whole = told == [[int(row < wanted)] * 4 for row in range(3)]
        assert dealt.is_whole(3, wanted, 4, found) is is_whole
