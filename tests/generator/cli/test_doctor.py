"""The doctor: what it finds, what it asks for, and what it does not need."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from types import SimpleNamespace

import pytest

from hgemm_packs import launcher
from hgemm_packs.generator.cli import doctor
from hgemm_packs.generator.compile.compiler import NVRTC_PIN, BuildError
from hgemm_packs.problem import DeviceInfo
from tests import packs
from tests.generator.command import generate


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it compiles is not of interest: names and registers are."""
    built = SimpleNamespace(entry_fields={"regs": 40})
    monkeypatch.setattr(doctor, "build_one", lambda family, genome: built)


def by_name() -> dict[str, doctor.Check]:
    return {check.name: check for check in doctor.checks()}


def test_this_machine_lacks_a_gpu_and_nothing_else() -> None:
    code, out, err = generate("doctor")
    assert (code, err) == (1, "")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines()]
    marks = {row[1]: row[0] for row in rows if len(row) == 4 and row[0]}
    assert [name for name, mark in marks.items() if mark == "MISSING"] == ["torch"]
    assert marks["compiler"] == marks["nvidia-cuda-nvrtc"] == marks["sqlite"] == "ok"
    assert "a CUDA build of torch and a GPU" in out
    assert out.endswith("1 needed, see the right column\n")


@pytest.mark.usefixtures("no_compiler")
def test_a_missing_or_other_compiler_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = importlib.metadata.version
    there = {"nvidia-cuda-nvrtc": "12.9.1"}

    def version(name: str) -> str:
        if name == "ray" or name == "tree-sitter-cuda":
            raise importlib.metadata.PackageNotFoundError(name)
        return there.get(name) or installed(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = by_name()
    nvrtc, grammar, ray = (found[n] for n in ("nvidia-cuda-nvrtc", "tree-sitter-cuda", "ray"))
    assert (nvrtc.ok, nvrtc.detail, nvrtc.needed) == (False, "12.9.1", True)
    assert (grammar.ok, grammar.detail, grammar.needed) == (False, "not installed", True)
    assert (ray.ok, ray.needed) == (False, False)
    # The brackets are not markup: the command can be copied.
    code, out, _ = generate("doctor")
    assert code == 1
    assert "pip install 'hgemm-packs[cli,generator]'" in out
    assert "pip install 'hgemm-packs[ray]'" in out
    assert out.endswith("3 needed, see the right column\n")
    there["nvidia-cuda-nvrtc"] = NVRTC_PIN
    assert by_name()["nvidia-cuda-nvrtc"].ok


@pytest.mark.parametrize(
    ("version", "ok"),
    [("2.9.1+cu130", False), ("2.10.0", True), ("2.10.0a0+git1f2e", True), ("2.100.0.dev1", True)],
)
def test_torch_is_new_enough_by_its_version(
    version: str, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.__version__", version)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    check = doctor._torch()
    assert (check.ok, check.detail.split(",")[0]) == (ok, version)
    assert ok or "torch 2.10 or newer" in check.remedy


def test_a_compiler_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(family: str, genome: object) -> None:
        raise BuildError("no libnvrtc\nmore words")

    monkeypatch.setattr(doctor, "build_one", refuse)
    check = by_name()["compiler"]
    assert (check.ok, check.detail) == (False, "no libnvrtc")


@pytest.mark.usefixtures("no_compiler")
def test_a_full_disk_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, ok in ((doctor.MIN_FREE_BYTES, False), (doctor.MIN_FREE_BYTES + 1, True)):
        monkeypatch.setattr(
            "shutil.disk_usage", lambda place, free=free: SimpleNamespace(free=free)
        )
        check = by_name()["build cache"]
        assert (check.ok, check.remedy) == (ok, "set HGEMM_PACKS_CACHE")


def gpus(monkeypatch: pytest.MonkeyPatch, free: float, *infos: DeviceInfo) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: len(infos))
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda index: (free * 100e9, 100e9))
    monkeypatch.setattr(launcher, "device_info", infos.__getitem__)


@pytest.mark.usefixtures("no_compiler")
def test_gpus_are_fit_busy_or_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    ampere = dataclasses.replace(packs.H200, name="NVIDIA A100", arch="sm_80")
    old = dataclasses.replace(packs.H200, driver=12090)
    gpus(monkeypatch, 0.99, packs.H200, ampere, old)
    found = by_name()
    assert found["torch"].ok
    assert found["GPU 0"].detail == "NVIDIA H200, sm_90a, driver for CUDA 13.0, 99 of 100 GB free"
    assert [found[f"GPU {i}"].ok for i in range(3)] == [True, False, False]
    assert found["GPU 2"].remedy == "the kernels are for sm_90a and a driver for CUDA 13 or newer"
    assert found["GPU 0 idle"].ok
    gpus(monkeypatch, 0.5, packs.H200)
    busy = by_name()["GPU 0 idle"]
    assert (busy.ok, busy.detail, busy.needed) == (False, "50.0 GB in use", False)


@pytest.mark.usefixtures("no_compiler")
def test_every_look_is_announced() -> None:
    seen: list[str] = []
    doctor.checks(seen.append)
    assert seen == ["packages", "compiler", "GPU"]
