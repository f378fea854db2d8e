"""`hgemm-packs generate` on a simulated GPU: what its verbs write, say and leave alone."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from hgemm_packs import select
from hgemm_packs.generator.cli import search
from hgemm_packs.generator.compile import pack_kernels
from hgemm_packs.generator.compile.pack_writer import read_source, write_source
from hgemm_packs.generator.core.problems import cost
from hgemm_packs.generator.core.spec import Job, Reply
from hgemm_packs.generator.devices.sim import Faults
from hgemm_packs.generator.devices.sim import SimDevice as Sim
from hgemm_packs.generator.redteam import corpus, run
from hgemm_packs.generator.store import export, filelock, findings
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest_reader import Manifest
from hgemm_packs.problem import Problem
from hgemm_packs.profiles import names
from hgemm_packs.settings import settings
from tests import cards
from tests.generator.cli.made_run import Made, hashes
from tests.generator.command import PROBLEMS, Answer, generate, listed, machine, simulated

OTHER = Problem(64, 4096, 4096, "nt", "f16")


def opened(folder: Path) -> Manifest:
    """What the pack that a command wrote says, hashes checked."""
    pack = Pack.open(folder / "pack")
    pack.close()
    return pack.manifest


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Path:
    """The run, to be changed."""
    return Path(shutil.copytree(made.run, tmp_path / "copied"))


def test_generate_writes_report_and_pack_and_says_where(made: Made) -> None:
    code, out, err = made.answer
    assert (code, err) == (0, "")
    source = read_source(made.run / "source.json")
    won = [row for row in source.table if row.kernel is not None]
    assert {row.key for row in source.table} == {problem.key for problem in PROBLEMS}
    assert len(won) == 2
    manifest = opened(made.run)
    assert manifest.table == source.table
    assert [each.id for each in manifest.kernels] == [each.id for each in source.kernels]
    kernels = len(manifest.kernels)
    where = made.run / "pack"
    assert out.splitlines()[-4:] == [
        f"report: {made.run / 'report' / 'report.html'}",
        f"pack: {where}: {kernels} kernels, {len(won)} wins in 3 rows",
        f"use:  export HGEMM_PACKS_PATH={where}",
        f"next: hgemm-packs generate refine {made.run}  # dependent launch, long runs",
    ]
    document = json.loads((made.run / "report" / "report.json").read_text(encoding="utf-8"))
    assert document["pack"]["wins"] == len(won)
    assert document["device"]["name"] == "Simulated GPU"
    assert "Simulated GPU" in (made.run / "report" / "report.html").read_text(encoding="utf-8")


def test_a_log_has_a_line_a_stage(made: Made) -> None:
    stages = ["ceilings", "search", "race", "gate", "finals", "behind", "noise", "confirm"]
    stages += ["sanitize", "done"]
    lines = made.answer.out.splitlines()
    assert [line.split(":")[0] for line in lines[: len(stages)]] == stages
    assert "0/3 problems, 0/20 GPU-s, 0 timings" in lines[1], "nothing waits for the ceilings"
    assert "3/3 problems" in lines[9]


def test_the_same_command_again_changes_nothing(made: Made, copied: Path) -> None:
    again = simulated(*made.options, "--run", copied)
    words = made.answer.out.replace(str(made.run), str(copied)).splitlines()
    assert (again.code, again.out.splitlines()[-2:]) == (0, words[-2:])
    assert hashes(copied / "pack") == hashes(made.run / "pack")
    assert (copied / "source.json").read_bytes() == (made.run / "source.json").read_bytes()
    jobs = []
    for folder in (made.run, copied):
        with Store(folder, readonly=True) as store:
            jobs.append([job.id for job in store.finished_jobs()])
            runs = len(store.runs())
    assert jobs[0] == jobs[1] and runs == 2


def test_a_simulated_pack_serves_no_real_gpu(
    made: Made, monkeypatch: pytest.MonkeyPatch, clean_process: None
) -> None:
    """What never was measured must never run: a pack is for the GPU of its profile, and that of a
    simulation has no bandwidth and no power limit, so that its name counts."""
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(made.run / "pack"))
    settings.cache_clear()
    manifest = select.find_packs().packs[0].manifest
    assert [each.name for each in manifest.device_profiles] == ["Simulated GPU"]
    assert {row.profile for row in manifest.table} == {"Simulated GPU"}
    assert manifest.baseline.torch == manifest.baseline.driver == "simulated"
    twin = dataclasses.replace(cards.H100, name="Simulated GPU")
    codes = {select.resolve(problem, 0, twin).code for problem in PROBLEMS}
    assert "kernel" in codes  # by nothing but its name is it kept from the real one
    for problem in PROBLEMS:
        choice = select.resolve(problem, 0, cards.H100)
        assert (choice.kernel, choice.code) == (None, "profile")
        assert "NVIDIA H100 80GB HBM3 here has another name, and " in choice.reasons[0].text


def test_a_run_of_another_gpu_goes_on_nowhere_else(copied: Path, made: Made) -> None:
    other = machine()
    other._facts = dataclasses.replace(other.facts, name="NVIDIA H200")
    command = ("--shapes", made.options[1], "--run", copied)
    code, _, err = simulated(*command, device=other)
    assert code == 2
    words = "has measurements of Simulated GPU, here is NVIDIA H200: take another run folder"
    assert words in err


def test_follow_finds_kernels_that_read_ahead_for_the_rows_of_a_table(
    made: Made, tmp_path: Path
) -> None:
    """Nothing else is screened, nothing confirmed: a pack, and what `generate measure dependent` is
    to measure of it. Only rows with a kernel, and those asked for."""
    own, table = read_source(made.run / "source.json"), tmp_path / "source.json"
    official = own.pack._replace(name="hgemm-packs-sm90a")
    write_source(table, dataclasses.replace(own, pack=official))
    won = {Problem(*row.key) for row in own.table if row.kernel is not None}
    code, out, err = simulated("follow", table, "--run", tmp_path / "run", "--budget", "20s")
    assert (code, err) == (0, "") and f"pack: {tmp_path / 'run' / 'pack'}: " in out
    with Store(tmp_path / "run", readonly=True) as store:
        assert {job.kind for job in store.finished_jobs()} == {"ceilings", "behind", "gate"}
        assert {job.problem for job in store.finished_jobs("behind")} == won
        found = findings.read(store)
    pack = pack_kernels.Packed(tmp_path / "run" / "pack")
    asked = pack_kernels.read(str(tmp_path / "run" / "pairs.jsonl"))
    assert {problem for problem, _ in asked} == won
    assert {name for _, name in asked} == set(pack.entries)
    assert pack.choose_kernels(asked, {}) == asked
    assert opened(tmp_path / "run").pack.name == names.of_machine("Simulated GPU")
    for entry in pack.entries.values():
        assert entry.reads_ahead and entry.triggers_early
        assert entry.numerics.max_rel_err == round(found.proofs[entry.id].max_rel_err, 9)
    # What they are worth is for another measurement to say: an export has their proofs alone.
    assert simulated("archive", tmp_path / "run", "--out", tmp_path / "export").code == 0
    assert export.read(tmp_path / "export").proofs == found.proofs
    # Each second of the rows that a list names, not those of each second that it does.
    last = sorted(won, key=cost)[-1:]
    few = ("--shapes", listed(tmp_path / "last.toml", last), "--every", 2, "--budget", "20s")
    assert simulated("follow", table, "--run", tmp_path / "last", *few).code == 0
    with Store(tmp_path / "last", readonly=True) as store:
        assert {job.problem for job in store.finished_jobs("behind")} == set(last)
    none = simulated("follow", table, "--run", tmp_path / "none", "--layouts", "tt")
    assert none.code == 2 and "source.json has no row of these problems" in none.err
    assert not (tmp_path / "none").exists()


def test_confirm_ends_what_a_small_budget_left_open(made: Made, tmp_path: Path) -> None:
    """Each stage has its share of the new money, not of all that was ever spent: of that the stages
    before the confirmation had had theirs, and did nothing."""
    place = ("--run", tmp_path / "run")
    short = simulated(*made.options, "--budget", "4.5s", "--strategy", "prior", *place)
    assert short.code == 1
    assert f"not confirmed yet: hgemm-packs generate resume {tmp_path / 'run'}\n" in short.out
    assert short.out.endswith("no win confirmed yet: no pack\n")
    assert not (tmp_path / "run" / "pack").exists()
    with Store(tmp_path / "run", readonly=True) as store:
        screens = [job.id for job in store.finished_jobs("screen")]
        assert list(store.finished_jobs("confirm")) == []
        assert sum(store.spent_gpu_seconds().values()) > 0.7 * (4.5 + 2.0)
    code, out, _ = simulated("resume", tmp_path / "run", "--budget", "2s")
    assert code == 0
    with Store(tmp_path / "run", readonly=True) as store:
        assert [job.id for job in store.finished_jobs("screen")] == screens
        confirmed = {job.problem for job in store.finished_jobs("confirm")}
        assert confirmed == {job.problem for job in store.finished_jobs("behind")}
    won = {Problem(*row.key) for row in opened(tmp_path / "run").table if row.kernel}
    assert won and won <= confirmed
    assert f"{len(won)} wins in 3 rows" in out


def test_a_run_keeps_the_seed_of_its_first_call(tmp_path: Path) -> None:
    """Without --seed the strategy's was 0 for all: two runs differed by the noise alone."""
    with Store(tmp_path / "new") as store:
        drawn = {search.run_seed(store, None) for _ in range(4)}
        assert len(drawn) == 4 and search.run_seed(store, 7) == 7
        store.add_run({"seed": 41})
        assert search.run_seed(store, None) == search.run_seed(store, 7) == 41


def test_a_problem_that_does_not_fit_is_said(made: Made, tmp_path: Path) -> None:
    device = machine()
    measure = device.run

    def run(job: Job) -> Reply:
        words = "OutOfMemoryError: CUDA out of memory.\nmore"
        return Reply({}, {}, {"failed": words}) if job.problem == PROBLEMS[0] else measure(job)

    device.run = run  # type: ignore[method-assign]
    answer = simulated(*made.options, "--run", tmp_path / "run", device=device)
    assert answer.code == 0
    words = f"given up: 1 of 3 problems, as {PROBLEMS[0]}: OutOfMemoryError: CUDA out of memory."
    assert words in answer.out.splitlines()
    assert len(opened(tmp_path / "run").table) == 2


def test_a_machine_that_wins_nothing_makes_no_pack(made: Made, tmp_path: Path) -> None:
    place = ("--run", tmp_path / "run")
    broken = Sim(3, Faults(numeric=1.0))
    answer = simulated("--shapes", made.options[1], "--budget", "9s", *place, device=broken)
    assert answer.code == 1
    assert "0 of 0 likely wins confirmed" in answer.out
    assert answer.out.endswith("nothing faster than cuBLAS: no pack\n")
    assert not (tmp_path / "run" / "pack").exists()
    code, _, err = generate("pack", tmp_path / "run")
    assert (code, "no kernel reached the finals on Simulated GPU" in err) == (2, True)


def test_report_goes_where_it_is_told(made: Made, tmp_path: Path) -> None:
    code, out, _ = generate("report", made.run, "--out", tmp_path / "r")
    assert (code, out) == (0, f"wrote {tmp_path / 'r' / 'report.html'}\n")
    written = (tmp_path / "r" / "report.json").read_text(encoding="utf-8")
    assert (
        json.loads(written)["pack"]
        == json.loads((made.run / "report" / "report.json").read_text(encoding="utf-8"))["pack"]
    )


def test_a_full_disk_is_a_line_and_no_trace(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(store: Store, out: Path, *more: object) -> Path:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("hgemm_packs.generator.report.write", full)
    answer = generate("report", copied)
    assert (answer.code, answer.err) == (2, "hgemm-packs: database or disk is full\n")


def test_merge_unites_problems_and_their_rows(made: Made, tmp_path: Path) -> None:
    shapes = listed(tmp_path / "other.toml", [OTHER])
    other = ("--shapes", shapes, "--budget", "20s", "--run", tmp_path / "other", "--seed", 2)
    assert simulated(*other, "--strategy", "prior").code == 0
    for _ in range(2):  # twice is once
        code, out, _ = generate("merge", tmp_path / "both", made.run, tmp_path / "other")
        assert (code, out) == (0, f"{tmp_path / 'both'}: 4 problems\n")
    with Store(tmp_path / "both", readonly=True) as store:
        assert set(store.problems()) == {*PROBLEMS, OTHER}
        assert [each["seed"] for each in store.runs()] == [1, 2]
    assert generate("pack", tmp_path / "both").code == 0
    parts = [*opened(made.run).table, *opened(tmp_path / "other").table]
    assert sorted(opened(tmp_path / "both").table) == sorted(parts)


def test_pack_prunes_as_far_as_it_is_told(made: Made, tmp_path: Path) -> None:
    full = generate("pack", made.run, "--out", tmp_path / "full", "--keep", 1.0)
    half = generate("pack", made.run, "--out", tmp_path / "half", "--keep", 0.5)
    assert (full.code, half.code) == (0, 0)
    kernels = {each.id for each in opened(tmp_path / "full").kernels}
    kept = {each.id for each in opened(tmp_path / "half").kernels}
    assert kept < kernels
    assert f"pack: {tmp_path / 'half' / 'pack'}: {len(kept)} kernels" in half.out
    assert generate("pack", made.run, "--keep", 0.4).code == 2


def test_pack_overwrites_nothing_but_packs(made: Made, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "thesis.txt").write_text("precious")
    code, _, err = generate("pack", made.run, "--out", tmp_path)
    assert (code, "is not a pack directory: it has thesis.txt" in err) == (2, True)


def test_a_pack_without_a_win_is_called_useless(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgemm_packs.generator.tables.judge.noise_floor", lambda bounds: 1.0)
    code, out, _ = generate("pack", copied)
    assert code == 1
    assert "0 kernels, 0 wins in 3 rows" in out
    assert "no win clears the noise floor of 1" in out and "export" not in out


def test_redteam_writes_its_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {case.name: case for case in corpus.load()}
    fooled = dataclasses.replace(known["no_tensor_core"], expect=("build",))
    results = []
    for cases in ((known["prints"],), (known["prints"], fooled)):
        seen = run.Report("cpu", tuple(run.on_cpu(case)[0] for case in cases))
        monkeypatch.setattr(run, "run", lambda stage, tick, names, book, seen=seen: seen)
        results.append(generate("redteam", "--out", tmp_path / "seen.json"))
    assert [each.code for each in results] == [0, 1]
    assert "1 of 1 cheats rejected by the gate that names them, 0 of 0 honest" in results[0].out
    assert "no_tensor_core: expected ['build'], got binary" in results[1].out
    found = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert (found["total"], found["device"], len(found["commit"])) == (2, "none", 40)
    generate("redteam", "--out", tmp_path / "seen.json", "--commit", "abc1234")
    assert json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))["commit"] == "abc1234"


def test_what_another_process_holds_is_said_and_not_traced(
    made: Made, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(copied):
        code, _, err = simulated("resume", copied)
    assert (code, f"another process writes to {copied}" in err) == (2, True)

    def taken(*_: object) -> Answer:
        raise filelock.LockHeld("gpu-0.lock is held by process 7")

    monkeypatch.setattr("tests.generator.command.Inline", taken)
    code, _, err = simulated(*made.options, "--run", copied)
    assert (code, err) == (2, "hgemm-packs: gpu-0.lock is held by process 7\n")
