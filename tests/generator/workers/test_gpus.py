"""GPUs are counted without torch, and a worker starts by a name that this process never imports: a
run waited for both imports."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.workers import gpus
from hgemm_packs.generator.workers.evaluators import Local
from tests.generator.workers.local_jobs import KERNELS, job


class Driver:
    """libcuda with three GPUs, which answers with these errors."""

    def __init__(self, started: int = 0, counted: int = 0) -> None:
        self._started, self._counted = started, counted

    def cuInit(self, flags: int) -> int:  # noqa: N802
        assert flags == 0
        return self._started

    def cuDeviceGetCount(self, found: Any) -> int:  # noqa: N802
        ctypes.cast(found, ctypes.POINTER(ctypes.c_int)).contents.value = 3
        return self._counted

    def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802
        ctypes.cast(device, ctypes.POINTER(ctypes.c_int)).contents.value = 7 + index
        return 0

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:  # noqa: N802
        name.value = f"GPU of {device.value}"[: length - 1].encode()
        return 0


def missing(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


def test_gpus_are_those_that_the_driver_counts() -> None:
    assert gpus.count(lambda name: Driver()) == 3
    assert gpus.count(lambda name: Driver(started=100)) == 0
    assert gpus.count(lambda name: Driver(counted=3)) == 0
    assert gpus.count(missing) == 0


def test_cards_are_those_of_the_driver() -> None:
    assert gpus.cards(lambda name: Driver()) == ["GPU of 7", "GPU of 8", "GPU of 9"]
    assert gpus.cards(missing) == []


def test_gpus_have_the_names_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "count", lambda: 2)
    for given, expected in (("", ["0", "1"]), ("6,3", ["6", "3"]), ("5,GPU-a,9", ["5", "GPU-a"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert gpus.names() == expected
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert gpus.names() == ["0", "1"]


def test_without_torch_there_is_nothing_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError) as missing_torch:
        gpus.count(lambda name: Driver())
    assert missing_torch.value.name == "torch"


def test_a_device_may_be_made_by_a_name(tmp_path: Path) -> None:
    named = "tests.generator.fake_device:FakeDevice"
    with Local(named, 1, logs=tmp_path / "logs", locks=tmp_path) as evaluator:  # type: ignore[arg-type]
        reply = evaluator.submit(job(KERNELS[:1])).result(60)
    assert reply.results.keys() == {KERNELS[0].id}


def test_the_command_imports_nothing_slow_before_its_workers_start() -> None:
    slow = {"torch", "matplotlib", "sklearn", "scipy"}
    code = (
        f"import sys, hgemm_packs.generator.cli.search; sys.exit(bool({slow} & {{*sys.modules}}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
