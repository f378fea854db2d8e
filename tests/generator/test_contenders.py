"""Of a problem's confirmed kernels the one that is best launched plainly and dependently."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from hgemm_packs.generator import build, dependent, families, table
from hgemm_packs.problem import Problem

from .found import OTHER, PROBLEM, both, found, job

#: Gains of 1.528 and 1.442 on PROBLEM: `b` needs 1.122 more of dependent launch than `a` has. `c`
#: was not confirmed there.
FIELDS = (
    job("finals", {"a": (8.0, 9.0), "b": (8.5, 9.5), "c": (7.0, 8.0)}),
    job("confirm", {"a": (8.0, 9.0), "b": (8.5, 9.5)}),
    *both({"a": (9.0, 10.0)}, OTHER),
)
FOUND = found(*FIELDS)
NAMES = {id_: str(fields["name"]) for id_, fields in FOUND.kernels.items()}


@pytest.fixture(autouse=True)
def valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of `found` have a family."""
    family: Any = SimpleNamespace(is_valid=lambda genome: True)
    monkeypatch.setitem(families.FAMILIES, "sm90_test", family)


def compiled(without: str, jobs: object) -> list[build.Built]:
    return [build.Built({"id": id_}, b"") for id_ in FOUND.kernels if id_ != without]


def line(kernel: str, factor: float, problem: Problem = PROBLEM) -> dict[str, Any]:
    """As pdl.py writes them: dependent launch is `factor` times as fast."""
    times = {"torch": [9.0] * 3, "plain": [6.0] * 3, "pdl": [6.0 / factor] * 3}
    return {
        "problem": [*problem.key[:5]],
        "kernel": NAMES[kernel],
        "wrong": [],
        "edges": {"programmatic": dependent.EDGES},
        "hot": times,
        "cold": times,
    }


@pytest.mark.parametrize(
    ("lines", "kernel"),
    [
        ([], "a"),
        ([line("a", 1.0), line("b", 1.2)], "b"),
        ([line("a", 1.0), line("b", 1.1)], "a"),
        ([line("a", 1.1), line("b", 1.2)], "a"),
        ([line("b", 1.2)], "b"),  # without a line `a` would be launched plainly
        ([line("a", 1.0), line("b", 1.2), line("b", 1.1)], "a"),  # the least gain counts
        ([line("a", 0.5), line("b", 1.1)], "a"),  # a loss is not launched so, and costs nothing
        ([line("a", 1.0), line("b", 1.3) | {"wrong": ["hot"]}], "a"),
        ([line("c", 9.0)], "a"),  # no confirmed win
        ([line("b", 1.2, OTHER)], "a"),
        ([{"problem": [], "kernel": NAMES["b"], "error": "killed its process"}], "a"),
    ],
)
def test_who_is_named(lines: list[dict[str, Any]], kernel: str) -> None:
    rank = partial(dependent.ranked, lines=lines, names=NAMES)
    source, gone = table.rebuilt(FOUND, 1.0, partial(compiled, ""), rank)
    assert gone == []
    assert {row.k: row.kernel for row in source.table} == {PROBLEM.k: kernel, OTHER.k: "a"}
    # The figures stay those of the confirmation.
    (row,) = [each for each in source.table if each.k == PROBLEM.k]
    assert row.hot.us == {"a": 8.0, "b": 8.5}[kernel]


def test_the_gain_is_the_mean_of_both_launches() -> None:
    listed, _ = table.judged(FOUND)
    plain = {c.kernel: c.gain for c in listed[PROBLEM]}
    after = dependent.ranked(listed, [line("b", 1.21)], NAMES)
    assert {c.kernel: c.gain for c in after[PROBLEM]} == pytest.approx(
        plain | {"b": math.sqrt(plain["b"] * (plain["b"] * 1.21))}
    )
    assert after[OTHER] == listed[OTHER]


def test_candidates_are_confirmed_wins_near_the_best() -> None:
    source, pairs = dependent.candidates(FOUND, partial(compiled, ""), near=0.06)
    assert pairs == [(PROBLEM, NAMES["a"]), (PROBLEM, NAMES["b"])]
    assert [each.id for each in source.kernels] == ["a", "b"]
    assert [row.kernel for row in source.table] == ["a"]
    with pytest.raises(ValueError, match="no confirmed win is a candidate"):
        dependent.candidates(FOUND, partial(compiled, ""), near=0.05)
