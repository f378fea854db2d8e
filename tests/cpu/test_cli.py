"""The command line: every verb's words, files and exit codes, on a machine without a GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hgemm_packs import cli, launcher
from hgemm_packs.cli import bench as bench_verb
from hgemm_packs.cli import build as build_verb
from hgemm_packs.cli import inspect, plots
from hgemm_packs.cli.console import UserError
from hgemm_packs.errors import PackError
from hgemm_packs.measure import baselines, timing
from hgemm_packs.problem import Problem
from hgemm_packs.settings import settings
from tests import cards, packs

pytestmark = pytest.mark.usefixtures("clean_process")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, command: Run) -> Run:
    """Run the command in this process; returns exit code, standard output, standard error."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    return command


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pack"
    packs.write_good(folder).close()
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(folder))
    return folder


def lines_of(out: str) -> list[list[str]]:
    """Cells of the table that `list` prints."""
    lines = (line for line in out.splitlines() if line.startswith("│"))
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_list_lists_packs_and_what_was_refused(
    run: Run, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HGEMM_PACKS_PATH", f"{pack}:{tmp_path / 'absent'}")
    code, out, _ = run("list")
    assert code == 0
    (cells,) = (cells for cells in lines_of(out) if cells[0] == "test-pack 1.0.0")
    assert cells[1:] == ["NVIDIA H200 (sm_90a)", "3", "3", "2", "HGEMM_PACKS_PATH"]
    assert "refused" in out and "missing_file" in out
    assert "no CUDA device" in out


@pytest.mark.parametrize("name", ["H200 [/nope]", "[red]H200 :cat:", r"H200 $\frac$"])
def test_defect_16_a_device_profile_is_no_markup(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = packs.source([], []).device_profiles[0]._replace(name=name)
    rows = [row._replace(profile=name) for row in packs.good_rows(packs.good_kernels())]
    made = packs.write_good(tmp_path / "pack", device_profiles=(profile,), table=tuple(rows))
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(made.path))
    monkeypatch.setattr(inspect, "cuda_device", lambda: 0)
    monkeypatch.setattr(inspect, "find_device", lambda _: replace(packs.H200, name=name))
    code, out, _ = run("list")
    cells = [cells[1] for cells in lines_of(out)]
    assert (code, " ".join(filter(None, cells))) == (0, f"{name} (sm_90a)")  # folded at spaces
    assert f"{name} (sm_90a, 132 SMs)" in out
    assert plots.plot_speedups(made.manifest, tmp_path / "plot.png")


def test_list_counts_for_each_profile_and_names_what_is_not_for_the_gpu_here(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels, known = packs.good_kernels(), (cards.H200, cards.H100)
    rows = [
        row._replace(profile=device.name)
        for device, count in zip(known, (3, 1), strict=True)
        for row in packs.good_rows(kernels)[:count]
    ]
    profiles = tuple(cards.profile(each) for each in known)
    made = packs.write_good(tmp_path / "pack", device_profiles=profiles, table=tuple(rows))
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(made.path))
    monkeypatch.setattr(inspect, "cuda_device", lambda: 0)
    for device in (cards.H100, cards.GH200):
        monkeypatch.setattr(inspect, "find_device", lambda _, device=device: device)
        code, out, _ = run("list")
        assert code == 0
        assert [cells[:5] for cells in lines_of(out) if cells[1]] == [
            ["test-pack 1.0.0", "NVIDIA H200 (sm_90a)", "3", "3", "2"],
            ["", "NVIDIA H100 80GB HBM3 (sm_90a)", "", "1", "1"],
        ]
        unused = [line for line in out.splitlines() if line.startswith("not used here: ")]
        assert bool(unused) == (device is cards.GH200)
    assert unused == [
        "not used here: test-pack 1.0.0: measured on NVIDIA H100 80GB HBM3, and NVIDIA GH200 480GB "
        "here has 4023 GB/s of memory bandwidth, not 3352. `hgemm-packs tune` measures here; "
        "HGEMM_PACKS_SIBLINGS=1 predicts from there"
    ]


def test_list_without_a_pack_says_how_to_get_one(run: Run) -> None:
    code, out, _ = run("list")
    assert (code, "hgemm-packs build" in out) == (0, True)


def test_explain_names_the_kernel_and_its_measurement(run: Run, pack: Path) -> None:
    code, out, _ = run(
        "explain", 256, 512, 1024, "--layout", "nn", "--device-profile", "NVIDIA H200"
    )
    assert code == 0
    assert "k_tma2" in out and "10.00 us, torch 11.50, cuBLASLt 11.20: 1.120x" in out


def test_explain_says_why_there_is_no_kernel(run: Run, pack: Path) -> None:
    ask = ("--layout", "nn", "--device-profile", "NVIDIA H200")
    assert "not_measured" in run("explain", 8, 8, 8, *ask)[1]
    assert "cublas_measured_better" in run("explain", 512, 512, 512, *ask)[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", 8, 8, 8), "give --device-profile"),
        (("explain", 8, 8, 8, "--device-profile", "Abacus"), "known: NVIDIA H200"),
        (("explain", 2**31, 8, 8, "--device-profile", "NVIDIA H200"), "is not in 0.."),
        (("explain", 8, 8, 8, "--layout", "nz"), "nz"),
        (("explain", 8, "many", 8), "integer"),
        (
            ("verify", "no/such/pack"),
            "hgemm-packs: no/such/pack: missing_file: No such file",
        ),
        (("sign", "/", "--key", "k"), "hgemm-packs: /: missing_file: manifest.json: No such file"),
        (("push", "/", "--repo", "a/b"), "hgemm-packs: /: missing_file: manifest.json: No such"),
        (("export", "/", "out"), "hgemm-packs: /: missing_file: manifest.json: No such file"),
        (("list", "--author", "me"), "--author needs --remote"),
        (("sync", "--file", "no.lock"), "hgemm-packs: no.lock: No such file or directory"),
        (("sync", "--file", "/dev/null"), "hgemm-packs: not_json at /dev/null: Expecting value"),
        (
            ("build", "--out", "/proc/pack"),
            "hgemm-packs: /proc/pack: ",
        ),  # before a minute of compiling
        (("build", "--out", "/usr"), "/usr is not a pack directory: it has"),
        (("verify", "--gpu"), "needs a CUDA device"),
        (("bench",), "needs a CUDA device"),
        (("build", "--arch", "sm_12"), "no manifest for 'sm_12'"),
        (("build", "--arch", ""), "no manifest for ''; there is: sm_90a"),
        (("dance",), "dance"),
    ],
)
def test_bad_requests_exit_2_with_one_clear_message(
    run: Run, pack: Path, arguments: tuple[object, ...], words: str
) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert words in " ".join(err.split())


def test_verify_passes_a_sound_pack_and_fails_a_changed_one(run: Run, pack: Path) -> None:
    code, out, _ = run("verify")
    assert code == 0 and "3 kernels and 3204 bytes match" in out
    blob = pack / "kernels.bin"
    data = bytearray(blob.read_bytes())
    data[1500] ^= 1
    blob.write_bytes(data)
    with pytest.raises(PackError, match="kernel_hash"):
        packs.Pack.open_verified(pack)
    code, out, _ = run("verify", pack)
    assert code == 2
    inspect.select.reset()
    code, out, _ = run("verify")
    assert code == 1 and "REFUSED" in out and "kernel_hash" in out


def test_verify_without_a_pack_is_not_a_pass(run: Run) -> None:
    code, _, err = run("verify")
    assert code == 2 and "no pack found to verify" in err


def test_verify_on_a_gpu_reports_each_wrong_kernel(
    run: Run, pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [
        SimpleNamespace(name="k_direct", ok=True, max_rel_err=2e-4, detail=""),
        SimpleNamespace(name="k_tma2", ok=False, max_rel_err=float("nan"), detail="257x8x8: 0.5"),
    ]
    check = SimpleNamespace(verify_kernels=lambda pack, device, tick: results)
    monkeypatch.setattr(inspect, "generator", lambda name: check)
    monkeypatch.setattr(inspect, "cuda_device", lambda: 0)
    code, out, _ = run("verify", "--gpu")
    assert code == 1
    assert (
        "WRONG k_tma2: 257x8x8: 0.5" in out
        and "1 of 2 kernels right, largest relative error 2.0e-04" in out
    )


def fake_builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stands for the compiler: writes the good test pack, with one kernel for a real layer."""
    manifest = tmp_path / "h200.json"

    class BuildError(RuntimeError):
        pass

    def build_united(
        places: list[Path], out: Path, jobs: int, tick: Callable[[int, int], None]
    ) -> object:
        if jobs == 13:
            raise BuildError("k_direct: spills\nptxas info: 4 bytes spill stores")
        tick(3, 3)
        kernels = packs.good_kernels()
        layer = packs.built("k_layer", "tma2_v1", layout="nt")
        won = packs.row(Problem(64, 4096, 4096, "nt", "f16"), layer)
        lost = replace(Problem(128, 4096, 4096, "nt", "f16"))
        rows = [*packs.good_rows(kernels), won, packs.row(lost, None)]
        made = [*kernels, layer]
        return packs.write_pack(
            out,
            packs.source(made, rows),
            made,
            generator_info=packs.GENERATOR,  # type: ignore[arg-type]
        )

    module = SimpleNamespace(build_united=build_united, BuildError=BuildError)
    monkeypatch.setattr(build_verb, "generator", lambda name: module)
    monkeypatch.setattr(build_verb, "sources", lambda arch: [manifest])


def test_build_reports_the_pack_and_the_compilers_words(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_builder(monkeypatch, tmp_path)
    code, out, _ = run("build", "--out", tmp_path / "made", "-j", 1)
    assert code == 0 and "test-pack 1.0.0: 4 kernels, 5 rows" in out
    assert len(packs.Pack.open(tmp_path / "made").manifest.kernels) == 4
    code, _, err = run("build", "--out", tmp_path / "other", "-j", 13)
    assert code == 2 and "4 bytes spill stores" in err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    code, _, err = run("build", "--out", tmp_path / "full", "-j", 1)
    assert code == 2 and "is not a pack directory" in err


def test_bench_measures_the_rows_that_matmul_uses(
    run: Run, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def compare(
        arms: dict[str, object], problem: Problem, *, protocol: str, **how: object
    ) -> timing.Comparison:
        asked.append((str(problem), protocol))
        base = 20.0 if protocol == "hot" else 30.0
        samples = {"torch": [base] * 20, "cublaslt": [base - 2] * 20, "ours": [base - 5] * 20}
        assert set(arms) == set(samples)
        return timing.Comparison(samples, 100, 1, False)

    tuned = baselines.TunedCublasLt(timing.torch_mm, timing.torch_mm, 3)
    monkeypatch.setattr(bench_verb, "cuda_device", lambda: 0)
    monkeypatch.setattr(launcher, "device_info", lambda index: packs.H200)
    monkeypatch.setattr(timing, "compare", compare)
    monkeypatch.setattr(baselines, "best_cublaslt", lambda problem, device: tuned)
    monkeypatch.setattr(baselines, "cublaslt_version", lambda device: "13.1.0")
    code, out, _ = run("bench", "--out", tmp_path / "bench")
    assert code == 0
    # The two wins, not the row that cuBLAS keeps; smallest first, both protocols.
    small, large = str(packs.WIN_SMALL), str(packs.WIN)
    assert asked == [(small, "hot"), (small, "cold"), (large, "hot"), (large, "cold")]
    said = " ".join(out.split())
    assert "over 2 rows, caches hot: 1.333x torch, 1.200x the better of torch and cuBLASLt" in said
    document = json.loads((tmp_path / "bench" / "bench.json").read_text(encoding="utf-8"))
    first = document["rows"][0]
    assert (first["m"], first["hot"]["us"], first["hot"]["speedup"]) == (
        64,
        15.0,
        1.3333333333333333,
    )
    assert first["cold"] == {
        "us": 25.0,
        "torch_us": 30.0,
        "cublaslt_us": 28.0,
        "speedup": 1.2,
        "lcb": 1.2,
    }
    assert (tmp_path / "bench" / "bench.png").stat().st_size > 10_000
    monkeypatch.setenv("HGEMM_PACKS_PATH", "")
    settings.cache_clear()
    inspect.select.reset()
    code, _, err = run("bench")
    assert code == 2 and "has a confirmed win on NVIDIA H200" in " ".join(err.split())


def test_demo_walks_the_whole_path(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_builder(monkeypatch, tmp_path)
    # The demo sets this variable for its process; registered here so that it is put back.
    monkeypatch.setenv("HGEMM_PACKS_PATH", "")
    code, out, _ = run("demo", "--out", tmp_path / "demo", "-j", 1)
    assert code == 0
    assert settings().path == (tmp_path / "demo" / "pack",)
    assert "Llama 3.1 8B" in out and " 1.12 " in out
    decisions = json.loads((tmp_path / "demo" / "layers.json").read_text(encoding="utf-8"))
    won = [each for each in decisions if each["kernel"]]
    # Three of the models have a 4096 x 4096 weight, and only M = 64 has a kernel.
    assert {each["model"] for each in won} == {"Llama 3.1 8B", "Qwen3 8B", "Mistral 7B v0.3"}
    assert {(each["m"], each["n"], each["k"]) for each in won} == {(64, 4096, 4096)}
    assert {each["decided"] for each in decisions} == {
        "kernel",
        "cublas_measured_better",
        "not_measured",
    }
    png = (tmp_path / "demo" / "speedups.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and len(png) > 10_000
    # What nobody measured looked like what was measured and not won.
    codes = [each["decided"] for each in decisions]
    asked = len(codes) - codes.count("not_measured")
    words = " ".join(out.split())
    assert f"{len(won)} of {asked} layer calls that were measured get a kernel" in words
    assert words.count("- - - - 1.12 . - ") == codes.count("cublas_measured_better") == 3
    assert "compiled and hashed, not run" in out


def no_torch(name: str) -> None:
    raise ModuleNotFoundError("No module named 'torch'", name="torch")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"typer is missing: pip install 'hgemm-packs\[cli\]'"):
        cli.main()
    with monkeypatch.context() as without:
        without.setattr("importlib.import_module", no_torch)
        with pytest.raises(UserError, match=r"torch 2.10 or newer is needed: see pytorch.org"):
            cli.console.generator("cli")
    monkeypatch.setitem(sys.modules, "hgemm_packs.generator.compile.compiler", None)
    with pytest.raises(UserError, match=r"pip install 'hgemm-packs\[cli,generator\]'"):
        cli.console.generator("build")
