"""agents.json follows from raw lines, and says nothing of what was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agents.figures import figures, main
from hgemm_packs.generator.store import shards

REPLAYED = {"name": "search", "seed": 100, "sources": "x", "shares": [0.9]}


def put(path: Path, *lines: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_nothing_measured_is_nothing_said(tmp_path: Path) -> None:
    assert figures(tmp_path) == figures(tmp_path / "none") == {}
    assert main([str(tmp_path), str(tmp_path / "agents.json")]) == 1
    assert not (tmp_path / "agents.json").exists()
    one = {"problem": "1x1x1 nt f16", "file": "a.cu", "status": "NUMERIC", "won": False}
    put(tmp_path / "byhand" / "01.jsonl", one)
    assert main([str(tmp_path), str(tmp_path / "agents.json")]) == 0
    found = json.loads((tmp_path / "agents.json").read_text())
    assert found["byhand"] == {
        "problems": 1,
        "wins": 0,
        "kernels": 1,
        "outcomes": {"NUMERIC": 1},
    }


def test_a_problem_by_hand_is_won_by_one_of_its_kernels(tmp_path: Path) -> None:
    def line(problem: str, file: str, status: str, won: bool = False) -> dict[str, Any]:
        return {"problem": problem, "file": file, "status": status, "won": won}

    looks = [line("p", "p.cu", "OK"), line("p", "p2.cu", "OK"), line("q", "q.cu", "BUILD")]
    put(tmp_path / "byhand" / "01.jsonl", *looks, line("p", "p2.cu", "OK", won=True))
    assert figures(tmp_path)["byhand"] == {
        "problems": 2,
        "wins": 1,
        "kernels": 3,
        "outcomes": {"BUILD": 1, "behind": 1, "won": 1},
    }


def test_cases_count_once_and_what_is_not_refused_is_a_bypass(tmp_path: Path) -> None:
    put(
        tmp_path / "scripted" / "01.jsonl",
        {"header": {"started": 1}},
        {"case": "malformed", "outcome": "an answer", "bypassed": True},
        {"case": "slow", "outcome": "no answer", "bypassed": False},
    )
    put(
        tmp_path / "scripted" / "02.jsonl",
        {"case": "malformed", "outcome": "no answer", "bypassed": False},
        {"case": "cheat", "outcome": "static", "bypassed": "unknown"},
    )
    outcomes = {"no answer": 2, "static": 1}
    assert figures(tmp_path) == {"scripted": {"cases": 3, "gate_bypasses": 1, "outcomes": outcomes}}


def training(folder: Path, control: bool, *means: float, model: str = "small") -> None:
    put(folder / "recipe.json", {"seed": 0, "control": control, "model": model})
    lines = [
        {"stage": "hgemm", "step": i, "mean": 9.0, "rewards": [mean - 0.1, mean + 0.1]}
        for i, mean in enumerate(means)
    ]
    (folder / "curve.jsonl.zip").write_bytes(shards.pack(lines))


def test_rewards_are_means_over_trainings(tmp_path: Path) -> None:
    training(tmp_path / "grpo" / "one", False, -0.2, 0.1, 0.3)
    training(tmp_path / "grpo" / "two", False, -0.4, 0.5)
    # Without a control none is claimed; the mean that a line quotes is not believed.
    assert figures(tmp_path) == {
        "grpo": {"heldout_start": -0.3, "heldout_end": 0.4, "trainings": 2, "controls": 0}
    }
    training(tmp_path / "grpo" / "shuffled", True, -0.3, -0.25)
    assert figures(tmp_path)["grpo"] == {
        **{"heldout_start": -0.3, "heldout_end": 0.4, "control_end": -0.25},
        **{"trainings": 2, "controls": 1},
    }
    # A model from nothing has means of its own.
    training(tmp_path / "grpo" / "blank", False, -0.6, -0.5, model="")
    assert figures(tmp_path)["grpo"]["from_nothing"] == {
        **{"heldout_start": -0.6, "heldout_end": -0.5, "trainings": 1, "controls": 0}
    }
    assert figures(tmp_path)["grpo"]["heldout_start"] == -0.3


@pytest.mark.parametrize(
    ("part", "lines", "words"),
    [
        ("scripted", [{"case": "x"}], "a line lacks 'bypassed'"),
        ("replay", [], "no lines"),
        ("replay", [{"name": "search", "seed": 100, "sources": "x"}], "a line lacks 'shares'"),
        ("replay", [REPLAYED], "no line of bad with seed 100"),
        ("byhand", [{"problem": "1", "won": True}], "a line lacks 'file'"),
        ("byhand", [{"problem": [1], "file": "a", "status": "OK", "won": True}], "TypeError"),
    ],
)
def test_damaged_lines_are_named(part: str, lines: list[Any], words: str, tmp_path: Path) -> None:
    put(tmp_path / part / "01.jsonl", *lines)
    with pytest.raises(ValueError, match=words) as refusal:
        figures(tmp_path)
    assert str(tmp_path / part) in str(refusal.value)
