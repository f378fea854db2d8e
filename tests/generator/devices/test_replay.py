"""Replays of recordings, and figures of searches over them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import pytest

from benchmarks.search import replay_search
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import (
    DeviceFacts,
    Job,
    Outcome,
    Proposal,
    Status,
)
from hgemm_packs.generator.devices.fake import fake_kernel
from hgemm_packs.generator.devices.recording import Screen
from hgemm_packs.generator.devices.replay import ReplayBench, ReplayDevice, spaces_of
from hgemm_packs.generator.search.prior import rows_of
from hgemm_packs.generator.search.rivals import compare, random_search
from hgemm_packs.generator.store import shards
from hgemm_packs.problem import Problem
from tests.generator.devices.recorded_sim import PROBLEMS, only

FACTS = DeviceFacts("Recorded", "sm_90a", 132, 50 << 20)


def test_the_device_replays_recorded_samples_by_its_seeds(
    screens: dict[Problem, Screen],
) -> None:
    problem = PROBLEMS[0]
    screen = screens[problem]
    three = [c for c in screen.choices if np.isfinite(screen.samples[screen.row[c]]).all()][:40]

    def replayed(device_seed: int, job_seed: int, count: int = 1) -> list[tuple[float, ...]]:
        device = ReplayDevice(screens, FACTS, device_seed, samples=count)
        work = Job("screen", problem, tuple(map(fake_kernel, three)), job_seed)
        return [result.samples["hot"] for result in device.run(work).results.values()]

    ones = replayed(0, 0)
    assert ones == replayed(0, 0)
    assert ones != replayed(1, 0) and ones != replayed(0, 1)
    for choice, (us,), all_three in zip(three, ones, replayed(0, 0, 3), strict=True):
        samples = screen.samples[screen.row[choice]].tolist()
        assert us in samples
        assert sorted(all_three) == sorted(samples)
        assert median(all_three) == pytest.approx(screen.us[screen.row[choice]])


def test_the_device_replays_failures_and_nothing_that_was_not_recorded(
    screens: dict[Problem, Screen],
) -> None:
    device, problem = ReplayDevice(screens, FACTS, 0), PROBLEMS[0]
    screen = screens[problem]
    for status in (Status.NUMERIC, Status.TIMEOUT, Status.BUILD):
        choice = screen.choices[screen.status.index(status)]
        result = only(device, "screen", choice, problem)
        assert (result.status, dict(result.samples)) == (status, {})
    unrecorded = next(c for c in Space(PROBLEMS[1]).core if c not in screen.row)
    assert only(device, "screen", unrecorded, problem).status is Status.LAUNCH
    assert device.optimum(problem) == screen.optimum()
    with pytest.raises(ValueError, match="only screens"):
        only(device, "finals", screen.choices[0], problem)
    with pytest.raises(KeyError):
        only(device, "screen", screen.choices[0], Problem(8, 8, 8, "nt", "f16"))


def proposals(screen: Screen) -> list[Proposal]:
    return [Proposal(choice, "test") for choice in screen.choices]


def test_the_bench_draws_one_sample_a_choice_in_whatever_order(
    screens: dict[Problem, Screen],
) -> None:
    problem = PROBLEMS[2]
    screen, spaces = screens[problem], spaces_of(screens)
    asked = proposals(screen)
    forth = ReplayBench(screens, spaces, 3).measure(problem, asked)
    back = ReplayBench(screens, spaces, 3).measure(problem, asked[::-1])
    assert forth == back[::-1]
    assert forth != ReplayBench(screens, spaces, 4).measure(problem, asked)
    for outcome, samples in zip(forth, screen.samples.tolist(), strict=True):
        assert (outcome.us in samples) == (outcome.status is Status.OK)
        assert (outcome.us == math.inf) == (outcome.status is not Status.OK)
    drawn = [
        samples.index(outcome.us)
        for outcome, samples in zip(forth, screen.samples.tolist(), strict=True)
        if len(set(samples)) == 3 and samples[2] == samples[2]
    ]
    shares = [drawn.count(i) / len(drawn) for i in range(3)]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.04)


def test_the_share_of_the_optimum_against_brute_force(screens: dict[Problem, Screen]) -> None:
    bench = ReplayBench(screens, spaces_of(screens), 0)
    for problem, screen in screens.items():
        times = [np.nanmedian(row) for row in screen.samples if np.isfinite(row[0])]
        for choice in screen.choices[::300]:
            samples = screen.samples[screen.row[choice]]
            share = min(times) / np.nanmedian(samples) if np.isfinite(samples[0]) else 0.0
            assert bench.share(problem, choice) == pytest.approx(share)


class Scripted:
    """Proposes the choices of a list, and counts what it is told."""

    name = "scripted"

    def __init__(self, listed: dict[Problem, list[Any]]) -> None:
        self.left = {problem: list(choices) for problem, choices in listed.items()}
        self.told: list[Outcome] = []

    def ask(self, space: Space, n: int) -> list[Proposal]:
        taken, self.left[space.problem] = self.left[space.problem][:n], self.left[space.problem][n:]
        return [Proposal(choice, self.name) for choice in taken]

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        self.told += outcomes


def made_up(samples: list[list[float]]) -> tuple[Screen, ReplayBench]:
    """A recording of one problem with these samples of its first choices."""
    problem = PROBLEMS[0]
    choices = Space(problem).core[: len(samples)]
    status = tuple(Status.OK if row[0] == row[0] else Status.BUILD for row in samples)
    screen = Screen(problem, choices, np.array(samples, dtype=float), status)
    screens = {problem: screen}
    return screen, ReplayBench(screens, spaces_of(screens), 0)


def test_a_curve_by_hand() -> None:
    # The fourth lies: measured 3 (one sample of it), truly 8; chosen all the same.
    nan = math.nan
    screen, bench = made_up([[nan] * 3, [16, nan, nan], [4, nan, nan], [3, 8, 8], [4, 4, 4]])
    seed = next(
        seed
        for seed in range(100)
        if ReplayBench({screen.problem: screen}, bench.spaces, seed)
        .measure(screen.problem, proposals(screen))[3]
        .us
        == 3
    )
    bench = ReplayBench({screen.problem: screen}, bench.spaces, seed)
    strategy = Scripted({screen.problem: list(screen.choices)})
    curves = compare.run(strategy, bench, [screen.problem], seed, budget=7, batch=2)
    assert curves[screen.problem] == [0.01, 0.25, 1.0, 0.5, 0.5, 0.5, 0.5]
    assert [outcome.us for outcome in strategy.told] == [math.inf, 16, 4, 3, 4]


def test_exhausting_random_search_ends_at_the_best_measured(
    screens: dict[Problem, Screen],
) -> None:
    spaces = spaces_of(screens)
    bench = ReplayBench(screens, spaces, 5)
    budget = max(len(space.core) for space in spaces.values())
    curves = compare.run(random_search.make(1), bench, PROBLEMS, 1, budget=budget, batch=500)
    for problem, curve in curves.items():
        outcomes = bench.measure(problem, proposals(screens[problem]))
        best = min(outcomes, key=lambda outcome: outcome.us).proposal.choice
        assert len(curve) == budget
        assert curve[-1] == pytest.approx(bench.share(problem, best))


def test_first_best_and_means_by_hand() -> None:
    screen, bench = made_up([[8] * 3, [2] * 3, [4] * 3, [1] * 3])
    ranked = list(screen.choices)
    assert compare.first_best(bench, screen.problem, ranked, (1, 2, 4)) == [0.125, 0.5, 1.0]
    assert compare.geometric_mean([0.25, 1.0]) == pytest.approx(0.5)
    assert compare.mean_curve([[0.5, 1.0], [0.125, 0.25]]) == pytest.approx([0.25, 0.5])


def test_halves_judge_the_prior_on_every_problem_once(screens: dict[Problem, Screen]) -> None:
    bench = ReplayBench(screens, spaces_of(screens), 2)
    counts = tuple(range(1, 65))
    shares = compare.halves(bench, 2, budget=160, batch=16, counts=counts)
    expected = []
    for problem in PROBLEMS:
        rows = rows_of(bench.spaces[problem])
        ranked = [rows.choices[i] for i in np.argsort(rows.prior, kind="stable")[: max(counts)]]
        expected.append(compare.first_best(bench, problem, ranked, counts))
    assert shares["prior"] == pytest.approx([geometric_mean(c) for c in zip(*expected)])  # noqa: B905
    assert set(shares) == {"prior", "reinforced", "fitted"}
    assert shares["fitted"] != shares["prior"] and shares["reinforced"] != shares["prior"]


def test_p_values_of_known_cases() -> None:
    ahead = [i / 7 for i in range(1, 21)]
    nothing = [0.0] * 20
    assert compare.p_value(ahead, nothing) == pytest.approx(2.0**-20)
    assert compare.p_value(nothing, ahead) == 1.0
    assert compare.p_value([1, 2, 3, 4, 5], [0] * 5) == pytest.approx(1 / 32)
    # ranks 2..5 against 1: of the 32 signs, +++++ and -++++ are as good
    assert compare.p_value([-1, 2, 3, 4, 5], [0] * 5) == pytest.approx(2 / 32)
    assert compare.p_value(ahead, ahead) == 1.0
    with pytest.raises(ValueError, match="pairs must match: 2 against 1"):
        compare.p_value([1, 2], [1])


def test_holms_correction_of_a_known_case() -> None:
    corrected = compare.holm({"a": 0.03, "b": 0.01, "c": 0.04, "d": 0.6})
    assert corrected == pytest.approx({"b": 0.04, "a": 0.09, "c": 0.09, "d": 0.6})
    assert compare.holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}


def test_curves_are_kept_as_changes() -> None:
    curve = [0.01, 0.5, 0.5, 0.25] + [1.0] * 60
    kept = replay_search.changes(curve)
    assert kept == [[0, 0.01], [1, 0.5], [3, 0.25], [4, 1.0]]
    assert replay_search.expand_curve(kept) == curve


def test_runs_on_file_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = ("h200", "prior", 3, "digest")
    done = {**dict(zip(replay_search.FIELDS, task, strict=True)), "changes": [[[0, 0.5]]]}
    monkeypatch.setattr(replay_search, "SCRATCH", tmp_path / "scratch" / "lines.jsonl")
    monkeypatch.setattr(replay_search, "RAW", tmp_path / "raw.jsonl.zip")
    (tmp_path / "raw.jsonl.zip").write_bytes(shards.pack([done]))
    assert replay_search.run([task]) == [done]
    with (tmp_path / "scratch" / "lines.jsonl").open("a") as file:
        file.write("{torn")
    assert replay_search.run([task]) == [done]
    text = (tmp_path / "scratch" / "lines.jsonl").read_text()
    assert [json.loads(line) for line in text.splitlines()] == [done] and text[-1] == "\n"


def test_figures_of_made_up_runs(screens: dict[Problem, Screen]) -> None:
    def of(name: str, seed: int, share: float) -> dict[str, Any]:
        kept = [[[0, 0.5], [16, share]], [[0, 0.5], [16, share]], [[0, 0.5], [16, share]]]
        return {"name": name, "seed": seed, "changes": kept}

    runs = [of("portfolio", seed, 0.96 + seed / 1000) for seed in range(5)]
    runs += [of("random", seed, 0.8) for seed in range(5)]
    runs += [of("tpe", seed, 0.97) for seed in range(5)]
    first = {"prior": [0.5], "fitted": [0.6], "reinforced": [0.4]}
    runs += [
        {"name": "halves", "seed": seed, "first": {n: v * 3 for n, v in first.items()}}
        for seed in range(5)
    ]
    summary = replay_search.summarise(runs, screens)
    searched = summary["searches"]["portfolio"]
    assert searched["at"] == {"8": 0.5, "16": 0.5, "32": 0.962, "64": 0.962}
    assert (searched["to_90"], searched["to_95"], searched["to_99"]) == (17, 17, None)
    assert searched["curve"] == [0.5] * 16 + [0.962] * 48
    tests = summary["tests"]["against"]
    assert tests["random"]["share"] == [0.962, 0.8]
    assert tests["random"]["p"] == 0.0312
    assert tests["random"]["p_holm"] == 0.0624
    assert (tests["random"]["seeds_ahead"], tests["tpe"]["seeds_ahead"]) == ("5/5", "0/5")
    assert tests["tpe"]["p"] == tests["tpe"]["p_holm"] == 1.0
    assert summary["halves"]["fitted"]["8"]["ahead"] == "5/5"
    assert summary["halves"]["reinforced"]["1"]["p"] == 1.0
    # The second measurement repeats the first, to what a recording keeps.
    assert summary["recorded"]["optimum_again"] == pytest.approx(1.0, abs=5e-4)
