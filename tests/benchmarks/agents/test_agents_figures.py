"""agents.json follows from raw lines, and says nothing of what was not measured."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agents.figures import MARGIN, figures, main


def put(path: Path, *lines: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def signed_rank_p(differences: list[float]) -> float:
    """The chance of so large a sum of positive ranks, over all signs: no zeros, no ties."""
    ranks = {x: i + 1 for i, x in enumerate(sorted(map(abs, differences)))}
    seen = sum(ranks[abs(x)] for x in differences if x > 0)
    sums = [
        sum(rank for rank, up in zip(ranks.values(), signs, strict=True) if up)
        for signs in itertools.product((False, True), repeat=len(ranks))
    ]
    return sum(each >= seen for each in sums) / len(sums)


def test_nothing_measured_is_nothing_said(tmp_path: Path) -> None:
    assert figures(tmp_path) == figures(tmp_path / "none") == {}
    assert main([str(tmp_path), str(tmp_path / "agents.json")]) == 1
    assert not (tmp_path / "agents.json").exists()
    put(tmp_path / "byhand" / "01.jsonl", {"problem": "1x1x1 nt f16", "won": False})
    assert main([str(tmp_path), str(tmp_path / "agents.json")]) == 0
    found = json.loads((tmp_path / "agents.json").read_text())
    assert found == {"byhand": {"problems": 1, "wins": 0}}


def test_cases_count_once_and_what_is_not_refused_is_a_bypass(tmp_path: Path) -> None:
    put(
        tmp_path / "scripted" / "01.jsonl",
        {"header": {"started": 1}},
        {"case": "malformed", "bypassed": True},
        {"case": "slow", "bypassed": False},
    )
    put(
        tmp_path / "scripted" / "02.jsonl",
        {"case": "malformed", "bypassed": False},
        {"case": "cheat", "bypassed": "unknown"},
    )
    assert figures(tmp_path) == {"scripted": {"cases": 3, "gate_bypasses": 1}}


def test_a_comparison_is_of_pairs_by_seed(tmp_path: Path) -> None:
    search = [0.90, 0.91, 0.92, 0.93, 0.94, 0.95]
    ours = [0.905, 0.93, 0.918, 0.955, 0.941, 0.99]
    lines = [
        {"seed": i, "mixed": a, "search": b}
        for i, (a, b) in enumerate(zip(ours, search, strict=True))
    ]
    put(tmp_path / "mixed" / "01.jsonl", {**lines[0], "mixed": 0.1}, *lines)
    found = figures(tmp_path)
    ratio = math.prod(a / b for a, b in zip(ours, search, strict=True)) ** (1 / 6)
    assert found["mixed_vs_search"] == pytest.approx(ratio, rel=1e-3)
    behind = [a - (1 - MARGIN) * b for a, b in zip(ours, search, strict=True)]
    assert found["mixed_p"] == pytest.approx(signed_rank_p(behind), rel=1e-3)
    assert found["mixed_seeds"] == 6
    # Branching has to be better, not only as good.
    chains = [{"seed": x["seed"], "branching": x["mixed"], "chain": x["search"]} for x in lines]
    put(tmp_path / "branching" / "01.jsonl", *chains)
    better = [a - b for a, b in zip(ours, search, strict=True)]
    found = figures(tmp_path)
    assert found["branching_p"] == pytest.approx(signed_rank_p(better), rel=1e-3)
    assert found["branching_p"] > found["mixed_p"]


def training(folder: Path, control: bool, *means: float) -> None:
    put(folder / "recipe.json", {"seed": 0, "control": control})
    lines = (
        {"stage": "hgemm", "step": i, "mean": 9.0, "rewards": [mean - 0.1, mean + 0.1]}
        for i, mean in enumerate(means)
    )
    put(folder / "curve.jsonl", *lines)


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


@pytest.mark.parametrize(
    ("part", "lines", "words"),
    [
        ("scripted", [{"case": "x"}], "a line lacks 'bypassed'"),
        ("mixed", [], "no lines"),
        ("mixed", [{"seed": 1, "mixed": None, "search": 0.5}], "a line lacks 'mixed'"),
        ("mixed", [{"seed": 1, "mixed": 0.0, "search": 0.5}], "a share is not positive"),
        ("branching", [{"seed": 1, "branching": "fast", "chain": 0.5}], "ValueError"),
        ("byhand", [{"problem": [1], "won": True}], "TypeError"),
    ],
)
def test_damaged_lines_are_named(part: str, lines: list[Any], words: str, tmp_path: Path) -> None:
    put(tmp_path / part / "01.jsonl", *lines)
    with pytest.raises(ValueError, match=words) as refusal:
        figures(tmp_path)
    assert str(tmp_path / part) in str(refusal.value)
