"""A table of this machine survives: processes that are killed, two at once, upgrades, damaged
files."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hgemm_packs import select
from hgemm_packs.errors import PackError
from hgemm_packs.pack.folder import BLOB_NAME, MANIFEST_NAME, Pack
from hgemm_packs.pack.local import conditions, place
from hgemm_packs.pack.local.conditions import Conditions
from hgemm_packs.settings import settings
from hgemm_packs.tuning import journal, session
from tests import fake_driver, packs
from tests.cpu.call.served_packs import install, multiply
from tests.cpu.tuning import world
from tests.cpu.tuning.test_tune import chosen
from tests.cpu.tuning.world import FIRST, PROBLEMS, SECOND, THIRD, FakeBench

REPOSITORY = Path(__file__).resolve().parents[3]
#: Steps of the file system in a tuning of three problems, at least.
LEAST_STEPS = 40


def upgrade(patch: pytest.MonkeyPatch, **changes: str) -> None:
    """From now on the process has other versions, and has looked at no pack yet."""
    now = conditions.here()._replace(**changes)
    for module in (place, session):
        patch.setattr(module, "here", lambda: now)
    select.reset()


def refused() -> list[str]:
    return [each.error.code for each in select.find_packs().refused]


@pytest.mark.parametrize("what", ["torch", "cublas", "driver"])
def test_rows_of_other_versions_are_set_aside_and_the_next_tuning_begins_with_them(
    pack: Pack, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    upgrade(monkeypatch, **{what: "1.0"})
    world.run(FakeBench(world.speedups(best=1.3)), [FIRST, SECOND])
    assert chosen(FIRST) == ("kernel", "best")
    upgrade(monkeypatch, **{what: "2.0"})
    assert refused() == ["stale"]
    assert f"{what} was 1.0, is 2.0" in str(select.find_packs().refused[0].error)
    assert chosen(FIRST)[0] == "not_measured"
    bench = FakeBench({FIRST: {"best": 1.25}, SECOND: {"best": 0.8}, THIRD: {"best": 1.4}})
    world.run(bench, [THIRD])
    assert {(step, p) for step, p, _ in bench.did[:2]} == {("confirm", FIRST), ("confirm", SECOND)}
    assert [(step, p) for step, p, _ in bench.did[2:]] == [
        (step, THIRD) for step in ("screen", "finals", "confirm")
    ]
    assert chosen(FIRST) == chosen(THIRD) == ("kernel", "best")
    assert chosen(SECOND)[0] == "cublas_measured_better"
    select.reset()
    assert refused() == []
    found = select.find_packs().packs[0].manifest.row(packs.H200.name, FIRST.key)
    assert found is not None and found.hot.speedup == 1.25


def test_stale_rows_that_there_was_no_time_for_keep_their_kernels(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pack that the kernel came from is gone, too."""
    upgrade(monkeypatch, driver="1.0")
    world.run(FakeBench(world.speedups(best=1.3)))
    install(monkeypatch, world.write(tmp_path / "newer", ["slow", "good"]).path)
    upgrade(monkeypatch, driver="2.0")
    ends = FakeBench(world.speedups(best=1.3))
    now = [0.0]
    monkeypatch.setattr(session.time, "monotonic", lambda: now[0])
    ends.before = lambda: now.__setitem__(0, now[0] + 10.0)
    assert len(world.run(ends, [FIRST], seconds=5.0).left) == 2
    now[0] = 0.0
    done = world.run(FakeBench(world.speedups(best=1.3)), [SECOND])
    assert {each.problem for each in done.gains} == {SECOND, THIRD}
    assert [chosen(problem) for problem in PROBLEMS] == [("kernel", "best")] * 3


def test_what_is_unknown_makes_nothing_stale(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(monkeypatch, cublas="13.1.0")
    world.run(FakeBench(world.speedups(best=1.3)))
    upgrade(monkeypatch, cublas=conditions.UNKNOWN)
    assert refused() == [] and chosen(FIRST) == ("kernel", "best")


def test_other_rules_of_launching_make_rows_stale(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(FakeBench(world.speedups(best=1.3)))
    now = conditions.here()
    monkeypatch.setattr(place, "here", lambda: now._replace(rules=now.rules + 1))
    select.reset()
    assert refused() == ["stale"]


def test_an_upgraded_pack_leaves_the_rows_and_is_measured_by_the_next_tuning(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has its own copies of the kernels; a newer pack may have a faster one."""
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    install(monkeypatch, world.write(tmp_path / "old", ["slow", "good"]).path)
    world.run(FakeBench(world.speedups(good=1.2)), [FIRST])
    install(monkeypatch, world.write(tmp_path / "new", ["slow", "best"]).path)
    select.reset()
    assert chosen(FIRST) == ("kernel", "good")
    multiply(bare, FIRST)
    bench = FakeBench(world.speedups(good=1.2, best=1.4))
    done = world.run(bench, [FIRST, SECOND])
    assert [p for step, p, _ in bench.did if step == "screen"] == [SECOND, FIRST]
    assert bench.did[-2] == ("finals", FIRST, ("best", "good", "slow"))  # good is its own copy
    assert len(done.gains) == 2 and chosen(FIRST) == ("kernel", "best")
    assert world.run(FakeBench(), [FIRST, SECOND]).known == 2


Damage = Callable[[Path, Path], object]


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Damage] = {
    "empty pointer": lambda folder, pack: (folder / place.POINTER).write_bytes(b""),
    "torn pointer": lambda folder, pack: os.truncate(folder / place.POINTER, 40),
    "pointer of another format": lambda folder, pack: (folder / place.POINTER).write_text("{}"),
    "pointer to nothing": lambda folder, pack: pack.rename(folder / "elsewhere"),
    "manifest": lambda folder, pack: flip(pack / MANIFEST_NAME),
    "torn manifest": lambda folder, pack: os.truncate(pack / MANIFEST_NAME, 500),
    "no manifest": lambda folder, pack: (pack / MANIFEST_NAME).unlink(),
    "torn blob": lambda folder, pack: os.truncate(pack / BLOB_NAME, 100),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_table_is_put_away_with_one_warning_and_made_again(
    pack: Pack,
    bare: fake_driver.Started,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    folder = world.run(FakeBench(world.speedups(best=1.3))).folder
    DAMAGES[name](folder, folder / place.read_pointer(folder).manifest_sha256)
    select.reset()
    with caplog.at_level(logging.WARNING, "hgemm_packs"):
        multiply(bare, FIRST)
        multiply(bare, SECOND)
    assert len(caplog.records) == 1 and str(folder) in caplog.text
    assert (folder / f"{place.POINTER}.bad").exists() and not (folder / place.POINTER).exists()
    caplog.clear()
    select.reset()  # another process: there is nothing any more
    assert refused() == [] and chosen(FIRST)[0] == "not_measured"
    assert caplog.text == ""
    bench = FakeBench()
    assert world.run(bench).known == 3  # all of it is on file
    assert bench.did == []
    assert [chosen(problem) for problem in PROBLEMS] == [("kernel", "best")] * 3


def test_a_cubin_that_has_changed_is_not_run_and_the_table_is_put_away(
    pack: Pack, bare: fake_driver.Started, caplog: pytest.LogCaptureFixture
) -> None:
    folder = world.run(FakeBench(world.speedups(best=1.3))).folder
    flip(folder / place.read_pointer(folder).manifest_sha256 / BLOB_NAME)
    select.reset()
    with caplog.at_level(logging.WARNING, "hgemm_packs"):
        multiply(bare, FIRST)
        multiply(bare, SECOND)
    assert len(caplog.records) == 1 and "kernel_hash" in caplog.text
    assert not (folder / place.POINTER).exists()
    world.run(FakeBench())
    multiply(bare, FIRST)
    assert chosen(FIRST) == ("kernel", "best")


def test_a_kept_table_that_is_damaged_does_not_stop_a_tuning(pack: Pack) -> None:
    folder = world.run(FakeBench(world.speedups(best=1.3)), [FIRST]).folder
    flip(folder / place.read_pointer(folder).manifest_sha256 / BLOB_NAME)
    done = world.run(FakeBench(world.speedups(best=1.3)))
    assert len(done.gains) == 2
    assert [chosen(problem) for problem in PROBLEMS] == [("kernel", "best")] * 3


@pytest.mark.parametrize("damage", ["not JSON", '{"problem": 1}', '{"run": {}}', ""])
def test_a_damaged_line_of_the_evidence_costs_that_line(
    pack: Pack, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    folder = world.run(FakeBench(world.speedups(best=1.3))).folder
    path = folder / journal.FILE
    lines = path.read_text().splitlines()
    place_of = next(i for i, line in enumerate(lines) if '"stage":"confirm"' in line)
    lines[place_of] = damage or lines[place_of][:-9]
    path.write_text("".join(f"{line}\n" for line in lines))
    bench = FakeBench(world.speedups(best=1.3))
    with caplog.at_level(logging.WARNING, "hgemm_packs"):
        done = world.run(bench)
    measured = {problem for _, problem, _ in bench.did}
    assert len(measured) >= 1 and len(done.gains) == len(measured)
    assert "measured.jsonl.bad" in caplog.text
    assert (folder / f"{journal.FILE}.bad").read_text().splitlines() == lines
    assert [chosen(problem) for problem in PROBLEMS] == [("kernel", "best")] * 3
    assert journal.read(folder)[1] == 0


def test_evidence_that_others_could_have_written_is_put_away(pack: Pack) -> None:
    folder = world.run(FakeBench(world.speedups(best=1.3))).folder
    (folder / journal.FILE).chmod(0o666)
    done = world.run(FakeBench(world.speedups(good=1.2)))
    assert len(done.gains) == 3 and chosen(FIRST) == ("kernel", "good")


def test_a_table_that_others_can_write_to_is_not_used(pack: Pack, tmp_path: Path) -> None:
    world.run(FakeBench(world.speedups(best=1.3)))
    place.base_of(tmp_path / "cache").chmod(0o777)
    select.reset()
    assert refused() == ["cache_unsafe"] and chosen(FIRST)[0] == "not_measured"


def test_a_pointer_that_has_moved_on_is_read_again(
    pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader may be between the pointer and the pack while a tuning writes two tables."""
    folder = world.run(FakeBench(world.speedups(best=1.3)), [FIRST]).folder
    old = place.read_pointer(folder)
    world.run(FakeBench(world.speedups(best=1.3)))
    pointers = iter([old._replace(manifest_sha256="0" * 64), place.read_pointer(folder)])
    monkeypatch.setattr(place, "read_pointer", lambda folder: next(pointers))
    found = place.open_table(folder)
    assert found.manifest.row(packs.H200.name, THIRD.key) is not None


def spawn(driver: Path, kill_at: int = 0, slow_s: float = 0.0) -> subprocess.Popen[str]:
    """A process that tunes the three problems."""
    env = os.environ | {
        "HGEMM_PACKS_CACHE": str(settings().cache),
        "HGEMM_PACKS_PATH": str(settings().path[0]),
        "PYTHONPATH": str(REPOSITORY),
    }
    command = [sys.executable, "-m", "tests.cpu.tuning.world", str(driver), str(kill_at)]
    return subprocess.Popen(
        [*command, str(slow_s)],
        env=env,
        cwd=REPOSITORY,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_two_processes_at_once_take_turns_and_measure_each_problem_once(
    pack: Pack, driver_library: Path
) -> None:
    both = [spawn(driver_library, slow_s=0.1) for _ in range(2)]
    said = [each.communicate(timeout=120) for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    assert sorted(int(out) for out, _ in said) == [0, 3]
    assert any("another process tunes the same GPU model" in err for _, err in said)
    assert [chosen(problem) for problem in PROBLEMS] == [("kernel", "best")] * 3


def finals_on_file(folder: Path) -> set[object]:
    jobs, damaged = journal.read(folder)
    assert damaged == 0
    return {job.problem for job in jobs if job.stage == "confirm"}


@pytest.mark.parametrize("kill_at", range(1, LEAST_STEPS, 3))
def test_a_tuning_that_is_killed_at_any_step_loses_one_problem_at_most(
    pack: Pack, driver_library: Path, tmp_path: Path, kill_at: int
) -> None:
    killed = spawn(driver_library, kill_at)
    _, err = killed.communicate(timeout=120)
    assert killed.returncode == 9, err
    folder = place.folder_of(tmp_path / "cache", packs.H200.name, packs.H200.sm_count)
    before = finals_on_file(folder) if folder.exists() else set()
    select.reset()
    assert set(refused()) <= set()  # what a reader finds is whole
    bench = FakeBench(world.speedups(best=1.3))
    world.run(bench)
    assert {p for step, p, _ in bench.did if step == "confirm"} == {*PROBLEMS} - before
    assert [chosen(problem) for problem in PROBLEMS] == [("kernel", "best")] * 3
    assert sorted(each.name for each in folder.glob(".fresh*")) == []


def test_conditions_are_those_of_torch_and_of_what_is_loaded() -> None:
    import torch

    now = conditions.here()
    assert now.torch == torch.__version__
    assert conditions.changes(now, now) == []
    other = Conditions("2.0", "1.0", "3.0", 1)
    assert conditions.changes(other, other._replace(driver="4.0", rules=2)) == [
        "driver was 3.0, is 4.0",
        "rules was 1, is 2",
    ]


def test_a_damaged_pack_that_counts_no_more_takes_no_table_with_it(pack: Pack) -> None:
    """Another process has written a new table since this one was opened."""
    folder = world.run(FakeBench(world.speedups(best=1.3)), [FIRST]).folder
    select.reset()
    opened = select.find_packs().packs[0]
    old = opened.path
    world.run(FakeBench(world.speedups(best=1.3)))
    place.put_away(old, PackError("kernel_hash", "of an old pack"))
    assert place.read_pointer(folder).manifest_sha256 != old.name
    select.reset()
    assert chosen(THIRD) == ("kernel", "best")


@pytest.mark.parametrize("part", [".", "v1"])
def test_a_cache_that_is_not_private_is_said_once_and_its_tables_are_not_used(
    pack: Pack, tmp_path: Path, part: str
) -> None:
    world.run(FakeBench(world.speedups(best=1.3)))
    (tmp_path / "cache" / part).chmod(0o777)
    select.reset()
    assert refused() == ["cache_unsafe"] and chosen(FIRST)[0] == "not_measured"
