"""A red-team run on a GPU that is killed goes on where it was: the GPU stood in for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.redteam.book import Book
from tests.generator.redteam.test_redteam import FakeGpu, gpu_stage

pytestmark = pytest.mark.usefixtures("kept")


@pytest.mark.parametrize("stage", ["measure", "sanitize"])
def test_a_killed_run_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stage: str
) -> None:
    whole = gpu_stage(monkeypatch)[1]
    path = tmp_path / "redteam.jsonl"

    def killed(self: FakeGpu, *_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FakeGpu, stage, killed)
        with pytest.raises(KeyboardInterrupt):
            gpu_stage(monkeypatch, Book.open(path, "abc"))
    gpu, document = gpu_stage(monkeypatch, Book.open(path, "abc"))
    assert gpu.order == []
    groups = [["race_by_luck_behind"], ["plain", "split_k"]]
    assert gpu.groups == ([] if stage == "measure" else groups)
    # What the CPU's gates said is said anew, in other seconds.
    assert without_seconds(document) == without_seconds(whole)
    again, document = gpu_stage(monkeypatch, Book.open(path, "abc"))
    assert (again.order, again.groups) == ([], [])
    assert without_seconds(document) == without_seconds(whole)


def without_seconds(document: dict[str, Any]) -> dict[str, Any]:
    cases = [{**case, "seconds": 0} for case in document["cases"]]
    return {**document, "cases": cases}


def test_what_the_machine_lacked_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "redteam.jsonl"
    lacking = {"plain": "error", "race_by_luck_behind": "unavailable"}
    document = gpu_stage(monkeypatch, Book.open(path, "abc"), **lacking)[1]
    got = {case["name"]: case["got_gate"] for case in document["cases"]}
    assert {name: got[name] for name in lacking} == lacking
    document = gpu_stage(monkeypatch, Book.open(path, "abc"))[1]
    assert all(case["got_gate"] in case["expect"] for case in document["cases"])


def test_a_book_of_another_commit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "redteam.jsonl"
    path.write_text(json.dumps({"header": {"redteam": "abc"}}) + "\n")
    with pytest.raises(ValueError, match="has the cases of commit abc"):
        Book.open(path, "def")
