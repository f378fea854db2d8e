"""Of a problem's confirmed kernels the one that a row names for dependent launch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from hgemm_packs.generator import families
from hgemm_packs.generator.campaigns import missing
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.tables import dependent, table
from hgemm_packs.problem import Problem
from tests.generator.found import OTHER, PROBLEM, both, found, job

#: On PROBLEM `a` is worth 1.528 and `b` 1.442, and `c` was not confirmed there. `d` loses on OTHER,
#: `e` failed on PROBLEM.
FIELDS = (
    job("finals", {"a": (8.0, 9.0), "b": (8.5, 9.5), "c": (7.0, 8.0)}),
    job("confirm", {"a": (8.0, 9.0), "b": (8.5, 9.5)}),
    *both({"a": (9.0, 10.0)}, OTHER),
    *both({"d": (13.0, 15.0)}, OTHER),
    job("finals", {"e": (7.0, 8.0)}, statuses={"e": Status.NUMERIC}),
)
FOUND = found(*FIELDS)
NAMES = {id_: str(fields["name"]) for id_, fields in FOUND.kernels.items()}
OWN = math.sqrt(12.0 / 8.0 * 14.0 / 9.0)


@pytest.fixture(autouse=True)
def valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of `found` have a family."""
    family: Any = SimpleNamespace(is_valid=lambda genome: True)
    monkeypatch.setitem(families.FAMILIES, "sm90_test", family)


def compiled(without: str, jobs: object) -> list[compiler.Built]:
    return [compiler.Built({"id": id_}, b"") for id_ in FOUND.kernels if id_ not in without]


def usable(without: str = "") -> table.Usable:
    return table.make_usable(partial(compiled, without))


def line(
    kernel: str, worth: float, problem: Problem = PROBLEM, plain: float = 6.0
) -> dict[str, Any]:
    """As pdl.py writes them: torch takes `worth` times as long as the dependent launch."""
    times = {"torch": [9.0] * 3, "plain": [plain] * 3, "pdl": [9.0 / worth] * 3}
    return {
        "problem": [*problem.key[:5]],
        "kernel": NAMES[kernel],
        "wrong": [],
        "edges": {"programmatic": dependent.EDGES},
        "hot": times,
        "cold": times,
    }


def made(lines: Iterable[dict[str, Any]], without: str = "") -> tuple[SourceManifest, list[str]]:
    source, listed, gone = table.rebuild(FOUND, 1.0, usable())
    assert gone == []
    return dependent.choose_dependent_kernels(source, FOUND, listed, lines, usable(without))


@pytest.mark.parametrize(
    ("lines", "kernel"),
    [
        ([], None),
        ([line("a", 1.6), line("b", 1.7)], "b"),
        ([line("a", 1.7), line("b", 1.6)], "a"),
        ([line("a", 1.6), line("b", 1.5)], "a"),
        ([line("b", 1.6)], "b"),
        ([line("a", OWN + 0.01)], "a"),
        ([line("a", OWN - 0.01), line("b", OWN - 0.01)], None),  # not above the row's own plainly
        ([line("b", OWN - 0.01)], None),  # though above what `b` is plainly
        ([line("a", 1.6), line("b", 1.7), line("b", 1.55)], "a"),  # the least counts
        ([line("a", 0.5), line("b", 1.6)], "b"),
        ([line("a", 1.6), line("b", 1.7) | {"wrong": ["hot"]}], "a"),
        ([line("a", 1.6), line("b", 1.7) | {"edges": {"programmatic": 1}}], "a"),
        ([line("c", 9.0)], "c"),  # level alone by the line
        ([line("c", 9.0, plain=9.0)], "c"),
        ([line("c", 9.0, plain=9.01)], None),
        ([line("c", 9.0), line("c", 9.0, plain=9.01)], None),
        ([line("b", 1.7, plain=9.01)], "b"),  # its confirmation says more
        ([line("e", 9.0)], None),  # failed on the problem
        ([line("c", 9.0) | {"wrong": ["hot"]}], None),
        ([line("b", 9.0, OTHER, plain=13.0), line("d", 9.0, OTHER)], None),
        ([{"problem": [], "kernel": NAMES["b"], "error": "killed its process"}], None),
    ],
)
def test_who_is_launched_dependently(lines: list[dict[str, Any]], kernel: str | None) -> None:
    source, gone = made(lines)
    assert gone == []
    assert {row.k: row.dependent for row in source.table} == {PROBLEM.k: kernel, OTHER.k: None}
    # The row's own kernel, its figures and the kernels of others are as without.
    assert {row.k: row.kernel for row in source.table} == {PROBLEM.k: "a", OTHER.k: "a"}
    (row,) = [each for each in source.table if each.k == PROBLEM.k]
    assert (row.hot.us, row.cold.us) == (8.0, 9.0)
    assert [each.id for each in source.kernels] == sorted({"a", kernel or "a"})


@pytest.mark.parametrize(
    ("alone", "kernel"),
    [((12.0, 14.0), "d"), ((12.1, 14.1), "d"), ((12.2, 14.0), None), ((12.0, 14.3), None)],
)
def test_a_follower_is_no_slower_than_torch_alone(
    alone: tuple[float, float], kernel: str | None
) -> None:
    """A launch may find nothing to overlap with."""
    level = found(*both({"a": (9.0, 10.0)}), *both({"d": alone}))
    source, listed, _ = table.rebuild(level, 1.0, usable())
    after, _ = dependent.choose_dependent_kernels(source, level, listed, [line("d", 9.0)], usable())
    assert [(row.kernel, row.dependent) for row in after.table] == [("a", kernel)]


@pytest.mark.parametrize(("plain", "kernel"), [(9.0, "c"), (9.1, None)])
def test_the_second_measurement_tells_who_is_level_alone_and_chooses_nothing(
    plain: float, kernel: str | None
) -> None:
    source, listed, _ = table.rebuild(FOUND, 1.0, usable())
    second = [line("c", 0.5, plain=plain), line("b", 9.0)]
    after, _ = dependent.choose_dependent_kernels(
        source, FOUND, listed, [line("c", 2.0)], usable(), second
    )
    assert {row.k: row.dependent for row in after.table} == {PROBLEM.k: kernel, OTHER.k: None}


def test_what_a_row_would_name_had_it_a_clean_record_is_missing() -> None:
    source, _, _ = table.rebuild(FOUND, 1.0, usable())
    lines = [line("c", 2.0), line("b", 9.0, OTHER)]
    wanted = missing.choose_dependent(source, FOUND, lines, lines[:1], [], [])
    assert {row.k: row.dependent for row in wanted.table} == {PROBLEM.k: "c", OTHER.k: None}
    done = {(kernel.id, "memcheck") for kernel in source.kernels}
    assert missing.find_unsanitized(wanted, ["memcheck"], done).missing == 1
    for second in ([], [line("c", 0.5)], [line("c", 2.0, plain=9.1)]):
        assert missing.choose_dependent(source, FOUND, lines, second, [], []) == source


@pytest.mark.parametrize("without", ["proofs", "refused"])
def test_a_kernel_that_was_never_confirmed_has_passed_every_gate(without: str) -> None:
    proofs = {k: v for k, v in FOUND.proofs.items() if without != "proofs" or k != "c"}
    refused = {"c": Status.SANITIZER} if without == "refused" else {}
    less = replace(FOUND, proofs=proofs, refused=refused)
    source, listed, _ = table.rebuild(less, 1.0, usable())
    after, _ = dependent.choose_dependent_kernels(source, less, listed, [line("c", 2.0)], usable())
    assert {row.dependent for row in after.table} == {None}


def test_what_does_not_build_any_more_is_left_to_the_next() -> None:
    lines = [line("a", 1.6), line("b", 1.7), line("a", 1.9, OTHER)]
    source, gone = made(lines, without="b")
    assert {row.k: row.dependent for row in source.table} == {PROBLEM.k: "a", OTHER.k: "a"}
    assert gone == [NAMES["b"]] and [each.id for each in source.kernels] == ["a"]
    source, gone = made([line("a", 1.5), line("b", 1.7)], without="b")
    assert {row.dependent for row in source.table} == {None} and gone == [NAMES["b"]]
    # A kernel of the table was built with it.
    assert made(lines, without="ab")[0] == made(lines, without="b")[0]


def test_the_same_kernel_of_an_older_source_takes_no_place() -> None:
    """Two ids of one name have one time; pruning needs only the first, which builds no more."""
    times = {"a": (8.0, 9.0), "older": (8.5, 9.5), "today": (8.5, 9.5)}
    whole = found(*both(times))
    name = {"name": "name_b"}
    kernels = {i: {**f, **(name if i != "a" else {})} for i, f in whole.kernels.items()}
    whole = replace(whole, kernels=kernels)
    now = [compiler.Built({"id": each}, b"") for each in ("a", "today")]
    source, listed, _ = table.rebuild(whole, 1.0, table.make_usable(lambda _: now))
    after, gone = dependent.choose_dependent_kernels(
        source, whole, listed, [line("b", 1.7)], table.make_usable(lambda _: now)
    )
    assert [(row.kernel, row.dependent) for row in after.table] == [("a", "today")]
    assert gone == ["name_b"]


def test_a_kernel_that_enters_has_its_proof() -> None:
    (kernel,) = [each for each in made([line("b", 1.7)])[0].kernels if each.id == "b"]
    assert kernel == table.source_kernel(FOUND, "b")
    assert (kernel.name, kernel.numerics.shapes_tested) == (NAMES["b"], 12)


def test_a_problem_that_torch_runs_has_no_dependent_kernel() -> None:
    lost = found(*both({"a": (12.0, 14.0)}))
    source, listed, _ = table.rebuild(lost, 1.0, usable())
    assert dependent.choose_dependent_kernels(source, lost, listed, [line("a", 2.0)], usable()) == (
        source,
        [],
    )


def test_candidates_are_confirmed_wins_near_the_best() -> None:
    source, pairs = dependent.candidates(FOUND, usable(), near=0.06)
    alone = (OTHER, NAMES["a"])  # one of which there is no choice but how to launch it
    assert set(pairs) == {(PROBLEM, NAMES["a"]), (PROBLEM, NAMES["b"]), alone}
    assert [each.id for each in source.kernels] == ["a", "b"]
    assert {row.k: row.kernel for row in source.table} == {PROBLEM.k: "a", OTHER.k: "a"}
    _, pairs = dependent.candidates(FOUND, usable(), near=0.05)
    assert set(pairs) == {(PROBLEM, NAMES["a"]), alone}
    beside = found(
        *both({"a": (11.0, 13.0)}), *both({"d": (12.0, 14.0)}), *both({"c": (13.0, 14.0)})
    )
    source, pairs = dependent.candidates(beside, usable(), near=0.5)
    assert set(pairs) == {(PROBLEM, NAMES["a"]), (PROBLEM, NAMES["d"])}, "level with torch alone"
    assert [row.kernel for row in source.table] == ["a"]
    with pytest.raises(ValueError, match="no confirmed win is a candidate"):
        dependent.candidates(found(*both({"a": (12.0, 14.0)})), usable(), near=0.05)
