"""What several decisions come to together is planned, followed, or refused.

The story: two selects in a row, two guards, two branches one behind the other and a disjunction
beside a sum each did as they should for one size, and turned rows of C round where two were large;
and a comparison that all lanes but one always fail was seen both ways.
"""

from __future__ import annotations

import functools

import pytest

from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.gates.coverage import steering
from hgemm_packs.generator.gates.coverage.planning import together
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate

CASES = {case.name: case for case in corpus.load()}


@functools.cache
def judged(name: str) -> Verdict:
    """The gate's verdict on a case, which may make numbers of several sizes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steering.Mixtures, "faults", lambda _: ())
        return evaluate.build_gates(CASES[name].candidate)[0][-1]


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("window_by_selects", (501, 1, 1), (999, 5000, 5000)),
        ("between_two_branches", (500, 1, 1), (999, 5000, 5000)),
        ("zero_or_a_sum_twice", (500, 1, 1), (999, 5000, 5000)),
        ("a_sign_by_one", (700, 1, 1), (899, 5000, 5000)),
        ("loaded_under_two_guards", (501, 1, 1001), (5000, 5000, 5000)),
        ("choice_of_two_joins", (500, 1, 1000), (5000, 5000, 5000)),
        ("echo_of_two", (501, 1, 1001), (5000, 5000, 5000)),
        ("or_and_sum", (501, 1, 1001), (5000, 5000, 5000)),
        ("middle_tiles", (46 * 16 + 1, 31 * 8 + 1, 1501), (5000, 5000, 5000)),
    ],
)
def test_the_numeric_gate_is_given_all_that_decides_at_once(
    name: str, least: tuple[int, int, int], most: tuple[int, int, int]
) -> None:
    verdict = judged(name)
    assert verdict.status is Status.OK
    planned = verdict.evidence["planned"]
    ranges = list(zip(least, most, strict=True))
    assert any(
        all(low <= size <= high for size, (low, high) in zip(shape[:3], ranges, strict=True))
        for shape in planned
    )
    assert len(planned) < 100


def test_a_place_that_two_numbers_name_is_followed() -> None:
    verdict = judged("reads_behind_a_in_the_middle")
    assert verdict.detail.startswith("bounds: A, ")


def test_a_lane_does_in_large_problems_what_it_did_in_others() -> None:
    assert judged("beneath_a_lane").detail.startswith(
        "lane: what no tested problem has in a thread"
    )


@pytest.mark.parametrize("name", ["one_lane_always", "one_cta_always"])
def test_a_thread_does_at_the_deepest_k_what_it_did_in_others(name: str) -> None:
    assert judged(name).detail.startswith("lane: what no tested problem has in a thread")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("deeper_than_wide", "ratio: two sizes are compared in 'setp.gt.s32"),
        ("wraps_before_the_deepest", "one way: never true, not zero or larger in 'setp.lt.s32"),
        ("table_that_no_card_reads", "table: 8 of 16 bytes of "),
    ],
)
def test_what_only_problems_on_no_card_decide_is_refused(name: str, told: str) -> None:
    assert judged(name).detail.startswith(told)


def test_what_turns_too_often_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = CASES["ferry"].candidate
    assert evaluate.build_gates(honest)[0][-1].status is Status.OK
    monkeypatch.setattr(together, "MOST_CELLS", 2)
    refused = evaluate.build_gates(honest)[0][-1]
    assert refused.detail.startswith("untested: sizes decide too much")
