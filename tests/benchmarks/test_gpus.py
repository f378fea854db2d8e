"""A command runs on every GPU with its part of the work, and on no other card."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from benchmarks import gpus
from hgemm_packs.generator.workers import gpus as driver

TELL = """
import os, sys
gpu, part, split, out = sys.argv[1:]
lines = open(split).read().split()
open(f"{out}/{gpu}", "w").write(" ".join([os.environ["CUDA_VISIBLE_DEVICES"], part, *lines]))
"""


def ask(out: Path, *more: str, code: str = TELL) -> int:
    words = [sys.executable, "-c", code, "{gpu}", "{part}", "{split}", str(out)]
    return gpus.main(["H100", *more, "--", *words])


@pytest.fixture(autouse=True)
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-a")
    monkeypatch.setattr(driver, "count", lambda load=None: 2)
    monkeypatch.setattr(driver, "cards", lambda: ["NVIDIA H100 80GB HBM3"] * 2)


def test_each_gpu_has_its_lines(tmp_path: Path) -> None:
    listed = tmp_path / "list.jsonl"
    listed.write_text("a\nb\nc\n", encoding="utf-8")
    assert ask(tmp_path, "--split", str(listed)) == 0
    assert [(tmp_path / gpu).read_text() for gpu in "01"] == ["5 1/2 a c", "GPU-a 2/2 b"]


@pytest.mark.parametrize("found", [[], ["NVIDIA H200"], ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]])
def test_on_another_card_nothing_starts(
    found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session measured an H100's rows on the H200s that came, for seven minutes."""
    monkeypatch.setattr(driver, "cards", lambda: found)
    assert ask(tmp_path) == 2
    assert not (tmp_path / "0").exists()


def test_a_process_that_fails_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(tmp_path, code="print('why'); raise SystemExit(3)") == 1
    said = capfd.readouterr().out
    assert said.count("why") == 2 and "GPU 1: status 3" in said


def test_the_time_ends_what_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpus, "GRACE_S", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    assert ask(tmp_path, "--seconds", "3", code=deaf) == 1
    assert "GPU 0: status -9" in capsys.readouterr().out


def test_parts_are_all_of_it_and_nothing_twice() -> None:
    assert [gpus.part_of(text) for text in ("1/1", "2/3")] == [gpus.ALL, (2, 3)]
    for wrong in ("0/2", "3/2", "2", "a/b"):
        with pytest.raises(ValueError):
            gpus.part_of(wrong)
    items = [*range(10)]
    parts = [gpus.share(items, (number, 3)) for number in (1, 2, 3)]
    assert [*itertools.chain(*parts)] == items
    assert gpus.share(items, gpus.ALL) == items
