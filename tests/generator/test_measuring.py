"""The stages of the sweep on times that are made up: who is chosen, and what is recorded."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hgemm_packs import baselines, timing
from hgemm_packs.generator import sweep
from hgemm_packs.generator.records import error_bound, key, likely_win
from hgemm_packs.pack import Pack
from hgemm_packs.problem import Problem
from tests import packs

from .measured import PROBLEM, samples


class Times:
    """Stands in for `timing`: every arm takes the time that a table says."""

    def __init__(self, us: dict[str, tuple[float, float]]) -> None:
        self.us, self.fields = us, []

    def screen(self, arms: dict[str, Any], *_: Any, protocol: str = "hot", **__: Any) -> Any:
        return {name: self.us[name][protocol == "cold"] for name in arms}

    def compare(self, arms: dict[str, Any], *_: Any, protocol: str, blocks: int, **__: Any) -> Any:
        self.fields.append((protocol, list(arms), blocks))
        found = {name: samples(self.us[name][protocol == "cold"], blocks) for name in arms}
        return SimpleNamespace(samples=found, conditions=[None] * blocks)


@pytest.fixture
def bench(tmp_path: Path) -> sweep.Bench:
    return sweep.Bench(packs.write_good(tmp_path / "pool"))


def _measure(
    monkeypatch: pytest.MonkeyPatch, us: dict[str, tuple[float, float]], tuned: Any
) -> Times:
    times = Times(us)
    monkeypatch.setattr(timing, "screen", times.screen)
    monkeypatch.setattr(timing, "compare", times.compare)
    monkeypatch.setattr(baselines, "best_cublaslt", lambda *_, **__: tuned)
    monkeypatch.setattr(sweep.Bench, "arm", lambda self, entry: entry.name)
    monkeypatch.setattr(sweep.Bench, "rows_error", lambda self, entry, problem, seed: 2e-4)
    # The good pack's genomes are made up; any order will do.
    monkeypatch.setattr(sweep, "shortlist", lambda entries, problem, limit: entries[:limit])
    return times


def test_select_weighs_hot_and_cold(bench: sweep.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """k_direct is the best hot, k_tma3 the best cold, k_tma2 the best of both together."""
    us = {
        "torch": (12.0, 14.0),
        "k_direct": (8.0, 15.0),
        "k_tma2": (9.0, 11.0),
        "k_tma3": (14.0, 10.0),
    }
    times = _measure(monkeypatch, us, None)
    record = sweep.select(bench, PROBLEM, seed=1)
    assert record["chosen"] == "k_tma2"
    assert record["problem"] == key(PROBLEM)
    assert record["screen"]["k_direct"] == [8.0, 15.0]
    assert record["finals"]["cold"]["k_tma2"] == samples(11.0, 11)
    assert record["error"] == 2e-4
    assert [(protocol, len(arms), blocks) for protocol, arms, blocks in times.fields] == [
        ("hot", 4, 11),
        ("cold", 4, 11),
    ]
    assert likely_win(record)


def test_confirm_measures_the_chosen_against_both(
    bench: sweep.Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    us = {"torch": (12.0, 14.0), "cublaslt": (11.0, 13.0), "k_tma2": (9.0, 11.0)}
    times = _measure(monkeypatch, us, SimpleNamespace(hot=None, cold=None))
    record = sweep.confirm(bench, PROBLEM, "k_tma2", seed=77)
    arms = ["torch", "cublaslt", "k_tma2"]
    assert times.fields == [("hot", arms, 21), ("cold", arms, 21)]
    assert (record["chosen"], record["seed"], record["error"]) == ("k_tma2", 77, 2e-4)
    assert record["finals"]["hot"]["cublaslt"] == samples(11.0, 21)


def test_the_error_of_sampled_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack: Pack = packs.write_good(tmp_path / "pool")
    bench = sweep.Bench(pack, device="cpu")  # type: ignore[arg-type]
    problem = Problem(96, 64, 256, "nt", "f16")

    def right(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        c.copy_(a.float() @ b.float())

    def rough(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        c.copy_((a.float() @ b.float()).to(torch.bfloat16))

    def one_row_less(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        right(a[:-1], b, c[:-1])

    def error(kernel: Any) -> float:
        monkeypatch.setattr(sweep.Bench, "arm", lambda self, entry: kernel)
        return bench.rows_error(pack.manifest.kernels[0], problem, seed=3)

    assert 1.9e-4 < error(right) < error_bound(problem)
    assert error(rough) > error_bound(problem)
    assert error(one_row_less) == math.inf
