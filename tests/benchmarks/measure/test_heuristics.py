"""What cuBLASLt's heuristic offers is asked about each problem once, as torch would ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure import heuristics
from hgemm_packs import _cublaslt
from hgemm_packs.generator.prediction import draw
from hgemm_packs.problem import Problem


def test_each_problem_of_lines_is_asked_about_once(tmp_path: Path) -> None:
    lines = [
        {"header": {}},
        {"problem": [8, 16, 24, "nt", "f16"], "us": {"torch": [1.0]}},
        {"problem": [8, 16, 24, "nt", "f16"], "us": {"torch": [2.0]}},
        {"problem": [8, 16, 40, "nt", "f16"], "failed": "a word"},
        {"problem": [8, 16, 24, "tn", "bf16"], "us": {"torch": [2.0]}},
    ]
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = heuristics.problems_of([path])
    assert found == [Problem(8, 16, 24, "nt", "f16"), Problem(8, 16, 24, "tn", "bf16")]


def test_strides_and_alignments_are_those_of_packed_operands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(_cublaslt, "plan", lambda handle, *rest: asked.append(rest))
    monkeypatch.setattr(
        _cublaslt, "algorithms", lambda plan: [(64, 1.5, bytes(range(64))), (0, 2.0, bytes(64))]
    )
    said = heuristics.ask(None, Problem(9, 24, 40, "nn", "f16"))
    assert said["algorithm"] == bytes(range(64)).hex()
    assert (said["waves"], said["workspace"]) == (1.5, 64)
    heuristics.ask(None, Problem(12, 24, 40, "tt", "bf16"))
    heuristics.ask(None, Problem(9, 25, 40, "nt", "f16"))
    limits = (32 << 20,)
    assert asked == [
        (False, 9, 24, 40, False, False, 40, 24, 24, 16, limits),
        (True, 12, 24, 40, True, True, 12, 40, 24, 8, limits),
        (False, 9, 25, 40, False, True, 40, 40, 25, 2, limits),
    ]
    monkeypatch.setattr(_cublaslt, "algorithms", lambda plan: [])
    said = heuristics.ask(None, Problem(9, 24, 40, "nn", "f16"))
    assert said["algorithm"] is None and said["problem"] == [9, 24, 40, "nn", "f16"]


def test_drawn_problems_are_of_the_sorts_of_training() -> None:
    found = heuristics.drawn(5, 400)
    assert len(dict.fromkeys(found)) == len(found) == 400
    trained, _ = draw.split_weights(0)
    assert all((p.n, p.k) in trained and p.layout == "nt" for p in found[:100])
    listed = draw.weights()
    assert all((p.n, p.k) not in listed and p.layout == "nt" for p in found[100:200])
    assert not any(p.n % 8 or p.k % 8 for p in found[200:300])
    assert all(p.n % 8 or p.k % 8 for p in found[300:])
    assert found == heuristics.drawn(5, 400) != heuristics.drawn(6, 400)
