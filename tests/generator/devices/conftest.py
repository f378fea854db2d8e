"""Recordings of the simulation, written and read once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.search import replay_convert
from hgemm_packs.generator.devices import recording
from hgemm_packs.generator.devices.recording import Screen
from hgemm_packs.problem import Problem
from tests.generator.devices.recorded_sim import PROBLEMS, line


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two files of lines, one of them gzipped."""
    folder = tmp_path_factory.mktemp("raw")
    texts = [json.dumps(line(problem)) + "\n" for problem in PROBLEMS]
    (folder / "a.jsonl").write_text("".join(texts[:1]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(texts[1:]).encode()))
    return [folder / "a.jsonl", folder / "b.jsonl.gz"]


@pytest.fixture(scope="module")
def recorded(raw: list[Path]) -> Path:
    path = raw[0].with_name("recorded.npz")
    replay_convert.convert(raw, path)
    return path


@pytest.fixture(scope="module")
def screens(recorded: Path) -> dict[Problem, Screen]:
    return recording.load(recorded)
