"""Recordings: read as they were written, refused where they are not what they say."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from benchmarks.search import replay_convert
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import (
    Status,
)
from hgemm_packs.generator.devices import recording
from hgemm_packs.generator.devices.recording import Screen
from hgemm_packs.problem import Problem
from tests.generator.devices.recorded_sim import PROBLEMS, catalogued


def raw_lines(raw: Sequence[Path]) -> dict[Problem, dict[str, Any]]:
    lines = replay_convert.read_records(raw)
    return {Problem(*each["problem"]): each for each in lines}


def test_what_is_written_is_read_to_half_a_thousandth(
    raw: list[Path], screens: dict[Problem, Screen]
) -> None:
    written = raw_lines(raw)
    assert set(screens) == set(written) == set(PROBLEMS)
    for problem, screen in screens.items():
        us, failed = written[problem]["us"], written[problem]["failed"]
        assert screen.choices == catalogued(problem)
        for choice, samples, status in zip(
            screen.choices, screen.samples, screen.status, strict=True
        ):
            expected = us.get(choice.name, [])
            assert np.isfinite(samples).sum() == len(expected)
            assert samples[: len(expected)] == pytest.approx(expected, rel=5e-4)
            if expected:
                assert status is Status.OK
            elif choice.name in failed:
                hung = failed[choice.name] == "hung"
                assert status is (Status.TIMEOUT if hung else Status.NUMERIC)
            else:
                assert status is Status.BUILD
        assert {status.value for status in screen.status} == {"OK", "NUMERIC", "TIMEOUT", "BUILD"}
        again = {choice.name: list(times) for choice, times in screen.again.items()}
        arms = {**again, **{name: list(times) for name, times in screen.baselines.items()}}
        assert arms == written[problem]["again"]


def test_the_true_time_is_the_median_and_the_optimum_the_least(
    screens: dict[Problem, Screen],
) -> None:
    for screen in screens.values():
        times = {
            choice: median([us for us in samples.tolist() if us == us])
            for choice, samples in zip(screen.choices, screen.samples, strict=True)
            if np.isfinite(samples[0])
        }
        for choice, us in times.items():
            assert screen.us[screen.row[choice]] == pytest.approx(us)
        best, us = screen.optimum()
        assert us == pytest.approx(min(times.values())) and times[best] == pytest.approx(us)
        failed = [screen.us[screen.row[c]] for c in screen.choices if c not in times]
        assert failed and all(us == math.inf for us in failed)


def test_a_recording_of_another_catalogue_is_refused(
    recorded: Path, screens: dict[Problem, Screen], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = recording.catalogue
    monkeypatch.setattr(recording, "catalogue", lambda *kind: whole(*kind)[1:])
    with pytest.raises(recording.StaleRecording, match="catalogue has changed since"):
        recording.load(recorded)
    kept = recording.load(recorded, any_catalogue=True)
    for problem, screen in kept.items():
        assert screen.choices == screens[problem].choices
        assert np.array_equal(screen.samples, screens[problem].samples, equal_nan=True)


def test_a_recording_whose_choices_were_changed_is_refused(recorded: Path, tmp_path: Path) -> None:
    with np.load(recorded) as file:
        arrays = {name: file[name] for name in file.files}
    swapped = arrays["genes0"].copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    np.savez_compressed(tmp_path / "swapped.npz", **{**arrays, "genes0": swapped})
    with pytest.raises(ValueError, match="contradict their digest"):
        recording.load(tmp_path / "swapped.npz", any_catalogue=True)
    np.savez_compressed(tmp_path / "other.npz", genes0=swapped)
    with pytest.raises(ValueError, match="is no hgemm-packs/recording-1"):
        recording.load(tmp_path / "other.npz")


def test_the_same_screens_give_the_same_bytes(raw: list[Path], tmp_path: Path) -> None:
    for name in ("one.npz", "two.npz"):
        replay_convert.convert(raw[::-1], tmp_path / name)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.npz", "two.npz"))
    assert one == two


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"us": {"sm90_hgemm_unknown": [1.0]}}, "no admitted choice is called sm90_hgemm_unknown"),
        ({"us": {Space(PROBLEMS[0]).core[3].name: [0.0]}}, "a time of zero or less"),
        ({"us": {Space(PROBLEMS[0]).core[3].name: [1e20]}}, "a time that cannot be kept"),
    ],
)
def test_lines_that_cannot_be_are_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    p = PROBLEMS[0]
    record = {"problem": [p.m, p.n, p.k, p.layout, p.dtype], "us": {}, "failed": {}, "again": {}}
    (tmp_path / "a.jsonl").write_text(json.dumps({**record, **change}) + "\n")
    with pytest.raises(ValueError, match=message):
        replay_convert.convert([tmp_path / "a.jsonl"], tmp_path / "out.npz")


def test_a_problem_recorded_twice_is_refused(raw: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="recorded twice"):
        replay_convert.convert([raw[0], raw[0]], tmp_path / "out.npz")
