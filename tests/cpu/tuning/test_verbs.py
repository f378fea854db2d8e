"""`hgemm-packs tune`: what it takes, what it prints, and the verbs that read a local table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs import select
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.local import conditions, place
from hgemm_packs.problem import Problem
from hgemm_packs.settings import settings
from hgemm_packs.tuning import tune
from hgemm_packs.tuning.recording import Recording
from tests import packs
from tests.cpu.tuning import world
from tests.cpu.tuning.world import FIRST, SECOND, FakeBench

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    """What the verb measures on, in place of a GPU."""
    made = FakeBench({FIRST: {"best": 1.3}})

    def stand_in(asked: object, seconds: float, **options: Any) -> tune.Tuned:
        return world.run(made, asked, seconds=seconds, **options)

    monkeypatch.setattr(tune, "tune", stand_in)
    return made


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    Recording({FIRST: 30, SECOND: 2}).save(tmp_path / "shapes.json")
    return tmp_path / "shapes.json"


def cells(out: str, problem: Problem) -> list[str]:
    line = next(line for line in out.splitlines() if str(problem) in line)
    return [cell.strip() for cell in line.strip("│┃ ").split("│")]


def test_a_recording_is_tuned_and_the_gain_is_printed(
    pack: Pack, bench: FakeBench, shapes: Path, command: Run
) -> None:
    code, out, err = command("tune", shapes, "--seconds", 30)
    assert (code, err) == (0, "")
    assert cells(out, FIRST)[0:2] == [str(FIRST), "30"] and "1.300x" in cells(out, FIRST)
    assert "torch stays" in cells(out, SECOND)
    assert "2 problems measured in" in out
    assert "a kernel runs 1 of them, torch the others; 1.140x torch over all" in out
    assert f"the table is in {select.find_packs().packs[0].path.parent}" in out
    code, out, _ = command("tune", shapes)
    assert code == 0 and "2 problems had a row" in out and "0 problems measured" in out
    bench.did.clear()
    command("tune", shapes, "--again")
    assert {problem for _, problem, _ in bench.did} == {FIRST, SECOND}


def test_models_of_the_list_and_files_are_taken_as_plan_takes_them(
    pack: Pack, bench: FakeBench, tmp_path: Path, command: Run
) -> None:
    code, out, _ = command("tune", "Llama 3.1 8B", "--m", "1,8", "--dtype", "f16")
    assert code == 0 and "14 problems: no kernel of the packs takes it" in out  # these are nn
    (tmp_path / "own.toml").write_text(
        'layouts = ["nn"]\n[[problem]]\nm = 64\nn = 64\nk = 128\n', encoding="utf-8"
    )
    code, out, _ = command("tune", tmp_path / "own.toml")
    assert code == 0 and cells(out, FIRST)[0] == str(FIRST)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing here",), "'nothing here' is neither a file nor a listed model"),
        (("Llama 3.1 8B", "--m", "x"), "--m x: not numbers from 1, such as 1,8,64"),
        (("Llama 3.1 8B", "--dtype", "f8"), "--dtype f8: not one of f16, bf16"),
        (("absent.toml",), "absent.toml: No such file or directory"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_a_line(
    pack: Pack, bench: FakeBench, command: Run, arguments: tuple[str, ...], words: str
) -> None:
    code, _, err = command("tune", *arguments)
    assert code == 2 and err.startswith(f"hgemm-packs: {words}") and err.count("\n") == 1


def test_without_a_gpu_the_verb_says_so(pack: Pack, shapes: Path, command: Run) -> None:
    code, _, err = command("tune", shapes)
    assert (code, err) == (
        2,
        "hgemm-packs: tune measures on a CUDA device, and torch sees none here\n",
    )


def test_plan_shows_a_local_row_in_the_place_of_the_packs_own(
    pack: Pack,
    bench: FakeBench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Run,
) -> None:
    official = Problem(1, 64, 64, "nt", "f16")
    rows = [packs.row(official, None), packs.row(Problem(2, 64, 64, "nt", "f16"), None)]
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(world.write(tmp_path / "rows", rows=rows).path))
    settings.cache_clear()
    select.reset()
    (tmp_path / "own.toml").write_text("m = [1, 2, 3]\n[[layer]]\nn = 64\nk = 64\n")
    _, out, _ = command("plan", tmp_path / "own.toml", "--device-profile", packs.H200.name)
    assert "1 problems were not measured" in out
    world.run(FakeBench({FIRST: {"best": 1.3}}), [FIRST])
    _, after, _ = command("plan", tmp_path / "own.toml", "--device-profile", packs.H200.name)
    assert "1 problems were not measured" in after
    assert "pack test-pack 1.0.0" in after and "pack local-" in after


def test_a_stale_table_is_no_fault_that_verify_finds(
    pack: Pack, bench: FakeBench, shapes: Path, monkeypatch: pytest.MonkeyPatch, command: Run
) -> None:
    command("tune", shapes)
    assert command("verify")[0] == 0
    now = conditions.here()._replace(rules=9)
    monkeypatch.setattr(place, "here", lambda: now)
    select.reset()
    code, out, _ = command("verify")
    assert code == 0 and "stale: rules was 2, is 9" in " ".join(out.split())


def test_list_and_explain_name_the_table_of_this_machine(
    pack: Pack, bench: FakeBench, shapes: Path, command: Run
) -> None:
    command("tune", shapes)
    _, out, _ = command("list")
    assert "local-" in out
    _, out, _ = command("explain", 64, 64, 128, "--layout", "nn", "--device-profile", "NVIDIA H200")
    assert "runs on   best" in out and "1.300x hot" in out
