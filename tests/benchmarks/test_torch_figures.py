"""torch.json follows from the results, and versions of torch from JUnit files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gates import torch_versions
from benchmarks.publish import torch_figures

JUNIT = """<testsuites><testsuite>
<testcase classname="a" name="one"/>
<testcase classname="a" name="two"><skipped/></testcase>
{more}</testsuite></testsuites>
"""
FAILED = '<testcase classname="b" name="three"><failure/></testcase>\n'


def test_the_committed_file_is_what_the_results_say() -> None:
    on_file = json.loads(torch_figures.OUT.read_text(encoding="utf-8"))
    assert on_file == torch_figures.figures()
    models = json.loads((torch_figures.RESULTS / "models.json").read_text(encoding="utf-8"))
    assert on_file["compile.worst"] == models["compile"]["worst"]


def test_what_was_not_measured_is_not_there(tmp_path: Path) -> None:
    assert torch_figures.figures(tmp_path) == {}
    sampled = {"run": 640, "failed": 0, "hits": 14}
    (tmp_path / "opinfo.json").write_text(json.dumps(sampled), encoding="utf-8")
    assert torch_figures.figures(tmp_path) == {f"opinfo.{name}": n for name, n in sampled.items()}
    (tmp_path / "opinfo.json").unlink()
    means = {"equal": 1.0, "gmean_vs_cublas": 0.97, "worst_vs_cublas": 0.5}
    whole = {"layers": [], "figures": means | {"rows_compared": 9}}
    (tmp_path / "invariant.json").write_text(json.dumps(whole), encoding="utf-8")
    wanted = {f"invariant.{name}": figure for name, figure in means.items()}
    assert torch_figures.figures(tmp_path) == wanted
    (tmp_path / "invariant.json").unlink()
    eager = {"eager": {"gmean_upto64": 1.5}}
    (tmp_path / "models.json").write_text(json.dumps(eager), encoding="utf-8")
    assert torch_figures.figures(tmp_path) == {"eager.gmean_upto64": 1.5}


def test_a_failure_in_one_version_is_kept_and_ends_the_run_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_versions, "OUT", tmp_path / "versions.json")
    good, bad = tmp_path / "good.xml", tmp_path / "bad.xml"
    good.write_text(JUNIT.format(more=""), encoding="utf-8")
    bad.write_text(JUNIT.format(more=FAILED), encoding="utf-8")
    commit = "a" * 40
    assert torch_versions.main([commit, f"2.10.0={good}"]) == 0
    assert torch_versions.main([commit, f"2.11.0={bad}"]) == 1
    assert json.loads(torch_versions.OUT.read_text(encoding="utf-8")) == {
        "2.10.0": {"commit": commit, "passed": 1, "skipped": 1, "failed": []},
        "2.11.0": {"commit": commit, "passed": 1, "skipped": 1, "failed": ["b::three"]},
    }
    monkeypatch.setattr(torch_figures, "OUT", tmp_path / "torch.json")
    (tmp_path / "torch_versions.json").write_bytes(torch_versions.OUT.read_bytes())
    assert torch_figures.figures(tmp_path)["versions"]["2.11.0"] == {"passed": 1, "failed": 1}
