"""The sweep without a GPU: what is measured again, what a killed run leaves, how work is dealt."""

from __future__ import annotations

import argparse
import gzip
import json
import math
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hgemm_packs.generator import sweep
from hgemm_packs.generator.problems import grid
from hgemm_packs.generator.records import (
    Record,
    error_bound,
    key,
    likely_win,
    promising,
    read_records,
    resume,
)
from hgemm_packs.problem import Problem
from tests import packs

from .measured import PROBLEM, measured, noise

SMALL = [Problem(64, 64, k, "nt", "f16") for k in (64, 128, 256, 512)]


def write(path: Path, *records: Record, tail: str = "") -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + tail)
    return path


# --- records --------------------------------------------------------------------------------------


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    whole = [measured(problem) for problem in SMALL[:2]]
    torn = json.dumps(measured(SMALL[2]))
    for cut in (1, 20, len(torn) - 1):
        path = write(tmp_path / "a.jsonl", *whole, tail=torn[:cut])
        assert read_records([path]) == whole


def test_records_are_read_from_several_files_gzipped_or_not(tmp_path: Path) -> None:
    first, second, third = (measured(problem) for problem in SMALL[:3])
    plain = write(tmp_path / "b.jsonl", first)
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(write(tmp_path / "c", second, third).read_bytes()))
    assert read_records([packed, plain]) == [second, third, first]
    assert read_records([]) == []


def test_resume_knows_what_is_done_and_cuts_what_is_torn(tmp_path: Path) -> None:
    failed = {"problem": key(SMALL[1]), "failed": "RuntimeError: no"}
    failed_noise = {"problem": ["noise", *key(SMALL[2])], "failed": "RuntimeError: no"}
    records = [measured(SMALL[0]), failed, noise(SMALL[0]), failed_noise]
    path = write(tmp_path / "a.jsonl", *records, tail='{"problem":[64,')
    assert resume(path) == {
        tuple(key(SMALL[0])),
        tuple(key(SMALL[1])),
        ("noise", *key(SMALL[0])),
        ("noise", *key(SMALL[2])),
    }
    assert path.read_text() == "".join(json.dumps(record) + "\n" for record in records)
    assert resume(tmp_path / "none.jsonl") == set()
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.parametrize(
    ("hot", "cold", "likely"),
    [
        ((12.0, 11.0, 10.0), (12.0, 11.0, 10.0), True),
        ((12.0, None, 10.0), (12.0, None, 10.0), True),
        ((12.0, 11.0, 10.0), (12.0, 11.0, 11.1), False),  # cold is slower
        ((12.0, 11.0, 11.5), (12.0, 11.0, 10.0), False),  # hot is slower than cuBLASLt
        ((12.0, 13.0, 12.5), (12.0, 13.0, 10.0), False),  # hot is slower than torch
        ((12.0, 11.0, 11.0), (12.0, 11.0, 10.0), False),  # a tie
    ],
)
def test_likely_wins_are_faster_than_both_hot_and_cold(hot: Any, cold: Any, likely: bool) -> None:
    record = measured(hot=hot, cold=cold)
    assert likely_win(record) is likely
    assert promising([record]) == ([record] if likely else [])


def test_only_right_kernels_are_promising() -> None:
    bound = error_bound(PROBLEM)
    assert promising([measured(error=bound)])
    assert error_bound(Problem(8, 8, 8, "nt", "bf16")) == pytest.approx(8.1 * bound, rel=0.01)
    without = {"problem": key(PROBLEM), "torch_us": 3.0, "finals": {}}
    failed = {"problem": key(PROBLEM), "failed": "RuntimeError: no"}
    wrong = [measured(error=e) for e in (bound * 1.01, math.inf, math.nan)]
    assert promising([without, failed, *wrong]) == []


def test_infinite_errors_survive_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", measured(error=math.inf))
    assert read_records([path])[0]["error"] == math.inf


# --- a worker -------------------------------------------------------------------------------------


def jobs_of(problems: list[Problem], ran: list[Any], fail: Any = None) -> list[sweep.Job]:
    def job(problem: Problem) -> Any:
        def run(bench: Any) -> Record:
            ran.append(problem)
            if fail is not None and problem == fail[0]:
                raise fail[1]
            return {**measured(problem), "bench": bench}

        return run

    return [(key(problem), job(problem)) for problem in problems]


def test_a_run_goes_on_where_a_killed_one_stopped(tmp_path: Path) -> None:
    """The story: the first record after a torn line used to join it, and both were lost."""
    path = write(tmp_path / "select-0.jsonl", measured(SMALL[0]), tail='{"problem":[64,64,128,"n')
    ran: list[Any] = []
    count = sweep.run_jobs(jobs_of(SMALL, ran), path, "bench", math.inf)
    assert count == 3
    assert ran == SMALL[1:]
    assert [r["problem"] for r in read_records([path])] == [key(p) for p in SMALL]
    assert len(path.read_text().splitlines()) == 4
    assert read_records([path])[1]["bench"] == "bench"
    assert sweep.run_jobs(jobs_of(SMALL, ran), path, "bench", math.inf) == 0
    assert ran == SMALL[1:]


def test_a_failure_is_a_record_and_the_next_problem_runs(tmp_path: Path) -> None:
    path, ran = tmp_path / "select-0.jsonl", []
    jobs = jobs_of(SMALL, ran, (SMALL[1], ValueError("no kernel")))
    sweep.run_jobs(jobs, path, None, math.inf)
    records = read_records([path])
    assert ran == SMALL
    assert records[1] == {"problem": key(SMALL[1]), "failed": "ValueError: no kernel"}
    assert promising(records) == [records[0], *records[2:]]


def test_a_lost_context_ends_the_process_and_the_next_run_goes_on_behind_it(tmp_path: Path) -> None:
    path, ran = tmp_path / "select-0.jsonl", []
    lost = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        sweep.run_jobs(jobs_of(SMALL, ran, (SMALL[1], lost)), path, None, math.inf)
    assert ran == SMALL[:2]
    sweep.run_jobs(jobs_of(SMALL, ran, (SMALL[1], lost)), path, None, math.inf)
    assert ran == SMALL
    assert [r["problem"] for r in read_records([path])] == [key(p) for p in SMALL]


def test_out_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ran = tmp_path / "select-0.jsonl", []
    clock = iter([0.0, 1.0, 10.0, 10.1, 10.1])
    monkeypatch.setattr(sweep.time, "monotonic", lambda: next(clock))
    assert sweep.run_jobs(jobs_of(SMALL, ran), path, None, 10.0) == 2
    assert ran == SMALL[:2]


def _args(**changes: Any) -> argparse.Namespace:
    values: dict[str, Any] = {
        "stage": "select",
        "shapes": "grid",
        "layouts": ["nt"],
        "dtypes": ["f16"],
        "regimes": ["tiny"],
        "every": 1,
        "shard": 0,
        "shards": 1,
        "records": [],
        "seconds": math.inf,
    }
    return argparse.Namespace(**values | changes)


def test_shards_share_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "select", lambda bench, problem, seed: key(problem))
    dealt = []
    for shard in range(4):
        for name, job in list(sweep._work("select", _args(shard=shard, shards=4))):
            assert job(None) == name, "each job measures its own problem"
            dealt.append(tuple(name))
    assert len(dealt) == len(set(dealt)) == 120
    assert set(dealt) == {tuple(key(problem)) for problem in grid(["nt"], ["f16"], ["tiny"])}
    assert len(list(sweep._work("select", _args(every=10)))) == 12


def test_confirm_takes_the_promising_and_the_noise_of_every_fortieth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = grid(["nt"], ["f16"], ["tiny"])
    good = [measured(problem, f"k{i}") for i, problem in enumerate(problems[:100])]
    bad = [measured(problem, error=1.0) for problem in problems[100:]]
    records = [write(tmp_path / "select-0.jsonl", *good[:50], *bad)]
    records.append(write(tmp_path / "select-1.jsonl", *good[50:]))
    monkeypatch.setattr(sweep, "confirm", lambda bench, problem, name, seed: [key(problem), name])
    monkeypatch.setattr(sweep, "noise", lambda bench, problem, seed: ["noise", *key(problem)])
    dealt: list[Any] = []
    for shard in range(2):
        args = _args(records=records, shard=shard, shards=2)
        for name, job in list(sweep._work("confirm", args)):
            outcome = job(None)
            assert name == (outcome if name[0] == "noise" else outcome[0])
            dealt.append(outcome)
    confirmed = {(tuple(problem), name) for problem, name in (d for d in dealt if d[0] != "noise")}
    assert confirmed == {(tuple(r["problem"]), r["chosen"]) for r in good}
    # Fifty a shard: the first and the forty-first of each.
    assert [d for d in dealt if d[0] == "noise"] == [
        ["noise", *good[i]["problem"]] for i in (0, 80, 1, 81)
    ]


def test_a_worker_appends_to_the_file_of_its_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "Bench", lambda pack: pack.manifest.pack.name)
    monkeypatch.setattr(
        sweep, "select", lambda bench, problem, seed: {"problem": key(problem), "bench": bench}
    )
    packs.write_good(tmp_path / "pool").close()
    args = _args(pool=tmp_path / "pool", out=tmp_path, shard=1, shards=60)
    for _ in range(2):
        sweep.run_worker(args)
    records = read_records([tmp_path / "select-1.jsonl"])
    assert [r["problem"] for r in records] == [name for name, _ in sweep._work("select", args)]
    assert {r["bench"] for r in records} == {"test-pack"}


@pytest.mark.parametrize(("statuses", "verdict"), [([0, 0], 0), ([0, 1], 1), ([0, -9], 1)])
def test_a_stage_fails_with_any_of_its_workers(
    statuses: list[int], verdict: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The story: a worker killed by a signal has a negative status, and the largest was taken."""
    started: list[Any] = []

    def popen(words: list[str], env: dict[str, str]) -> Any:
        status = statuses[len(started)]
        started.append((words[-4:], env["CUDA_VISIBLE_DEVICES"]))
        return SimpleNamespace(wait=lambda: status)

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert sweep.run_stage(_args(out=tmp_path / "out", gpus=2)) == verdict
    assert started == [
        (["--shard", "0", "--shards", "2"], "0"),
        (["--shard", "1", "--shards", "2"], "1"),
    ]
    assert (tmp_path / "out").is_dir()
