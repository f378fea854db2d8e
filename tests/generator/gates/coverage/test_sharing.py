"""An element of C has one CTA, or one thread, that stores it, a word of the workspace one thread
that takes it.

The story: two slices stored the same tile, each in its own order of addition; two CTAs waited for
one word, which the first made absent; and a lane cleared its neighbour's word. The last bits of C,
and whether a launch ends, hung on who came first.
"""

from __future__ import annotations

import pytest

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.gates.coverage.reads import sharing
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate

pytestmark = pytest.mark.usefixtures("kept")

CASES = {case.name: case for case in corpus.load()}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stored_by_two_slices", sharing.STORED),
        ("word_with_two_readers", sharing.TAKEN),
        ("word_cleared_by_its_neighbour", sharing.CLEARED),
        ("word_cleared_by_a_neighbour", sharing.CLEARED),
        ("stored_by_two_warps", sharing.STORED_TWICE),
    ],
)
def test_who_shares_global_memory_does_not_depend_on_who_comes_first(name: str, words: str) -> None:
    verdict = evaluate.build_gates(CASES[name].candidate)[0][-1]
    assert (verdict.gate, verdict.detail) == ("coverage", words)


@pytest.mark.parametrize("name", ["sliced", "cluster_sum", "written_twice"])
def test_parts_may_be_left_taken_and_made_absent(name: str) -> None:
    assert evaluate.build_gates(CASES[name].candidate)[0][-1].status is Status.OK
