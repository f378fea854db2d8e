"""HGEMM_PACKS_SELFTEST=1: a kernel that is wrong at its first use is never used again, by this
process or a later one.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hgemm_packs import launcher, select, selftest, settings
from tests import fake_driver, packs, reference
from tests.cpu.conftest import driver_library as driver_library  # fixtures of the stand-in driver
from tests.fake_driver import Started

ID = "a" * 64


@pytest.fixture
def fake(
    clean_process: None, monkeypatch: pytest.MonkeyPatch, driver_library: Path, tmp_path: Path
) -> Started:
    """A started launcher that tests itself, on a cache at tmp_path/cache."""
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HGEMM_PACKS_SELFTEST", "1")
    settings.settings.cache_clear()
    started = fake_driver.start(monkeypatch, driver_library)
    monkeypatch.setattr(select, "resolve", started.resolve)
    return started


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("param_layout", ["ptr_v1", "tma3_v1", "tma2_ws_v2"])
def test_a_right_kernel_passes(fake: Started, param_layout: str, layout: str, dtype: str) -> None:
    fake.serve(param_layout, layout, dtype)
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    a, b = reference.cancelling(72, 48, 200, layout, kind)
    for _ in range(2):
        reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {}
    assert fake.control.launches == 3, "the test itself, once, and two calls"
    assert selftest.quarantined(settings.settings().cache) == {}


def wrong_kernel(fake: Started) -> str:
    """A kernel that multiplies by the transpose of B; returns its id."""
    fake.serve("ptr_v1", "nn", cubin=fake_driver.image("kernel", "ptr_v1", "nt"))
    return fake.kernels["nn", "f16"].id


def test_a_wrong_kernel_is_quarantined(fake: Started, caplog: pytest.LogCaptureFixture) -> None:
    kernel_id = wrong_kernel(fake)
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"quarantined": 2}
    assert fake.control.launches == 1
    (record,) = caplog.records
    assert "64x64x64" in record.getMessage() and "of 4096 values differ" in record.getMessage()
    written = selftest.quarantined(settings.settings().cache)
    assert list(written) == [kernel_id] and "of 4096 values differ" in written[kernel_id]


def test_a_wrong_kernel_for_dependent_launches(fake: Started) -> None:
    """It goes; the row's own, which is right, stays."""
    fake.serve("ptr_v1")
    wrong = fake.serve_behind("ptr_v1", cubin=fake_driver.image("behind", "ptr_v1", "nt"))
    fake.dependent = lambda problem: True
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    for number in (0, 7, 7):
        fake.capture(number)
        reference.assert_exact(fake.matmul(a, b), a, b)
        assert fake.control.pdl == 0
    assert fake.fallbacks() == {} and fake.control.launches == 2 + 3
    assert list(selftest.quarantined(settings.settings().cache)) == [wrong.id]


def test_a_kernel_that_is_wrong_when_launched_dependent(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave right values plainly; no later process would use it, so this one does not either."""
    fake.serve("ptr_v1")
    fake.dependent = lambda problem: True
    launch = launcher.launch

    def spoil(kernel: object, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        launch(kernel, a, b, out)  # type: ignore[arg-type]
        out += fake.control.pdl

    monkeypatch.setattr(launcher, "launch", spoil)
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"quarantined": 1} and fake.control.loads == 2
    known = selftest.quarantined(settings.settings().cache)
    assert list(known) == [fake.kernels["nn", "f16"].id]


def test_a_kernel_that_writes_nothing_fails(fake: Started) -> None:
    """What it should have written is NaN before, so that yesterday's right result cannot pass."""
    fake.serve("ptr_v1")
    fake.control.noop = 1
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"quarantined": 1}


def test_one_wrong_value_is_seen(fake: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the last row of many, beyond the first block that is compared."""
    fake.serve("ptr_v1")
    monkeypatch.setattr(selftest, "ROWS", 16)
    launch = launcher.launch

    def spoil(kernel: object, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        launch(kernel, a, b, out)  # type: ignore[arg-type]
        out[-1, -1] += 1

    monkeypatch.setattr(launcher, "launch", spoil)
    a, b = reference.cancelling(40, 32, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"quarantined": 1}
    (reason,) = selftest.quarantined(settings.settings().cache).values()
    assert ": 1 of 1280 values differ, by up to 1" in reason


def test_without_the_setting_nothing_is_tested(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HGEMM_PACKS_SELFTEST")
    settings.settings.cache_clear()
    fake.serve("ptr_v1")
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.control.launches == 1


def test_a_case_that_cannot_run_is_no_verdict_for_others(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.serve("ptr_v1")
    fake.control.fail_launches = 1
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"quarantined": 1}
    assert selftest.quarantined(settings.settings().cache) == {}


def test_the_random_state_of_the_user_stays(fake: Started) -> None:
    fake.serve("ptr_v1")
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    before = torch.random.get_rng_state()
    fake.matmul(a, b)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_cache_that_cannot_be_written(
    fake: Started, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong_kernel(fake)
    (tmp_path / "cache").write_text("a file is in the way")
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    with caplog.at_level(logging.WARNING):
        reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"quarantined": 1}
    assert "no later process will know" in caplog.text


# --- what later processes see


def test_the_quarantine_holds_in_later_processes(tmp_path: Path) -> None:
    pack = packs.write_good(tmp_path / "pack")
    kernel = next(each for each in pack.manifest.kernels if each.name == "k_tma2")
    program = (
        "from hgemm_packs import select\n"
        "from tests import packs\n"
        "choice = select.resolve(packs.WIN, 0, packs.H200)\n"
        "print(choice.code, choice.reasons[-1].text)\n"
    )
    cache = tmp_path / "cache"
    env = os.environ | {"HGEMM_PACKS_PATH": str(pack.path), "HGEMM_PACKS_CACHE": str(cache)}

    def later_process() -> str:
        run = [sys.executable, "-c", program]
        return subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout

    assert later_process().startswith("kernel ")
    selftest.keep_out(cache, kernel.id, "7 of 9 values differ")
    out = later_process()
    assert out.startswith("quarantined ") and "7 of 9 values differ" in out
    (cache / "v1" / "quarantine" / f"{kernel.id}.json").unlink()
    assert later_process().startswith("kernel ")


def test_the_record(tmp_path: Path) -> None:
    selftest.keep_out(tmp_path, ID, "wrong")
    path = tmp_path / "v1" / "quarantine" / f"{ID}.json"
    assert json.loads(path.read_bytes()) == {"reason": "wrong"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert selftest.quarantined(tmp_path) == {ID: "wrong"}


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"reason": 3}', b'{"reason": "\\n"}', b"x" * 9999]
)
def test_a_damaged_record_keeps_the_kernel_out(tmp_path: Path, content: bytes) -> None:
    selftest.keep_out(tmp_path, ID, "wrong")
    path = tmp_path / "v1" / "quarantine" / f"{ID}.json"
    path.write_bytes(content)
    assert selftest.quarantined(tmp_path) == {ID: f"{path} says so, unreadably"}


def test_other_files_are_no_records(tmp_path: Path) -> None:
    folder = tmp_path / "v1" / "quarantine"
    folder.mkdir(parents=True)
    for name in (".new-x", "README", "A" * 64 + ".json", "a" * 63 + ".json", ID):
        (folder / name).write_text("{}")
    assert selftest.quarantined(tmp_path) == {}
    assert selftest.quarantined(None) == {}
    assert selftest.quarantined(tmp_path / "none") == {}
