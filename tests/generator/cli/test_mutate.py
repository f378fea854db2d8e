"""`generate redteam --mutate`: what it writes, says and refuses. Its gates are stood in for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hgemm_packs.generator.gates.sanitizer import SanitizerUnavailable
from hgemm_packs.generator.redteam.mutation import judge, run
from tests.generator.command import generate
from tests.generator.redteam.killed_mutants import SEED, Judges, line


class Decided(Judges):
    """Half of the mutants are caught, and one is no place."""

    def call(self, *arguments: object, **named: object) -> judge.Line:
        number = super().call(*arguments, **named)["number"]  # type: ignore[arg-type]
        if number == 4:
            return {"number": 4, "outcome": judge.NO_PLACE, "gate": "", "detail": "none"}
        return line(number, *(("caught", "dataflow") if number % 2 else ("undecided", "")))


def test_it_writes_shares_and_lines_and_says_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Worker", Decided)
    out = tmp_path / "mutants.json"
    asked = ("redteam", "--mutate", 6, "--seed", SEED, "-j", 1, "--commit", "abc", "--out", out)
    code, said, _ = generate(*asked)
    assert code == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [found[name] for name in ("commit", "device", "seed", "drawn")] == [
        "abc",
        "none",
        SEED,
        6,
    ]
    assert (found["planted"], found["caught"], found["caught_share"]) == (5, 3, 0.6)
    assert "2 mutants are undecided: only --gpu decides them" in said
    assert "60.0%" in said
    kept = [json.loads(text) for text in (tmp_path / "mutants.jsonl").read_text().splitlines()]
    assert kept[0]["header"]["mutants"] == SEED
    assert sorted(each["number"] for each in kept[1:]) == [*range(6)]


def test_another_seed_and_a_case_beside_it_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Worker", Decided)
    asked = ("redteam", "--mutate", 2, "--out", tmp_path / "mutants.json", "--seed")
    assert generate(*asked, SEED).code == 0
    code, _, words = generate(*asked, SEED + 1)
    assert code == 2
    told = " ".join(words.split())
    assert f"has the mutants of seed {SEED}: name another file by --out" in told
    code, _, words = generate(*asked, SEED, "--case", "plain")
    assert code == 2
    assert "--mutate draws faults in its place" in " ".join(words.split())


def test_a_machine_without_the_sanitizer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise SanitizerUnavailable("no compute-sanitizer on the PATH")

    monkeypatch.setattr(run, "run", unavailable)
    code, _, words = generate("redteam", "--mutate", 2, "--out", tmp_path / "mutants.json")
    assert code == 2
    told = "no compute-sanitizer on the PATH: without it no mutant has passed every gate"
    assert told in " ".join(words.split())
