"""`hgemm-packs generate` without a GPU: kernels through the gates, wrong requests, and words."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hgemm_packs.generator.cli import live, search
from hgemm_packs.generator.core.space import catalogue
from hgemm_packs.generator.devices.fake import fake_kernel
from hgemm_packs.generator.gates import sanitizer
from hgemm_packs.generator.run.generate import Snapshot
from hgemm_packs.generator.store.busy import BusySeconds
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers import gpus
from tests.generator import foreign
from tests.generator.command import PROBLEMS, Builder, generate, listed

#: One of the smallest kernels: compiles in a second.
DIRECT = {
    "family": "sm90_direct",
    "genome": {
        **{"warps_m": 1, "warps_n": 1, "warps_k": 1, "mi": 1, "ni": 2, "unroll": 1},
        **{"exact": False, "fixed_k": 0, "cluster_k": 1},
    },
}


def flat(text: str) -> str:
    return " ".join(text.split())


def test_eval_of_a_genome_without_a_gpu() -> None:
    code, out, _ = generate("eval", json.dumps(DIRECT), 64, 64, 128)
    assert code == 0
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines()]
    assert [row[:2] for row in cells if len(row) == 3] == [
        ["static", "OK"],
        ["build", "OK"],
        ["binary", "OK"],
        ["dataflow", "OK"],
        ["coverage", "OK"],
    ]
    assert out.endswith("this machine has no GPU: the gates that run the kernel were left out\n")


def write_foreign(folder: Path, inside: str = "", layout: str = "nt") -> Path:
    path = folder / f"{foreign.SYMBOL}.cu"
    path.write_text(foreign.source(inside=inside), encoding="utf-8")
    record = f'layout = "{layout}"\nblock = 32\ngrid = {{ tile_m = 16, tile_n = 8 }}\n'
    path.with_suffix(".toml").write_text(record, encoding="utf-8")
    return path


def test_eval_of_a_cheat_names_the_gate(tmp_path: Path) -> None:
    cheat = write_foreign(tmp_path, inside="if (clock() % 9) acc[0] = 0;")
    code, out, _ = generate("eval", cheat, 64, 64, 128)
    assert code == 1
    line = next(line for line in out.splitlines() if "static" in line)
    assert "STATIC" in line and "clock" in line
    assert "build" not in out


def test_eval_takes_the_layout_from_the_record(tmp_path: Path) -> None:
    cheat = write_foreign(tmp_path, inside="if (clock() % 9) acc[0] = 0;")
    code, out, _ = generate("eval", cheat, 64, 64, 128, "--layout", "nn")
    assert code == 1
    assert "record" in out and "layout nt, not nn" in flat(out)


Prepare = Callable[[Path], Sequence[object]]


def shaped(*arguments: object) -> Prepare:
    """Arguments after a good --shapes and --run."""
    return lambda folder: (
        *("--shapes", listed(folder / "shapes.toml", PROBLEMS), "--run", folder / "run"),
        *arguments,
    )


def evaluated(what: str, *options: object) -> Prepare:
    return lambda folder: ("eval", what, 64, 64, 128, *options)


def of_another_schema(folder: Path) -> Sequence[object]:
    Store(folder / "run").close()
    with sqlite3.connect(folder / "run" / "store.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    return ("report", folder / "run")


def without_problems(folder: Path) -> Sequence[object]:
    Store(folder / "run").close()
    return ("resume", folder / "run")


def of_no_record(folder: Path) -> Sequence[object]:
    path = write_foreign(folder)
    path.with_suffix(".toml").write_text("block = 32\n", encoding="utf-8")
    return ("eval", path, 64, 64, 128)


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda folder: (), "say which problems: --shapes grid"),
        (
            lambda folder: ("--shapes", "gird"),
            "gird is no file, and no list of "
            "['drawn', 'drawn_m513_8192', 'drawn_m65_512', 'engines', 'grid', 'llm', 'serving', "
            "'transposed', 'unaligned', 'unaligned_sizes']",
        ),
        (shaped("--strategy", "genius"), "no strategy 'genius'; known: cma, cost, exhaustive"),
        (shaped("--budget", "10 parsecs"), "'10 parsecs' is no time: say 600s, 10m or 2h"),
        (shaped("--budget", "0"), "'0' is no time"),
        (shaped("--layouts", "nz"), "['nz'] not in"),
        (shaped("--layouts", "tn"), "these lists and filters leave no problem"),
        (shaped("--models", "Qwen9 *"), "no model is called 'Qwen9 *'"),
        (shaped(), "no CUDA device; `hgemm-packs generate doctor` says what is missing"),
        (shaped("--gpus", 4), "no CUDA device"),
        (lambda folder: ("resume", folder / "run"), "no store at"),
        (without_problems, "has no problems yet"),
        (lambda folder: ("report", folder / "run"), "no store at"),
        (lambda folder: ("pack", folder / "run"), "no store at"),
        (lambda folder: ("merge", folder / "run", folder / "absent"), "no store at"),
        (
            lambda folder: ("table", folder / "run", "--out", folder / "x"),
            "run is neither an export nor the folder of a run",
        ),
        (of_another_schema, "has schema 99; this version reads 1"),
        (evaluated("{'family': 1}"), "is neither FILE.cu nor JSON: Expecting property name"),
        (evaluated("[]"), 'a choice is {"family": ..., "genome": {...}}'),
        (evaluated('{"family": "x", "genome": {}}'), "no kernel family 'x'; known: sm90_direct"),
        (evaluated('{"family": "sm90_direct", "genome": {}}'), "genes must be"),
        (evaluated(json.dumps(DIRECT), "--layout", "nz"), "'nz'"),
        (evaluated(json.dumps(DIRECT), "--dtype", "f8"), "'f8'"),
        (evaluated("absent.cu"), "hgemm-packs: absent.cu: No such file or directory"),
        (of_no_record, "the launch record must say 'grid'"),
        (lambda folder: ("dance",), "No such command 'dance'"),
        (evaluated('{"family": [], "genome": {}}'), "no kernel family []"),
        (lambda folder: ("--gpus", 2, "resume", folder / "run"), "--gpus in front of 'resume'"),
    ],
)
def test_a_wrong_request_exits_2_with_one_line(
    tmp_path: Path, prepare: Prepare, words: str
) -> None:
    arguments = prepare(tmp_path)
    there = (tmp_path / "run").exists()
    code, _, err = generate(*arguments)
    assert code == 2
    assert words in flat(err) and "Traceback" not in err
    assert err.startswith(("hgemm-packs: ", "Usage: ")) and len(err.splitlines()) < 8
    assert (tmp_path / "run").exists() == there  # a mistake leaves nothing behind


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hgemm_packs.generator.search.rivals.tpe", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, err = generate(*shaped("--strategy", "tpe")(tmp_path))
    assert code == 2
    assert "strategy 'tpe' needs optuna: pip install 'hgemm-packs[rivals]'" in err
    monkeypatch.delitem(sys.modules, "hgemm_packs.generator.workers.ray_evaluator", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(search, "ProcessBuilder", lambda jobs: Builder())
    code, _, err = generate(*shaped("--ray", "auto")(tmp_path))
    assert (code, "--ray needs ray: pip install 'hgemm-packs[ray]'" in err) == (2, True)


def test_without_the_sanitizer_kernels_are_unjudged_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    kernels = [fake_kernel(choice) for choice in catalogue("nt", "f16")[:2]]
    for names, why in (
        (["0"], "no compute-sanitizer on the PATH"),
        ([], "this machine has no GPU"),
    ):
        monkeypatch.setattr(gpus, "names", lambda names=names: names)
        assert list(search.run_sanitizer(1, kernels)) == []
        said = capsys.readouterr().out
        assert f"2 kernels without the sanitizer gate: {why}" in said


def test_the_sanitizer_runs_on_all_gpus_of_the_run_and_verdicts_come_group_by_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four processes on the first GPU took over four minutes, and told nothing before the end."""
    kernels = [fake_kernel(choice) for choice in catalogue("nt", "f16")[:80]]
    ran: list[tuple[str, str | None]] = []

    def run_tool(
        items: Sequence[sanitizer.Item], tool: str, gpu: str | None, *_: object
    ) -> sanitizer.ToolRun:
        ran.append((tool, gpu))
        if len(ran) > 4:
            raise sanitizer.SanitizerUnavailable("lost")
        time.sleep(0.1)
        return sanitizer.ToolRun(tool, len(items), 2 * len(items), 0, "")

    monkeypatch.setattr(sanitizer, "run_tool", run_tool)
    monkeypatch.setattr(gpus, "names", lambda: ["5", "6", "7"])
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    parts = list(search.run_sanitizer(2, kernels))
    assert {gpu for _, gpu in ran} == {"5", "6"}
    assert {tool for tool, _ in ran} == {*sanitizer.OF_TABLES}
    assert parts[0].keys() == {one.id for one in kernels[::3]}
    assert all(verdict.passed for part in parts for verdict in part.values())
    left = len(kernels) - sum(map(len, parts))
    said = capsys.readouterr().out
    assert left >= 26 and f"{left} kernels without the sanitizer gate: lost" in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [("600", 600), ("600s", 600), ("10m", 600), ("2h", 7200), ("0.5h", 1800), (" 90s ", 90)],
)
def test_seconds(text: str, expected: float) -> None:
    assert search.seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "10 parsecs", "-1s", "0", "0m", "1e3", "1d", "10 m", "m", "inf"]
)
def test_no_seconds(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: say 600s, 10m or 2h"):
        search.seconds(text)


def test_only_an_exhaustive_search_has_all_patience() -> None:
    assert search.choose_budget("portfolio", 60.0).patience == 3
    assert search.choose_budget("exhaustive", 60.0).patience == sys.maxsize
    assert search.choose_budget("exhaustive", 60.0).gpu_seconds == 60.0


def test_gpus_are_all_or_as_many_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search.gpus, "count", lambda: 2)
    assert [search.gpus_here(asked) for asked in (0, 1, 2)] == [2, 1, 2]
    with pytest.raises(search.UserError, match="--gpus 3: the driver shows 2"):
        search.gpus_here(3)


def test_a_snapshot_in_words() -> None:
    at = Snapshot("search", 12, 3, 41.6, 600.0, 70, 0, 128, 1.0625)
    words = "3/12 problems, 42/600 GPU-s, 128 timings, 70 kernels, best so far 1.062x torch"
    assert live.line(at) == words
    other = dataclasses.replace(at, of="kernels sanitized")
    assert live.line(other) == words.replace("problems", "kernels sanitized")
    failing = dataclasses.replace(at, failures=5)
    assert live.line(failing) == words.replace("kernels,", "kernels, 5 refused,")
    busy = dataclasses.replace(at, busy=BusySeconds(10.0, 4.0, 7.5, 2.0))
    more = "compilers 40%, GPUs 75% of the time, best"
    assert live.line(busy) == words.replace("best", more)
