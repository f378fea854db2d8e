"""docs/h200.md, its figures and plots: what the table and the export say, and nothing else."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pytest

from benchmarks import folders
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source
from hgemm_packs.generator.store import export
from hgemm_packs.generator.tables import (
    dependent,
    judge,
    mixed_chains,
    published,
    speedups,
    sustained,
    table,
)
from hgemm_packs.problem import Problem
from tests.generator import called
from tests.generator.found import both, found, job

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MEASURED = folders.RESULTS / folders.CONFIRMATIONS
COMMITTED = BENCHMARKS.parent / "manifests" / "sm_90a" / "h200"
SHAPES = [(64, 64, 64), (64, 128, 64), (1024, 1024, 1024), (64, 64, 16384)]
WON, ALSO, BEHIND, FAR = (Problem(*shape, "nn", "f16") for shape in SHAPES)


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return importlib.import_module("benchmarks.publish.h200_page")


def findings() -> Any:
    """Two wins of two kernels, two problems left to torch."""
    fields = [
        *both({"a": (8.0, 10.0), "b": (8.1, 10.1)}, WON),
        *both({"a": (6.0, 7.0), "b": (5.0, 6.0)}, ALSO),
        job("finals", {"c": (13.0, 15.0)}, BEHIND),
        job("finals", {"c": (24.0, 28.0)}, FAR),
    ]
    whole = found(*fields)
    genome = {"layout": "nn", "dtype": "f16"}
    kernels = {id_: {**fields, "genome": genome} for id_, fields in whole.kernels.items()}
    return replace(whole, kernels=kernels)


def test_the_page_says_what_the_files_say(page: ModuleType) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.text() == text
    names = {match["name"] for match in page.readme.BLOCK.finditer(text)}
    assert names == set(page.BLOCKS)
    document = json.loads(page.REPORT.read_text(encoding="utf-8"))
    assert document["over_floor"] == page.over_floor(read_source(COMMITTED))


def test_every_plot_of_the_page_is_there_and_small(page: ModuleType) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    named = [line.split("(../")[1].rstrip(")") for line in text.splitlines() if "![" in line]
    sizes = [(BENCHMARKS.parent / name).stat().st_size for name in named]
    assert len(sizes) >= 6 and sum(sizes) < 2e6


@pytest.mark.parametrize(
    ("shape", "us", "binds"),
    [
        ((64, 64, 64), 1.2045, "launch"),
        ((16384, 16384, 16384), 12217.996, "tensor"),
        ((16384, 16384, 64), 133.1, "bandwidth"),  # from device memory
        ((2048, 2048, 64), 2.82, "bandwidth"),  # from L2
    ],
)
def test_the_floor(page: ModuleType, shape: tuple[int, int, int], us: float, binds: str) -> None:
    assert page.floor_us(*shape) == pytest.approx(us, rel=1e-3)
    assert page.floor_binds(*shape) == binds


def test_the_document_of_a_small_run(page: ModuleType) -> None:
    whole = findings()
    made = page.document(table.source(whole), whole)
    torch, ours = made["over_floor"]["fp16 nn"]["mid"]
    assert torch == ours == round(12.0 / page.floor_us(*SHAPES[2]), 4)
    tiny = made["over_floor"]["fp16 nn"]["tiny"]
    assert tiny[0] / tiny[1] == pytest.approx(math.sqrt(12 / 8 * 12 / 5), rel=1e-3)
    assert [line["problem"] for line in made["behind"]] == [str(FAR), str(BEHIND)]
    assert made["behind"][0]["hot"] == 0.5 and made["behind"][0]["kernel"] == "name_c"
    assert made["behind"][0]["bound"] == "tail wave", "no model of this family: by its time"
    assert (made["left"], made["ahead_but_unproven"]) == (2, 0)
    (floor,) = judge.floors(whole).values()
    assert made["trials"] == {"others": {"count": len(whole.trials), "floor": floor}}
    without = page.document(table.source(whole), None)
    assert without["prune"] is without["trials"] is None and without["behind"][0]["kernel"] is None
    assert without["behind"][0]["bound"] == "launch (of the floor)"


def test_the_chosen_set_is_that_of_the_table(page: ModuleType) -> None:
    whole = findings()
    # `b` alone keeps nearly all: it is second on one problem and far ahead on the other.
    source = table.source(whole, keep=0.9)
    assert [kernel.id for kernel in source.kernels] == ["b"]
    gain = {
        "a": (math.sqrt(12 / 8 * 14 / 10), math.sqrt(12 / 6 * 14 / 7)),
        "b": (math.sqrt(12 / 8.1 * 14 / 10.1), math.sqrt(12 / 5 * 14 / 6)),
    }
    best = (gain["a"][0] * gain["b"][1]) ** 0.25
    kept = (gain["b"][0] * gain["b"][1]) ** 0.25
    found = page.document(source, whole)["prune"]
    assert found["curve"][0] == [0, 1.0] and found["curve"][-1] == [2, pytest.approx(best)]
    assert found["chosen"] == [1, pytest.approx(kept)]
    assert found["share"] == pytest.approx(math.log(kept) / math.log(best), rel=1e-5)
    assert (found["of"], found["kinds"], found["problems"]) == (2, {"f16 nn": 1}, 4)
    assert found["others"] == 0


def test_kernels_for_dependent_launch_alone_are_not_in_the_chosen_set(page: ModuleType) -> None:
    whole = findings()
    alone = table.source(whole, keep=0.9)
    rows = tuple(row._replace(dependent="a") if row.kernel else row for row in alone.table)
    both = replace(alone, table=rows, kernels=(table.source_kernel(whole, "a"), *alone.kernels))
    want = page.document(alone, whole)["prune"]
    assert page.document(both, whole)["prune"] == {**want, "others": 1}


def test_plots_are_drawn_of_what_there_is(page: ModuleType, tmp_path: Path) -> None:
    whole = findings()
    source = table.source(whole)
    source = replace(source, table=tuple(r._replace(dependent=r.kernel) for r in source.table))
    made = page.document(source, whole)
    wins = [row for row in source.table if row.kernel is not None]
    assert [row[:3] for row in wins] == SHAPES[:2]
    lines = [called.line(Problem(*row.key), [called.A, called.B], {"32x2": 1.2}) for row in wins]
    none, one, both_wins = (
        {
            row[:5]: speedups.read_public_speedup(row, line, "32x2")
            for row, line in zip(wins[:count], lines, strict=False)
        }
        for count in range(3)
    )
    written = []
    for folder, chains in (("1", both_wins), ("2", both_wins), ("3", none), ("4", one)):
        out = tmp_path / folder
        paths = list(page.h200_plots.draw(source, chains, made, page.floor_us, out))
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
        written.append({path.name: path.read_bytes() for path in paths})
    assert written[0] == written[1]
    names = {"heat-fp16-nn.png", "work-grid.png", "work-llm.png", "prune.png"}
    assert set(written[0]) == names | {"heat-fp16-nn-pdl.png"} and set(written[2]) == names
    assert set(written[3]) == set(written[0])
    plain, behind = "heat-fp16-nn.png", "heat-fp16-nn-pdl.png"
    assert len({written[0][plain], written[0][behind], written[3][behind]}) == 3


@pytest.mark.skipif(not MEASURED.is_dir(), reason="no export is committed")
def test_the_committed_table_follows_from_the_committed_export() -> None:
    """Every 32nd problem, for time; the noise floor from all."""
    lines = campaign.lines(folders.list_files("sustained"))[1]
    seen, mixed, calls = (
        campaign.answers(folders.list_files(*(f"dependent/{name}" for name in names)))
        for names in (("choice", "contenders", "published"), ("mixed",), ("public",))
    )
    source = read_source(COMMITTED)
    chosen_again(source, mixed, calls)
    follows(source, MEASURED, 32, lines, seen, mixed, calls)


def chosen_again(source: SourceManifest, mixed: list[Any], calls: list[Any]) -> None:
    """Of every row: calls of `matmul` let its own kernel stay, and its kernel for dependent launch,
    which is the best of those in the table. A row may have none as its best is in no table."""
    again = published.drop_slow_rows(
        mixed_chains.choose_mixed_kernels(source, mixed, calls) if mixed else source, calls
    )
    for row, same in zip(source.table, again.table, strict=True):
        assert row.kernel == same.kernel and row.dependent in (None, same.dependent), row


def follows(
    source: SourceManifest,
    place: Path,
    step: int,
    lines: Any = (),
    seen: Any = (),
    mixed: Any = (),
    calls: Any = (),
) -> None:
    """`mixed` lines choose again, whatever those `seen` say: of rows that have one `chosen_again`
    looks at that. `calls` may have sent a row to torch."""
    again = {(tuple(line["problem"]), line["kernel"]) for line in mixed if "problem" in line}
    whole = export.load(place)
    floors = judge.floors(whole)
    assert min(floors.values()) == source.policy.noise_floor
    rows = {row.key: row for row in source.table}
    problems = list(dict.fromkeys(each.problem for each in whole.fields))[::step]
    sampled = set(problems)
    fields = tuple(each for each in whole.fields if each.problem in sampled)
    listed = judge.contenders(replace(whole, fields=fields), floors)
    assert listed
    names = {id_: str(fields["name"]) for id_, fields in whole.kernels.items()}
    listed = sustained.rank_sustained(listed, lines, names)
    for problem, contenders in listed.items():
        row = rows[problem.key]
        if row.dependent is not None:
            assert row.dependent in whole.proofs
        if row.dependent is not None and (row[:5], names[str(row.kernel)]) not in again:
            behind = [
                line
                for line in seen
                if (tuple(line["problem"][:5]), line["kernel"]) == (row[:5], names[row.dependent])
            ]
            confirmed = [c for c in contenders if c.kernel == row.dependent and c.row]
            assert behind
            assert all(dependent.is_level_alone(each, whole) for each in confirmed)
            if not confirmed:
                assert all(min(dependent.over_torch(line, "plain")) >= 1.0 for line in behind)
        if row.kernel is None:
            figures = [c.row or judge.row(c.field, c.kernel, whole.device.name) for c in contenders]
            of_torch = [each._replace(kernel=None) for each in figures]
            if row != of_torch[0]:  # it had a kernel, which another measurement had slow
                named = [names[contenders[i].kernel] for i, r in enumerate(of_torch) if r == row]
                mine = [
                    one
                    for one in (*seen, *published.find_single_lines(calls))
                    if tuple(one["problem"][:5]) == row[:5] and one["kernel"] in named
                ]
                assert any(
                    published.find_slow([one])[0] if "us" in one else slow(one) for one in mine
                )
        else:
            (mine,) = [each for each in contenders if each.kernel == row.kernel]
            assert mine.proven and mine.row == row._replace(dependent=None)


def slow(line: dict[str, Any]) -> bool:
    """Whether torch was faster than an arm of `generate measure dependent`."""
    return any(
        median(line[p]["torch"]) < 0.995 * median(line[p][arm])
        for p in ("hot", "cold")
        for arm in ("plain", "pdl")
    )


def test_what_does_not_follow_from_an_export_is_noticed(tmp_path: Path) -> None:
    whole = findings()
    export.write(whole, tmp_path)
    source = table.source(whole)
    follows(source, tmp_path, 1)
    rows = [row._replace(hot=row.hot._replace(us=1.0)) for row in source.table]
    with pytest.raises(AssertionError):
        follows(replace(source, table=tuple(rows)), tmp_path, 1)
    rows = [row._replace(dependent=row.kernel) for row in source.table]
    lines = [
        {"problem": [*row[:5]], "kernel": f"name_{row.kernel}"} for row in rows if row.dependent
    ]
    follows(replace(source, table=tuple(rows)), tmp_path, 1, seen=lines)
    with pytest.raises(AssertionError):
        follows(replace(source, table=tuple(rows)), tmp_path, 1, seen=lines[1:])


def test_another_choice_than_the_lines_make_is_noticed() -> None:
    a, b = called.A, called.B
    source = called.source(called.row(WON, a, b), called.row(ALSO, a), called.row(FAR, None))
    calls = [called.line(WON, [a, b]), called.line(ALSO, [a])]
    better = {
        "problem": [*WON.key[:5]],
        "kernel": called.NAMES[a],
        "identities": {called.NAMES[b]: called.identity(b), called.NAMES[a]: called.identity(a)},
        "wrong": [],
        **{
            around: {"plain": [3.0], called.NAMES[a]: [2.9], called.NAMES[b]: [2.0]}
            for around in mixed_chains.AROUND
        },
    }
    chosen_again(source, [better], calls)
    worse = {
        **better,
        **{around: {**better[around], "name_a": [1.0]} for around in mixed_chains.AROUND},
    }
    slow = called.line(ALSO, [a], {"plain": 0.9})
    for mixed, said in (([worse], calls), ([better], calls[1:]), ([better], [*calls, slow])):
        with pytest.raises(AssertionError):
            chosen_again(source, mixed, said)
