"""Large problems are served by what is fastest for long, and by nothing that torch outlasts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hgemm_packs.generator import families
from hgemm_packs.generator.campaigns import sustained as long_runs
from hgemm_packs.generator.campaigns.sustained import Among
from hgemm_packs.generator.compile import compiler, pack_writer
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.tables import sustained, table
from hgemm_packs.generator.tables.sustained import rank_sustained
from hgemm_packs.problem import Problem
from tests import packs
from tests.generator.found import OTHER, PROBLEM, THIRD, both, found, job

#: `a` is the best of the finals on PROBLEM, `c` was not confirmed there.
FIELDS = (
    job("finals", {"a": (8.0, 9.0), "b": (8.5, 9.5), "c": (7.0, 8.0)}),
    job("confirm", {"a": (8.0, 9.0), "b": (8.5, 9.5)}),
    *both({"a": (9.0, 10.0)}, OTHER),
)


def line(torch: float, problem: Any = PROBLEM, **us: float) -> dict[str, Any]:
    """As `generate measure sustained` writes them; arms are names of kernels."""
    arms = {"torch": torch, "cublaslt": 1.0} | {f"name_{id_}": each for id_, each in us.items()}
    return {
        "problem": [problem.m, problem.n, problem.k, problem.layout, problem.dtype],
        "sustained": {arm: {"us": each} for arm, each in arms.items()},
    }


@pytest.fixture(autouse=True)
def valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of `found` have a family."""

    family: Any = SimpleNamespace(is_valid=lambda genome: True, whole=lambda genome: genome)
    monkeypatch.setitem(families.FAMILIES, "sm90_test", family)


def names(some: Findings) -> dict[str, str]:
    return {id_: str(fields["name"]) for id_, fields in some.kernels.items()}


def made(
    *lines: dict[str, Any], keep: float = 1.0, some: Findings | None = None
) -> tuple[SourceManifest, dict[int, str | None]]:
    """The document, and the kernel of each row by K."""
    some = some or found(*FIELDS)

    def compile(jobs: object) -> list[compiler.Built]:
        return [compiler.Built({"id": id_}, b"") for id_ in some.kernels]

    rank = partial(rank_sustained, lines=lines, names=names(some))
    source, _, gone = table.rebuild(some, keep, table.make_usable(compile), rank)
    assert gone == []
    return source, {row.k: row.kernel for row in source.table}


@pytest.mark.parametrize(
    ("lines", "kernel"),
    [
        ((), "a"),
        ((line(12.0, a=11.0, b=10.0),), "b"),
        ((line(12.0, a=10.0, b=11.0),), "a"),
        ((line(12.0, a=11.0, b=10.0, c=1.0),), "b"),  # `c` is no confirmed win
        ((line(12.0, c=1.0),), "a"),  # nothing that may be chosen was sustained
        ((line(12.0, b=11.0),), "b"),  # only of what was
        ((line(12.0, a=12.2, b=12.1),), None),
        ((line(12.0, a=13.0, b=10.0),), "b"),
        ((line(12.0, a=13.0, b=10.0), line(12.0, a=10.0, b=13.0)), "a"),  # the last one stands
        ((line(12.0, problem=THIRD, a=1.0),), "a"),
    ],
)
def test_the_fastest_for_long_of_the_confirmed_wins(
    lines: tuple[dict[str, Any], ...], kernel: str | None
) -> None:
    source, rows = made(*lines)
    assert rows == {1024: kernel, 2048: "a"}
    assert {each.id for each in source.kernels} == {"a", kernel} - {None}
    # The figures are those of the confirmation, whoever was chosen; the best of all where torch is.
    (row,) = [each for each in source.table if each.k == 1024]
    assert row.hot.us == {"a": 8.0, "b": 8.5, None: 7.0}[kernel]


@pytest.mark.parametrize(("us", "kernel"), [(12.05, "a"), (12.07, None)])
def test_a_tie_with_torch_keeps_a_kernel_that_the_pack_has(us: float, kernel: str | None) -> None:
    """`a` is in the pack for the other problem; alone, a tie is worth no kernel."""
    assert made(line(12.0, a=us))[1] == {1024: kernel, 2048: "a"}
    assert made(line(12.0, a=us), some=found(*FIELDS[:2]))[1] == {1024: None}


def test_where_some_were_sustained_a_large_problem_that_was_not_goes_to_torch() -> None:
    large = Problem(8192, 8192, 8192, "nn", "f16")
    some = found(*FIELDS, *both({"d": (9.0, 10.0)}, large))
    assert made(some=some)[1] == {1024: "a", 2048: "a", 8192: "d"}
    here = line(12.0, a=10.0)
    assert made(here, some=some)[1] == {1024: "a", 2048: "a", 8192: None}
    assert made(here, line(12.0, large, d=11.0), some=some)[1][8192] == "d"
    assert made(here, line(12.0, large, a=11.0), some=some)[1][8192] is None


def test_pruning_weighs_by_the_sustained_gain() -> None:
    """By the finals `a` keeps 0.95 without `b`; for long `b` is worth far more here than `a` is on
    the other problem, and one kernel that serves both a little less well may still stand in."""
    assert made(keep=0.9)[1] == {1024: "a", 2048: "a"}
    source, rows = made(line(12.0, a=11.9, b=8.0), keep=0.9)
    assert rows == {1024: "b", 2048: "a"} and len(source.kernels) == 2
    source, rows = made(line(12.0, a=8.1, b=8.0), keep=0.9)
    assert rows == {1024: "a", 2048: "a"} and len(source.kernels) == 1


def test_candidates_are_all_confirmed_wins_of_large_problems_that_still_build() -> None:
    some = found(*FIELDS, *both({"d": (9.0, 10.0), "e": (9.5, 10.0)}, THIRD))

    def compile(jobs: object) -> list[compiler.Built]:
        return [compiler.Built({"id": id_}, b"") for id_ in "abce"]  # `d` builds otherwise now

    flop = {p: 2.0 * p.m * p.n * p.k for p in (PROBLEM, OTHER, THIRD)}
    source = sustained.candidates(some, table.make_usable(compile), flop[OTHER])
    assert {(row.m, row.k): row.kernel for row in source.table} == {
        (OTHER.m, OTHER.k): "a",
        (THIRD.m, THIRD.k): "e",
    }
    assert [each.id for each in source.kernels] == ["a", "e"]
    source = sustained.candidates(some, table.make_usable(compile), flop[PROBLEM])
    assert [each.id for each in source.kernels] == ["a", "b", "e"]
    with pytest.raises(ValueError, match="no confirmed win is a candidate"):
        sustained.candidates(some, table.make_usable(compile))


def test_energy_tries_confirmed_wins_alone(tmp_path: Path) -> None:
    """Of a pack's three kernels the export proves two on one problem, best first, none elsewhere;
    a kernel that the pack lacks is left out."""
    built = packs.good_kernels()
    first, second, third = (str(each.entry_fields["id"]) for each in built)
    win = {first: (9.0, 10.0), second: (8.0, 9.0), "absent": (7.0, 8.0)}
    some = found(*both(win), job("finals", {third: (8.0, 9.0)}, OTHER))
    export.write(some, tmp_path / "raw")
    pack_writer.write_pack(
        tmp_path / "pack",
        packs.source(built, [packs.row(PROBLEM, built[1])]),
        built,  # type: ignore[arg-type]
        generator_info=packs.GENERATOR,
    )
    pack = Packed(tmp_path / "pack")
    wins = long_runs.list_confirmed(pack, tmp_path / "raw", 1.0)
    assert wins == {PROBLEM: ["k_tma2", "k_direct"], OTHER: []}
    asked = [(PROBLEM, None), (OTHER, None), (THIRD, None)]
    (task,) = long_runs.tasks(pack, asked, Among(tmp_path / "raw", (), 1.0))
    assert task.problem == PROBLEM
    assert [each.fields["name"] for each in task.kernels()] == ["k_tma2", "k_direct"]
    assert long_runs.list_confirmed(pack, tmp_path / "raw") == {}
