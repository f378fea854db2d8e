"""What becomes of the files that a run of the tests on a GPU leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gates.gpu_tests import verdicts

SUITE = '<testsuite><testcase classname="tests.a" name="{}">{}</testcase></testsuite>'


def test_parts_of_a_run_are_one_record(tmp_path: Path) -> None:
    parts = [tmp_path / "1.xml", tmp_path / "2.xml", tmp_path / "3.xml"]
    for part, name, child in zip(parts, "zyx", ("", "<failure/>", "<skipped/>"), strict=True):
        part.write_text(SUITE.format(name, child), encoding="utf-8")
    found = verdicts(parts, "c" * 40)
    assert found["commit"] == "c" * 40
    assert found["counts"] == {"failure": 1, "passed": 1, "skipped": 1}
    outcomes = {"tests.a::x": "skipped", "tests.a::y": "failure", "tests.a::z": "passed"}
    assert found["tests"] == outcomes


def test_a_test_is_in_one_part_alone(tmp_path: Path) -> None:
    """A second run that passed must not hide a first one that did not."""
    parts = [tmp_path / "1.xml", tmp_path / "2.xml"]
    for part, child in zip(parts, ("<failure/>", ""), strict=True):
        part.write_text(SUITE.format("a", child), encoding="utf-8")
    with pytest.raises(ValueError, match=r"2\.xml: tests\.a::a is in another file, too"):
        verdicts(parts, "c" * 40)
