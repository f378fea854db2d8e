"""Pictures of committed runs, drawn anew from their figures."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hgemm_packs.cli import bench, plots
from hgemm_packs.generator.report.page import LCB, page
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem
from tests.generator import called

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def reports() -> ModuleType:
    return importlib.import_module("benchmarks.publish.reports")


def document(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / run / "report.json").read_text(encoding="utf-8"))
    return found


def test_newcomer_09_the_committed_report_is_as_it_would_be_drawn_today(
    reports: ModuleType, tmp_path: Path
) -> None:
    shutil.copy(RESULTS / "generator" / "run" / "report.json", tmp_path)
    text = reports.draw_report(tmp_path).read_text(encoding="utf-8")
    assert (RESULTS / "generator" / "run" / "report.html").read_text(encoding="utf-8") == text


def test_newcomer_09_a_report_says_lcb_where_when_and_by_which_rule() -> None:
    """ "lcb" was unexplained, and an older rule stood there as if it were today's."""
    old, new = page(document("generator/run")), page(document("generator/refine"))
    for text in (old, new):
        assert LCB in text and '<p class="quiet">Measured on NVIDIA H200, 2026-11-2' in text
    assert "judged by an older rule" in old and "judged by an older rule" not in new
    assert "the better of torch and cuBLASLt: geometric mean over the wins, hot" in old
    assert "torch: geometric mean over the wins, hot" in new
    assert "the better library, us" in old and "cuBLASLt, us" in new


def test_newcomer_09_bench_says_where_and_when() -> None:
    """The picture was called "measured now"."""
    rows = [called.row(Problem(64, 64, 64, "nn", "f16"), called.A)]
    assert bench.title(rows, "NVIDIA H200") == "1 problems measured on NVIDIA H200, 2026-01-01"


def test_newcomer_09_figures_over_the_better_library_are_not_drawn_as_over_torch(
    reports: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "speedups", lambda *found: drawn.extend(found))
    monkeypatch.setattr(reports, "RESULTS", RESULTS)
    reports.draw_bench(RESULTS)
    rows, _, title = drawn
    assert title == "40 problems measured on NVIDIA H200, 2026-11-21, by medians"
    assert all(one.hot.speedup == one.hot.torch_us / one.hot.us for one in rows)
    raw = json.loads((RESULTS / "bench.json").read_text(encoding="utf-8"))["rows"]
    assert raw[0]["hot"]["speedup"] < 0.995 * rows[0].hot.speedup  # what it was over


def test_newcomer_09_the_hot_curve_is_drawn_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Thousands of cold points hid it."""
    from matplotlib.axes import Axes

    real, order = Axes.errorbar, []

    def errorbar(self: Axes, *values: Any, **options: Any) -> Any:
        order.append((options["label"], options["alpha"], options["markersize"]))
        return real(self, *values, **options)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    problems = [Problem(64, 64, 8 * k, "nn", "f16") for k in range(1, plots.FEW + 2)]
    rows: list[Row] = [called.row(each, called.A) for each in problems]
    plots.speedups(rows, tmp_path / "many.png", "many")
    assert order == [("caches cold", 0.35, 1.5), ("caches hot", 1.0, 3)]


def test_newcomer_09_what_torch_outlasts_is_drawn_as_left_to_torch() -> None:
    """Points at 0.82 stood beside "none slower"."""
    draw = importlib.import_module("benchmarks.publish.h200_plots")
    lines = [
        {
            "problem": [8192, 8192, k, "nn", "f16"],
            "kernels": 1,
            "burst_vs_torch": 1.1,
            "sustained_vs_torch": gain,
        }
        for k, gain in ((4096, 0.82), (8192, 1.2), (16384, 1.3))
    ]
    figure = draw.energy(lines, {tuple(line["problem"]) for line in lines[1:]})
    labels = [each.get_label() for each in figure.axes[0].collections]
    assert labels == ["torch runs (1)", "in the table (2)"]
    assert [len(each.get_offsets()) for each in figure.axes[0].collections] == [1, 2]
