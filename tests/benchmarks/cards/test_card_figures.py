"""Figures of another card follow from its table and from calls; a plan has what it lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cards import figures
from benchmarks.cards import plan as card_plan
from benchmarks.publish import protocol_texts
from hgemm_packs.generator.compile.pack_writer import write_source
from hgemm_packs.problem import Problem
from tests.generator.called import A, B, C, line, row, source

H100 = {
    **{"grid.fp16.nn.plain": 1.1923, "grid.fp16.nn.cold": 1.1519, "grid.fp16.nn.problems": 998},
    **{"layers.upto256": 1.1717, "layers.upto256.problems": 991, "mixed": 1.2888},
    **{"mixed_vs_h200": 0.9412, "mixed.problems": 1320, "worst": 0.9906},
    **{"rows": 2000, "rows_of_the_first_card": 7818, "with_a_kernel": 1610, "kernels": 733},
    **{"device": "NVIDIA H100", "driver": "580", "torch": "2.11", "cublas": "13.1"},
}
ONE = Problem(64, 64, 64, "nn", "f16")  # of the grid, as the two below
TWO, THREE = replace(ONE, m=128), replace(ONE, m=256)
LAYER = Problem(16, 4096, 2880, "nt", "bf16")
TALL = replace(LAYER, m=512)


def test_figures_are_means_of_calls_over_the_rows_of_each_part() -> None:
    here = source(row(ONE, A, B), row(TWO, None), row(LAYER, C), row(TALL, C))
    first = source(row(ONE, C), row(TWO, C), row(THREE, C), row(LAYER, C))
    calls = [
        line(ONE, [A, B], {"plain": 4.0, "regime": 3.0}),
        line(LAYER, [C], {"plain": 1.21, "8x1": 1.1, "regime": 2.0}),
        line(TALL, [C], {"plain": 1.05, "8x1": 1.05, "regime": 1.05}),
    ]
    there = [line(ONE, [C], {"regime": 2.0}), line(LAYER, [C], {"regime": 1.5})]
    found = figures.document(here, first, calls, there)
    assert found["grid.fp16.nn.plain"] == 2.0  # of 4 and of torch, 1
    assert found["grid.fp16.nn.cold"] == pytest.approx(1.5**0.5, abs=1e-4)
    assert (found["grid.fp16.nn.problems"], found["layers.upto256.problems"]) == (2, 1)
    assert found["layers.upto256"] == 1.21
    assert found["mixed_vs_h200"] == pytest.approx((6 / 3) ** 0.5, abs=1e-4)
    assert found["mixed.problems"] == 2
    assert found["worst"] == 1.0  # torch runs one
    assert (found["rows"], found["with_a_kernel"], found["rows_of_the_first_card"]) == (4, 3, 4)


def test_what_was_not_called_or_was_disturbed_counts_nowhere() -> None:
    here = source(row(ONE, A), row(TWO, A), row(THREE, A))
    calls = [
        line(ONE, [A], {"plain": 1.5}),
        line(TWO, [A], {"plain": 9.0}, gap=97.0),
        line(THREE, [B], {"plain": 9.0}),
    ]
    found = figures.document(here, here, calls, [])
    assert (found["grid.fp16.nn.plain"], found["grid.fp16.nn.problems"]) == (1.5, 1)
    assert "layers.upto256" not in found and "mixed_vs_h200" not in found


def test_the_page_says_what_the_file_has() -> None:
    said = protocol_texts.describe_h100({"h100": H100})
    for words in (
        "| rows, of them with a kernel, of the H200's | 2000, 1610, 7818 |",
        "on 998 problems of the grid, fp16, nn, plain, hot | 1.192x |",
        "| the same problems, cold | 1.152x |",
        "| the same on 991 layers of up to 256 rows, hot | 1.172x |",
        "and that over the H200's | 1.289x, 0.941 |",
        "| worst row, hot, cold or in a chain | 0.991x |",
    ):
        assert words in said


def test_rows_that_the_other_card_has_are_left_out(tmp_path: Path) -> None:
    """Also those that it leaves to torch."""
    table = tmp_path / "source.json"
    write_source(table, source(row(ONE, A, lcb=1.2), row(TWO, None)))
    assert card_plan.leave_out([ONE, TWO, THREE], table) == [THREE]
