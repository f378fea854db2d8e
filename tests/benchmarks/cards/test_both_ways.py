"""The two ways to a new card's pack: what is measured of either, and what is written of both."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.search import like as both
from hgemm_packs.generator.core.spec import Choice, known_facts
from hgemm_packs.generator.devices import model
from hgemm_packs.generator.devices.sim import Noise, SimDevice
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from hgemm_packs.settings import settings
from tests.generator.command import simulated

A, B, C = (Problem(m, 64, 64, "nt", "f16") for m in (8, 16, 32))


def machine() -> SimDevice:
    return SimDevice(1, noise=Noise(0.001, 0.0))


def line(problem: Problem, us: Mapping[str, tuple[float, float]], bad: str = "") -> dict[str, Any]:
    """Hot and cold times of torch and of kernels."""
    samples = {p: {arm: [t[i]] * 3 for arm, t in us.items()} for i, p in enumerate(("hot", "cold"))}
    statuses = {arm: "NUMERIC" if arm == bad else "OK" for arm in us if arm != "torch"}
    values = [problem.m, problem.n, problem.k, problem.layout, problem.dtype]
    return {"problem": values, "samples": samples, "statuses": statuses}


def test_torch_counts_as_one_where_a_table_names_no_kernel() -> None:
    lines = [
        line(A, {"torch": (8.0, 9.0), "a": (4.0, 6.0), "b": (5.0, 5.0)}),
        line(B, {"torch": (8.0, 9.0), "a": (8.8, 4.5)}),
    ]
    found = both.gains(3, {A: "a", B: "a"}, lines)
    hot, cold = (2.0 * (8.0 / 8.8)) ** (1 / 3), (1.5 * 2.0) ** (1 / 3)
    assert found == {
        "gain_hot": round(hot, 4),
        "gain_cold": round(cold, 4),
        "gain": round(math.sqrt(hot * cold), 4),
        "wins_again": 1,
        "worst": round(8.0 / 8.8, 4),
    }
    assert both.gains(3, {}, lines)["gain"] == 1.0


def test_a_kernel_that_was_not_measured_again_is_an_error() -> None:
    lines = [line(A, {"torch": (8.0, 9.0), "a": (4.0, 6.0)}, bad="a")]
    with pytest.raises(ValueError, match="1 problems were not measured again, such as 8x64x64"):
        both.gains(1, {A: "a"}, lines)
    with pytest.raises(ValueError, match="2 problems were not measured again"):
        both.gains(3, {A: "b", C: "a"}, lines)


def play(words: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    """The command on a simulated card."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HGEMM_PACKS_PATH", "HGEMM_PACKS_CACHE"):
            patch.setenv(name, environment[name])
        settings.cache_clear()
        answer = simulated(*words[4:], device=machine())
    settings.cache_clear()
    log.write_text(answer.out + answer.err)
    return answer.code


def test_both_ways_are_run_and_confirmed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second call measures nothing again and writes the same."""
    monkeypatch.setattr(both, "LIST", [*both.LIST, "--every", "28"])
    monkeypatch.setattr(both, "BUDGET", ["--budget", "20s", "--gpus", "1"])
    monkeypatch.setattr(both, "warm_up", lambda: None)
    monkeypatch.setattr(both, "run_command", play)
    monkeypatch.setattr(both, "open_evaluator", lambda work: Inline(machine()))
    work, out = tmp_path / "work", tmp_path / "tune.json"
    (work / "search" / "left").mkdir(parents=True)  # by a call that was killed
    out.write_text('{"killed_lost": 0, "like": {"wall_share": 9.0}}')
    arguments = [str(work), str(tmp_path / "pack"), str(out)]
    assert both.main(arguments) == 0
    first = out.read_text()
    document = json.loads(first)
    assert document["killed_lost"] == 0, "what another script wrote"
    found = document["like"]
    search, like = found["search"], found["like"]
    assert found["wall_share"] == round(like["wall_s"] / search["wall_s"], 4)
    assert found["wall_share_of_before"] == round(like["wall_s"] / 270.0, 4)
    assert found["gain_share"] == round(math.log(like["gain"]) / math.log(search["gain"]), 4)
    assert search["problems"] == like["problems"] == 3
    assert like["kernels_built"] < search["kernels_built"]
    assert not (work / "search" / "left").exists()
    device = machine()
    for way, seen in (("search", search), ("like", like)):
        logs = []
        for problem, kernel in both.chosen(work / way).items():
            choice = Choice.of(kernel.fields["family"], kernel.fields["genome"])
            for cold in (False, True):
                torch_us = model.library_us(problem, 1, tuned=False, cold=cold)
                logs.append(math.log(torch_us / device.true_us(choice, problem, cold=cold)))
        assert seen["gain"] == pytest.approx(math.exp(sum(logs) / 2 / 3), rel=0.005)
        assert seen["wins"] == len(logs) / 2 >= seen["wins_again"]
        with Store(work / way, readonly=True) as store:
            names = {row["strategy"] for row in store.runs()}
        assert names == {"portfolio" if way == "search" else "like"}
    records = [json.loads(each) for each in (work / both.AGAIN).read_text().splitlines()]
    assert [len(x["kernels"]) for x in records[1:]] != [], "some problem was confirmed again"

    for seen in (search, like):
        waits, spent = seen["waits_s"], sum(seen["gpu_seconds"].values())
        assert sum(waits.values()) + spent == pytest.approx(seen["wall_s"], abs=0.3)
        ran = seen["jobs"]
        assert ran.keys() == seen["gpu_seconds"].keys() and ran["ceilings"]["jobs"] == 1
        assert ran["finals"]["jobs"] == 3 and ran["finals"]["kernels"] >= 3
        assert waits["before"] == pytest.approx(min(x["from_s"] for x in ran.values()), abs=0.11)
        assert all(x["from_s"] <= x["to_s"] <= seen["wall_s"] + 0.1 for x in ran.values())

    def never(*_: object) -> int:
        raise AssertionError("measured twice")

    with monkeypatch.context() as patch:
        patch.setattr(both, "run_command", never)
        assert both.main(arguments) == 0
    assert out.read_text() == first
    assert len((work / both.AGAIN).read_text().splitlines()) == len(records)

    # The second way alone, against the search that is on file.
    alone = [str(tmp_path / "alone"), *arguments[1:], "--against", str(work / both.AGAIN)]
    assert both.main(alone) == 0
    again = json.loads(out.read_text())["like"]
    assert again["search"] == search and not (tmp_path / "alone" / "search").exists()
    assert again["like"]["gain"] == pytest.approx(like["gain"], rel=0.005)
    assert again["wall_share"] == round(again["like"]["wall_s"] / search["wall_s"], 4)
    assert again["torch_now"] == pytest.approx({"hot": 1.0, "cold": 1.0}, abs=0.003)


def test_a_search_of_another_card_is_no_measure(tmp_path: Path) -> None:
    """Nor is one under other versions, or of other problems; a faster card is seen."""
    facts = known_facts(machine().facts)
    new, old = tmp_path / "new.jsonl", tmp_path / "old.jsonl"

    def write(path: Path, us: float, problem: Problem = A, **changes: Any) -> Path:
        one = {**line(problem, {"torch": (us, 2 * us), "a": (4.0, 6.0)}), "fields": ["problem"]}
        records = [{"header": {"device": {**facts, **changes}}}, one]
        path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
        return path

    write(new, 8.0)
    assert both.compare_torch([new], [write(old, 10.0)]) == {"hot": 0.8, "cold": 0.8}
    for changes in ({"name": "NVIDIA H20"}, {"versions": {"torch": "0"}}):
        with pytest.raises(ValueError, match=r"^measured on .*; here is "):
            both.compare_torch([new], [write(old, 10.0, **changes)])
    with pytest.raises(ValueError, match=r"no problem of .*old\.jsonl was measured again"):
        both.compare_torch([new], [write(old, 10.0, problem=B)])


def test_a_command_that_failed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(both, "run_command", lambda *_: 2)
    (tmp_path / "work").mkdir()
    with pytest.raises(RuntimeError, match=r"like ended with 2: see .*like\.log"):
        both.go(tmp_path / "work", "like", tmp_path)
