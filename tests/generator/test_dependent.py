"""Dependent launch is switched on row by row, and by measurements alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator import packer
from hgemm_packs.generator.dependent import faster, launched, level
from tests import packs


def us(torch: float, plain: float, pdl: float) -> dict[str, list[float]]:
    """Samples of blocks that differ by more than the arms: only their pairs tell."""
    times = {"torch": torch, "plain": plain, "pdl": pdl}
    return {arm: [t, t * 3.0, t * 9.0] for arm, t in times.items()}


GAIN, LEVEL, LOSS = us(3.0, 2.0, 1.5), us(3.0, 2.0, 2.0), us(3.0, 2.0, 2.1)


def line(kernel: str = "a", problem: packs.Problem = packs.WIN, **changes: Any) -> dict[str, Any]:
    fields = {"problem": [*problem.key[:5]], "kernel": kernel, "wrong": []}
    return fields | {"edges": {"programmatic": 2, "full": 1}} | changes


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (line(hot=GAIN, cold=GAIN), True),
        (line(hot=GAIN), True),
        (line(hot=GAIN, cold=LOSS), True),  # 1.333 and 0.952
        (line(hot=LOSS, cold=GAIN), True),
        (line(hot=us(3.0, 2.0, 1.95), cold=LOSS), False),  # 1.026 and 0.952
        (line(hot=LEVEL, cold=LEVEL), False),
        (line(hot=LOSS), False),
        (line(hot=us(1.49, 2.0, 1.5), cold=GAIN), True),  # torch 0.993
        (line(hot=us(1.48, 2.0, 1.5), cold=GAIN), False),  # 0.987
        (line(hot=GAIN, cold=us(1.48, 2.0, 1.5)), False),
        (line(hot=GAIN, cold=GAIN, wrong=["hot: pdl differs from plain"]), False),
        (line(hot=GAIN, cold=GAIN, edges={"programmatic": 1, "full": 2}), False),
        (line(), False),
        ({"problem": [], "kernel": "a", "error": "killed its process", "blamed": True}, False),
    ],
    ids=[
        *("gain", "no cold", "cold loss", "hot loss", "small gain", "level", "loss"),
        *("nearly torch", "slower than torch", "slower than torch, cold"),
        *("wrong", "an edge lost", "no times", "killed"),
    ],
)
def test_what_speaks_for_dependent_launch(one: dict[str, Any], verdict: bool) -> None:
    assert faster(one) is verdict


def test_a_gain_is_that_of_pairs() -> None:
    """By medians of the sides 2 over 2, by pairs 2 over 1 twice: the clocks went down meanwhile."""
    assert faster(line(hot={"torch": [9.0, 9.0, 9.0], "plain": [2, 2, 8], "pdl": [1, 2, 4]}))
    assert not faster(line(hot={"torch": [9.0, 9.0, 9.0], "plain": [2, 2, 3], "pdl": [1, 3, 4]}))


def source() -> packer.SourceManifest:
    """Two problems of one kernel, one of another, and one that torch keeps."""
    kernels = packs.good_kernels()[:2]
    rows = [
        packs.row(packs.WIN, kernels[0]),
        packs.row(packs.WIN_SMALL, kernels[0]),
        packs.row(packs.NOISE, kernels[1]),
        packs.row(packs.CUBLAS, None),
    ]
    return packs.source(kernels, rows)


def marked(*lines: dict[str, Any], before: packer.SourceManifest | None = None) -> set[Any]:
    table = launched(before or source(), lines).table
    return {row.key for row in table if row.pdl}


def test_each_row_is_judged_by_its_own_measurement() -> None:
    gains = line("k_direct", hot=GAIN), line("k_tma2", packs.NOISE, hot=GAIN)
    loses = line("k_direct", packs.WIN_SMALL, hot=LOSS)
    assert marked(*gains, loses) == {packs.WIN.key, packs.NOISE.key}
    # Not measured, measured with another kernel, or without one: launched plainly.
    assert marked(gains[0]) == {packs.WIN.key}
    assert marked(line("k_tma2", hot=GAIN)) == set()
    assert marked(line("k_direct", packs.CUBLAS, hot=GAIN)) == set()


@pytest.mark.parametrize("other", [{"hot": LOSS}, {"hot": GAIN, "wrong": ["x"]}, {"error": "x"}])
def test_every_measurement_must_agree(other: dict[str, Any]) -> None:
    one, against = line("k_direct", hot=GAIN), line("k_direct", **other)
    assert marked(one, one) == {packs.WIN.key}
    assert marked(one, against) == marked(against, one) == set()


def test_an_older_mark_goes() -> None:
    before = source()
    table = tuple(row._replace(pdl=row.kernel is not None) for row in before.table)
    before = replace(before, table=table)
    assert marked(before=before) == set()
    assert marked(line("k_direct", hot=GAIN), before=before) == {packs.WIN.key}


def test_document_and_pack_keep_the_mark(tmp_path: Path) -> None:
    after = launched(source(), [line("k_direct", hot=GAIN)])
    packer.write_source(tmp_path / "s.json", after)
    read = packer.read_source(tmp_path / "s.json")
    assert [row.key for row in read.table if row.pdl] == [packs.WIN.key]
    built = packs.good_kernels()[:2]
    pack = packer.write_pack(
        tmp_path / "pack",
        read,
        built,  # type: ignore[arg-type]
        generator_info=packs.GENERATOR,
    )
    assert [row.key for row in pack.manifest.table if row.pdl] == [packs.WIN.key]


TORCH = 3.0


@pytest.mark.parametrize(
    ("pdl", "plain_us", "pdl_us", "kept"),
    [
        (False, 3.03, 9.0, True),  # 0.9901
        (False, 3.04, 1.0, False),  # 0.987
        (True, 3.03, 3.03, True),
        (True, 1.0, 3.04, False),
        (True, 3.04, 1.0, False),  # in an eager call, and behind another's kernel
    ],
)
@pytest.mark.parametrize("protocol", ["hot", "cold"])
def test_a_row_that_any_run_had_slower_than_torch_goes_to_torch(
    protocol: str, pdl: bool, plain_us: float, pdl_us: float, kept: bool
) -> None:
    before = source()
    mine = before.table[0]
    before = replace(before, table=(mine._replace(pdl=pdl), *before.table[1:]))
    fine, slow = us(TORCH, 1.0, 1.0), us(TORCH, plain_us, pdl_us)
    name = before.kernels[0].name
    seen = [line(name, hot=fine, cold=fine), line(name, **{"hot": fine, protocol: slow})]
    after = level(before, seen)
    assert (after.table[0].kernel == mine.kernel, after.table[0].pdl) == (kept, kept and pdl)
    assert after.table[1:] == before.table[1:] and after.kernels == before.kernels


def test_a_kernel_that_loses_its_last_row_leaves_the_table() -> None:
    before = source()
    second = before.kernels[1].name
    lines = [
        line(second, packs.NOISE, hot=us(1.0, 2.0, 2.0)),
        line(second, packs.WIN, hot=us(1.0, 2.0, 2.0)),  # is not this problem's kernel
        line("unknown", packs.WIN, hot=us(1.0, 2.0, 2.0)),
        {"problem": [*packs.WIN.key[:5]], "kernel": before.kernels[0].name, "error": "killed"},
    ]
    after = level(before, lines)
    assert after.kernels == before.kernels[:1]
    assert [row.kernel is None for row in after.table] == [False, False, True, True]
