"""A kernel for dependent launch is given row by row, and by measurements alone."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile import pack_writer
from hgemm_packs.generator.tables.dependent import drop_slow_rows, read_speedups, speedup
from tests import packs


def us(torch: float, plain: float, pdl: float) -> dict[str, list[float]]:
    """Samples of blocks that differ by more than the arms: only their pairs tell."""
    times = {"torch": torch, "plain": plain, "pdl": pdl}
    return {arm: [t, t * 3.0, t * 9.0] for arm, t in times.items()}


GAIN, LEVEL, LOSS = us(3.0, 2.0, 1.5), us(3.0, 2.0, 3.0), us(3.0, 2.0, 3.04)


def line(kernel: str = "a", problem: packs.Problem = packs.WIN, **changes: Any) -> dict[str, Any]:
    fields = {"problem": [*problem.key[:5]], "kernel": kernel, "wrong": []}
    return fields | {"edges": {"programmatic": 2, "full": 1}} | changes


@pytest.mark.parametrize(
    ("one", "value"),
    [
        (line(hot=GAIN, cold=GAIN), 2.0),
        (line(hot=GAIN), 2.0),
        (line(hot=GAIN, cold=LEVEL), math.sqrt(2.0)),
        (line(hot=LEVEL, cold=GAIN), math.sqrt(2.0)),
        (line(hot=us(3.0, 1.0, 2.0), cold=GAIN), math.sqrt(3.0)),  # the plain arm plays no part
        (line(hot=us(1.49, 2.0, 1.5), cold=GAIN), math.sqrt(2.0 * 1.49 / 1.5)),  # torch 0.993
        (line(hot=us(1.48, 2.0, 1.5), cold=GAIN), 0.0),  # 0.987
        (line(hot=GAIN, cold=LOSS), 0.0),
        (line(hot=GAIN, cold=GAIN, wrong=["hot: pdl differs from plain"]), 0.0),
        (line(hot=GAIN, cold=GAIN, edges={"programmatic": 1, "full": 2}), 0.0),
        (line(), 0.0),
        ({"problem": [], "kernel": "a", "error": "killed its process", "blamed": True}, 0.0),
    ],
    ids=[
        *("gain", "no cold", "cold level", "hot level", "plain", "nearly torch"),
        *("slower than torch", "slower than torch, cold"),
        *("wrong", "an edge lost", "no times", "killed"),
    ],
)
def test_what_a_dependent_launch_is_worth(one: dict[str, Any], value: float) -> None:
    assert speedup(one) == pytest.approx(value)


def test_a_speedup_is_that_of_pairs() -> None:
    """By medians of the sides 2 over 2, by pairs 2 over 1 twice: the clocks went down meanwhile."""
    assert speedup(line(hot={"torch": [2, 2, 8], "plain": [9, 9, 9], "pdl": [1, 2, 4]})) == 2.0


@pytest.mark.parametrize("other", [{"hot": LOSS}, {"hot": GAIN, "wrong": ["x"]}, {"error": "x"}])
def test_of_several_measurements_the_least_counts(other: dict[str, Any]) -> None:
    small = us(3.0, 2.0, 2.0)
    one, less, against = line(hot=GAIN), line(hot=small), line(**other)
    mine = (packs.WIN.key[:5], "a")
    assert read_speedups([one, less, one]) == read_speedups([less, one]) == {mine: 1.5}
    assert read_speedups([one, against]) == read_speedups([against, one]) == {mine: 0.0}
    elsewhere = line(problem=packs.NOISE, hot=GAIN), line("b", hot=small)
    assert read_speedups([one, *elsewhere]) == pytest.approx(
        {mine: 2.0, (packs.NOISE.key[:5], "a"): 2.0, (packs.WIN.key[:5], "b"): 1.5}
    )


def source() -> pack_writer.SourceManifest:
    """Two problems of one kernel, of which one has another for dependent launch and one itself, one
    of that other, and one that torch keeps."""
    kernels = packs.good_kernels()[:2]
    rows = [
        packs.row(packs.WIN, kernels[0], dependent=kernels[1]),
        packs.row(packs.WIN_SMALL, kernels[0], dependent=kernels[0]),
        packs.row(packs.NOISE, kernels[1]),
        packs.row(packs.CUBLAS, None),
    ]
    return packs.source(kernels, rows)


def test_document_and_pack_keep_both_kernels(tmp_path: Path) -> None:
    before = source()
    (a, b), problems = before.kernels, [packs.WIN, packs.WIN_SMALL, packs.CUBLAS]
    before = replace(before, table=tuple(r for r in before.table if r[:8] != packs.NOISE.key))
    pack_writer.write_source(tmp_path / "s.json", before)
    read = pack_writer.read_source(tmp_path / "s.json")
    ids = [(a.id, b.id), (a.id, a.id), (None, None)]
    both = {p.key: each for p, each in zip(problems, ids, strict=True)}
    assert {row.key: (row.kernel, row.dependent) for row in read.table} == both
    text = (tmp_path / "s.json").read_text(encoding="ascii")
    assert text.count('"dependent":"') == text.count('"dependent"') == 2
    pack = pack_writer.write_pack(
        tmp_path / "pack",
        read,
        packs.good_kernels()[:2],  # type: ignore[arg-type]
        generator_info=packs.GENERATOR,
    )
    assert {row.key: (row.kernel, row.dependent) for row in pack.manifest.table} == both


TORCH = 3.0


@pytest.mark.parametrize(
    ("name", "plain_us", "pdl_us", "kernel", "dependent"),
    [
        ("k_direct", 3.03, 9.0, True, True),  # 0.9901; dependent it is another that runs
        ("k_direct", 3.04, 1.0, False, False),  # 0.987: in an eager call
        ("k_tma2", 9.0, 3.03, True, True),  # plainly it is another that runs
        ("k_tma2", 1.0, 3.04, True, False),
        ("unknown", 9.0, 9.0, True, True),
    ],
)
@pytest.mark.parametrize("protocol", ["hot", "cold"])
def test_what_any_run_had_slower_than_torch_leaves_its_row(
    protocol: str, name: str, plain_us: float, pdl_us: float, kernel: bool, dependent: bool
) -> None:
    before = source()
    mine = before.table[0]
    fine, slow = us(TORCH, 1.0, 1.0), us(TORCH, plain_us, pdl_us)
    seen = [line(name, hot=fine, cold=fine), line(name, **{"hot": fine, protocol: slow})]
    after = drop_slow_rows(before, seen)
    assert after.table[0] == mine._replace(
        kernel=mine.kernel if kernel else None, dependent=mine.dependent if dependent else None
    )
    assert after.table[1:] == before.table[1:] and after.kernels == before.kernels


def test_a_kernel_that_is_slow_both_ways_is_judged_by_each() -> None:
    before = source()
    for plain_us, pdl_us, kernels in (
        (1.0, 3.04, (before.kernels[0].id, None)),
        (3.04, 1.0, (None, None)),
    ):
        slow = line("k_direct", packs.WIN_SMALL, hot=us(TORCH, plain_us, pdl_us))
        row = drop_slow_rows(before, [slow]).table[1]
        assert (row.kernel, row.dependent) == kernels


def test_a_kernel_that_loses_its_last_row_leaves_the_table() -> None:
    before = source()
    second = before.kernels[1].name
    lines = [
        line(second, packs.NOISE, hot=us(1.0, 2.0, 2.0)),
        line(second, packs.WIN_SMALL, hot=us(1.0, 2.0, 2.0)),  # is not this problem's kernel
        line("unknown", packs.WIN, hot=us(1.0, 2.0, 2.0)),
        {"problem": [*packs.WIN.key[:5]], "kernel": before.kernels[0].name, "error": "killed"},
    ]
    after = drop_slow_rows(before, lines)
    assert after.kernels == before.kernels  # it is still launched dependently
    assert [row.kernel is None for row in after.table] == [False, False, True, True]
    after = drop_slow_rows(before, [*lines, line(second, hot=us(1.0, 0.5, 2.0))])
    assert after.kernels == before.kernels[:1]
    assert [row.dependent is None for row in after.table] == [True, False, True, True]
