"""models.json from made-up lines, and which cases and problems the benchmarks measure."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hgemm_packs.cli.console import manifests_dir
from hgemm_packs.generator.campaigns import cases
from hgemm_packs.generator.core import problems
from hgemm_packs.problem import Problem
from hgemm_packs.tuning.shapes import tomllib

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def summary() -> ModuleType:
    return importlib.import_module("benchmarks.publish.models_summary")


@pytest.fixture(scope="module")
def models() -> ModuleType:
    return importlib.import_module("benchmarks.measure.models")


@pytest.fixture(scope="module")
def serving() -> ModuleType:
    return importlib.import_module("benchmarks.measure.serving")


def line(
    model: str, mode: str, tokens: int, ratio: float, *, phase: str = "decode", **changes: Any
) -> dict[str, Any]:
    fields = {"model": model, "dtype": "bf16", "mode": mode, "phase": phase, "tokens": tokens}
    return {
        **fields,
        "fields": list(fields),
        "us": {"torch": [2.0 * ratio, ratio, 3.0], "ours": [2.0, 1.0, 9.0]},
        "served": {"products": 10, "kernels": 4, "not_measured": 6},
        "wrong": [],
        **changes,
    }


LINES = [
    line("A", "graph", 1, 1.44),
    line("A", "graph", 64, 1.0),
    line("A", "graph", 256, 0.9),
    line("B", "graph", 8, 1.2, dtype="fp16"),
    line("A", "eager", 1, 1.1),
    line("A", "compile", 1, 0.25, compiled=True),
    line("A", "compile", 8, 7.0, compiled=False),
    line("A", "compile", 64, 7.0),
    line("A", "reduce-overhead", 1, 1.0, compiled=True),
    line("A", "graph", 777, 1.21, phase="prompt"),
    line("A", "eager", 777, 1.0, phase="prompt"),
    line("B", "eager", 16, 9.9, wrong=["logits 1.00e+00 apart"]),
]


def test_models_by_mode_model_and_type(summary: ModuleType) -> None:
    found = summary.models([{"commit": "first"}, {"commit": "last"}], LINES)
    graph = found["graph"]
    assert graph["gmean_upto64"] == pytest.approx((1.44 * 1.0 * 1.2) ** (1 / 3), abs=1e-4)
    assert graph["gmean"] == pytest.approx((1.44 * 1.0 * 1.2 * 0.9) ** (1 / 4), abs=1e-4)
    assert (graph["worst"], graph["worst_case"]) == (0.9, "A bf16, graph, 256 tokens")
    assert (graph["cases"], graph["served"]) == (4, 0.4)
    assert (found["eager"]["cases"], found["eager"]["gmean_upto64"]) == (1, 1.1)
    assert (found["compile"]["gmean"], found["compile"]["worst"]) == (0.5, 0.25)
    assert found["compile"]["default"]["gmean"] == 0.25
    assert found["compile"]["reduce-overhead"]["gmean"] == 1.0
    assert (found["prompts"]["gmean"], found["prompts"]["worst"]) == (1.1, 1.0)
    assert "gmean_upto64" not in found["prompts"]
    assert found["models"]["B"] == {"fp16": {"graph": summary.figures([LINES[3]])}}
    assert found["models"]["A"]["bf16"]["graph"]["worst"] == 0.9
    assert found["wrong"] == ["B bf16, eager, 16 tokens: logits 1.00e+00 apart"]
    assert len(found["cases"]) == 11 and found["measured_on"] == {"commit": "last"}
    assert "noise" not in found


def test_torch_against_itself_says_what_chance_is(summary: ModuleType) -> None:
    us = {"torch": [1.0] * 4, "ours": [0.9] * 4}
    twice = [
        line("A", "graph", n, 1.0, us=us | {"again": [again] * 4})
        for n, again in ((1, 1.01), (8, 0.99), (64, 1.0))
    ]
    assert summary.models([], [*LINES, *twice])["noise"] == {
        "graph": {"cases": 3, "least": 0.9901, "most": 1.0101}
    }


def call(problem: list[Any], ours: float, server: float, **changes: Any) -> dict[str, Any]:
    return {
        "set": "grid",
        "problem": problem,
        "fields": ["set", "problem"],
        "offline": {"torch": [10.0] * 3, "ours": [ours] * 3},
        "server": {"torch": [12.0] * 3, "ours": [server] * 3, "cublaslt": [9.0] * 3},
        "ran": ["hits"],
        "wrong": [],
        **changes,
    }


def test_single_calls_against_torch_and_the_better(summary: ModuleType) -> None:
    lines = [
        call([64, 64, 64, "nn", "f16"], 5.0, 6.0),
        call([8, 64, 64, "nt", "bf16"], 20.0, 24.0, set="layers", ran=["fallback not_measured"]),
        call([9, 64, 64, "nt", "bf16"], 1.0, 1.0, wrong=["2 elements wrong"]),
    ]
    found = summary.calls([], lines)
    assert (found["offline"]["gmean"], found["offline"]["vs_best_gmean"]) == (1.0, 1.0)
    assert (found["server"]["gmean"], found["server"]["vs_best_gmean"]) == (1.0, 0.75)
    assert (found["server"]["worst"], found["server"]["worst_case"]) == (0.5, "8x64x64 nt bf16")
    assert (found["server"]["problems"], found["server"]["served"]) == (2, 0.5)
    assert found["server"]["grid"]["gmean"] == 2.0
    assert found["server"]["layers"]["gmean"] == 0.5
    assert found["calls_wrong"] == [[9, 64, 64, "nt", "bf16", "2 elements wrong"]]


def test_the_file_follows_from_what_is_on_file(
    summary: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "RESULTS", tmp_path)
    monkeypatch.setattr(summary, "OUT", tmp_path / "models.json")
    with pytest.raises(SystemExit, match="no lines"):
        summary.text()
    bad = {"model": "A", "fields": ["model"], "error": "no memory", "blamed": False}
    rows = [{"header": {"commit": "c"}}, *LINES, bad]
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "01.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary.write()
    found = json.loads(summary.OUT.read_text())
    assert found["graph"]["cases"] == 4 and "server" not in found
    assert found["failed"] == ['{"model": "A"}: no memory']


def test_every_case_once_and_what_is_compiled_last(models: ModuleType) -> None:
    every = models.every_case()
    assert len({cases.key(case) for case in every}) == len(every)
    steps = len(models.TOKENS) + len(models.PROMPTS)
    pairs = len(models.MODELS) * len(models.DTYPES)
    # One model cannot be captured in one type.
    compiled = len(models.COMPILED_MODELS) * len(models.COMPILED_TOKENS) * 2
    assert len(every) == 2 * steps * pairs - steps + compiled
    assert [case["mode"] for case in every[-compiled:]] == ["compile", "reduce-overhead"] * (
        compiled // 2
    )
    # The first pass has all models in both types, and steps of all sizes.
    half = every[: (len(every) - compiled) * 6 // 11]
    assert {(c["model"], c["dtype"]) for c in half} == {
        (model, dtype) for model in models.MODELS for dtype in models.DTYPES
    }
    assert {c["mode"] for c in half} == {"graph", "eager"}
    assert min(c["tokens"] for c in half) == 1 and max(c["tokens"] for c in half) == 2048
    # Each model is made once a pass in each type.
    made = [(c["model"], c["dtype"]) for c in every[:-compiled]]
    changes = sum(a != b for a, b in pairwise(made))
    assert changes == models.PASSES * pairs - 1
    some = models.every_case(["Qwen3 8B"], ["bf16"], ["graph"], [1, 777])
    assert [(c["phase"], c["tokens"]) for c in some] == [("decode", 1), ("prompt", 777)]


def test_models_have_their_published_sizes(models: ModuleType) -> None:
    text = (manifests_dir() / "shapes" / "llm_layers.toml").read_text(encoding="utf-8")
    listed = {model["name"]: model for model in tomllib.loads(text)["model"]}
    for name, (_, sizes) in models.MODELS.items():
        shared = sizes.keys() & listed[name].keys()
        assert {"hidden_size", "intermediate_size", "vocab_size"} <= shared
        assert {key: sizes[key] for key in shared} == {key: listed[name][key] for key in shared}


def test_problems_are_drawn_evenly(serving: ModuleType) -> None:
    grid = [p for p in problems.read("grid") if (p.layout, p.dtype) == ("nn", "f16")]
    drawn = serving.draw_problems(grid, 200, 7)
    assert len(set(drawn)) == 200 and set(drawn) <= set(grid)
    assert drawn == serving.draw_problems(grid, 200, 7) != serving.draw_problems(grid, 200, 8)

    def regimes(of: list[Problem]) -> Counter[str]:
        return Counter(problems.regime(p.m, p.n, p.k) for p in of)

    for name, count in regimes(grid).items():
        assert abs(regimes(drawn)[name] - count / 5) <= 1
        # So it is in the first third of a run.
        assert abs(regimes(drawn[:70])[name] - 0.07 * count) <= 5
    assert (
        len(serving.draw_problems(grid[:3], 200, 1)) == 3 and serving.draw_problems([], 5, 1) == []
    )
