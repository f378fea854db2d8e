"""The words of explain, counters and the configuration."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from hgemm_packs import launcher, report, select
from hgemm_packs.problem import Problem
from tests import packs
from tests.abuse.builder import put

pytestmark = pytest.mark.usefixtures("clean_process")

SAME = {"torch": "2.11.0+cu130", "cublas": "13.1.0", "driver": "580.159"}


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pack = packs.write_good(tmp_path / "good")
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(pack.path))
    return pack.path


def explained(problem: Problem, **versions: str) -> list[str]:
    text = report.explain_problem(problem, device=packs.H200, versions=SAME | versions)
    return text.splitlines()


def test_a_kernel_is_explained_with_its_evidence(good: Path) -> None:
    assert explained(packs.WIN) == [
        "problem   256x512x1024 nn f16 -> f16, f32 accumulate",
        "device    NVIDIA H200, sm_90a, 132 SMs, driver for CUDA 13.0",
        "runs on   k_tma2",
        "hot       10.00 us, torch 11.50, cuBLASLt 11.20: 1.120x torch, at least 1.080x",
        "cold      10.00 us, torch 11.50, cuBLASLt 11.20: 1.120x torch, at least 1.080x",
        "profile   NVIDIA H200, by its name, SMs and L2; not compared: memory bandwidth, "
        "power limit",
        "compiled  torch.compile calls the kernel; Inductor keeps the product where max-autotune "
        "fuses what follows, or fuses nothing with a bias: the kernel saves 1.5 us, that 2.2",
        "baseline  measured against torch 2.11.0+cu130, cuBLAS 13.1.0, driver 580.159",
        "          yes kernel: test-pack 1.0.0: k_tma2, measured 1.120x hot, "
        "1.120x cold on 2026-11-20",
    ]


def test_a_dependent_launch_is_named(good: Path) -> None:
    direct, tma2 = (kernel.entry_fields["id"] for kernel in packs.good_kernels()[:2])
    put(direct, "table", 1, "dependent")(good)  # the row of WIN
    assert explained(packs.WIN)[2:4] == [
        "runs on   k_tma2",
        "          behind our own kernels in a graph: k_direct, dependent launch",
    ]
    assert explained(packs.WIN_SMALL)[2] == "runs on   k_direct"
    assert explained(packs.WIN_SMALL)[3].startswith("hot ")
    (found,) = select.find_packs().packs
    select.quarantine(found.manifest.by_id[direct], "wrong")
    assert explained(packs.WIN)[2] == "runs on   k_tma2"
    assert explained(packs.WIN)[3].startswith("hot ")
    assert explained(packs.WIN)[-1] == (
        "          no  quarantined: test-pack 1.0.0: dependent launch of k_direct: wrong"
    )
    select.reset()
    put(tma2, "table", 1, "dependent")(good)
    assert explained(packs.WIN)[3].endswith("graph: k_tma2, dependent launch")


def test_a_fallback_is_explained_with_every_reason(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packs.write_good(tmp_path / "ampere", arch="sm_80").close()
    packs.write_good(tmp_path / "future").close()
    put(8, "launcher_abi")(tmp_path / "future")
    places = [tmp_path / "ampere", tmp_path / "future", good]
    monkeypatch.setenv("HGEMM_PACKS_PATH", os.pathsep.join(map(str, places)))
    assert explained(packs.CUBLAS)[2:] == [
        "runs on   torch (fallback: cublas_measured_better)",
        "          no  arch: test-pack 1.0.0: the pack is made for sm_80, the device is sm_90a",
        "          no  cublas_measured_better: test-pack 1.0.0: measured on 2026-11-20, "
        "and no kernel had a confirmed win",
        f"          no  launcher_abi: {tmp_path / 'future'}: launcher_abi at launcher_abi: "
        "made for launcher ABI 8, this launcher has 7",
    ]


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"cublas": "13.2.0"}, "cublas is 13.2.0 here"),
        ({"driver": "590.1", "torch": "2.12.0"}, "torch is 2.12.0 here, driver is 590.1 here"),
    ],
)
def test_a_changed_baseline_is_said_and_the_row_still_used(
    good: Path, versions: dict[str, str], said: str
) -> None:
    lines = explained(packs.WIN, **versions)
    assert lines[2] == "runs on   k_tma2"
    assert lines[7].startswith("baseline  unverified baseline: measured against torch 2.11.0")
    assert lines[7].endswith(f"; {said}")


def test_explain_prints_the_decision_for_tensors(
    good: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what the launcher makes of the tensors; its own tests hold that to the truth."""

    class Tensor:
        device = type("Device", (), {"index": 3})
        requires_grad = False

    asked = []

    def device_info(index: int) -> object:
        asked.append(index)
        return packs.H200

    monkeypatch.setattr(launcher, "device_info", device_info)
    monkeypatch.setattr(report, "runtime_versions", lambda index: SAME)
    monkeypatch.setattr(launcher, "describe", lambda a, b, *_: packs.WIN)
    report.explain(Tensor(), Tensor())  # type: ignore[arg-type]
    assert "runs on   k_tma2\n" in capsys.readouterr().out
    assert asked == [3]
    odd = dataclasses.replace(packs.WIN, base=(2, 2, 2))
    monkeypatch.setattr(launcher, "describe", lambda a, b, *_: odd)
    report.explain(Tensor(), Tensor())  # type: ignore[arg-type]
    assert "no  unaligned: an operand is only 2-byte aligned" in capsys.readouterr().out
    monkeypatch.setattr(launcher, "describe", lambda a, b, *_: "dtype")
    report.explain(Tensor(), Tensor())  # type: ignore[arg-type]
    assert capsys.readouterr().out == (
        "runs on   torch (fallback: dtype)\n"
        "          no  dtype: the operands are neither float16 nor bfloat16\n"
    )


def test_the_configuration_names_packs_and_refusals(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HGEMM_PACKS_PATH", f"{good}{os.pathsep}{tmp_path / 'none'}")
    monkeypatch.setenv("HGEMM_PACKS_STRICT", "1")
    text = report.show_config()
    assert f"pack        test-pack 1.0.0, sm_90a, 3 kernels, 3 rows, {good}" in text
    assert f"refused     {tmp_path / 'none'}: missing_file" in text
    assert "strict      yes" in text


def test_a_kernel_of_free_source_is_explained_with_its_lineage(good: Path) -> None:
    said = {"asked": "agents.byhand", "by": "hand", "judged": "b" * 64, "parent": "none"}
    put(said, "kernels", 1, "genome")(good)  # that of WIN
    line = f"lineage   asked agents.byhand, by hand, judged {'b' * 64}, parent none"
    assert explained(packs.WIN)[2:4] == ["runs on   k_tma2", line]
    assert explained(packs.WIN_SMALL)[3].startswith("hot "), "no other has one"
