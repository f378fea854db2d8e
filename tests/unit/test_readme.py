"""Published numbers are what the raw results say: README <- summary.json <- raw files."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

SUMMARY = {
    "host": {"hit_ratio": 0.456, "miss_extra_us": 0.211},
    "load": {"import_ms": 12.3, "pack100_ms": 45.6},
    "table": {
        "rows": 321,
        "problems_measured": 1000,
        "gmean": 1.2345,
        "gmean_cold": 1.1,
        "best": 2.5,
        "worst": 1.021,
        "worst_lower_bound": 1.013,
        "layouts": {"nn": 121, "nt": 200},
        "kernels": 77,
        "noise_floor": 0.012,
        "rule": "lower bound above the floor.",
    },
    "measured_on": {
        "device": "NVIDIA H200",
        "driver": "580",
        "torch": "2.11",
        "cublas": "13.1",
        "protocol": "Paired.",
        "dates": ["2026-01-02", "2026-01-03"],
    },
}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_says_what_the_summary_says() -> None:
    readme = script("readme")
    summary = json.loads(readme.SUMMARY.read_text(encoding="utf-8"))
    text = readme.README.read_text(encoding="utf-8")
    assert readme.render(text, summary) == text


def test_summary_says_what_the_raw_results_say() -> None:
    summary = script("summary")
    assert summary.SUMMARY.read_text(encoding="utf-8") == summary.text()


def test_every_block_is_in_the_readme_and_filled() -> None:
    readme = script("readme")
    text = readme.README.read_text(encoding="utf-8")
    assert {match["name"] for match in readme.BLOCK.finditer(text)} == set(readme.BLOCKS)
    filled = readme.render(text, SUMMARY)
    for expected in ("**1.23x**", "321 problems", "worst 1.021x", "**0.46**", "0.21 us", "121 nn"):
        assert expected in filled
    assert "2026-01-02 to 2026-01-03" in filled
    # Rendering replaces what an earlier run wrote, it never adds to it.
    assert readme.render(filled, SUMMARY) == filled


def test_an_unknown_block_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        script("readme").render("<!-- generated:nonsense -->\n<!-- /generated -->\n", SUMMARY)
