"""HGEMM_PACKS_SELFTEST=1: a kernel that is wrong at its first use is never used again, by this
process or a later one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from hgemm_packs import launcher, select, selftest, settings
from hgemm_packs.pack.identity import identity
from tests import fake_driver, packs, reference
from tests.cpu.conftest import driver_library as driver_library  # fixtures of the stand-in driver
from tests.fake_driver import Started

KERNEL = fake_driver.entry("ptr_v1")


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
    assert selftest.read_quarantine(settings.settings().cache) == {}


def wrong_kernel(fake: Started) -> str:
    """A kernel that multiplies by the transpose of B; returns its identity."""
    fake.serve("ptr_v1", "nn", cubin=fake_driver.image("kernel", "ptr_v1", "nt"))
    return identity(fake.kernels["nn", "f16"])


def test_a_wrong_kernel_is_quarantined(fake: Started, caplog: pytest.LogCaptureFixture) -> None:
    kernel = wrong_kernel(fake)
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"quarantined": 2}
    assert fake.control.launches == 1
    (record,) = caplog.records
    assert "64x64x64" in record.getMessage() and "of 4096 values differ" in record.getMessage()
    written = selftest.read_quarantine(settings.settings().cache)
    assert list(written) == [kernel] and "of 4096 values differ" in written[kernel]


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
    assert list(selftest.read_quarantine(settings.settings().cache)) == [identity(wrong)]


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
    known = selftest.read_quarantine(settings.settings().cache)
    assert list(known) == [identity(fake.kernels["nn", "f16"])]


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
    (reason,) = selftest.read_quarantine(settings.settings().cache).values()
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
    assert selftest.read_quarantine(settings.settings().cache) == {}


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


# --- what the caller has set in torch is not the kernel's fault


class Zeros(TorchFunctionMode):
    """Every function of torch returns zeros."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        return torch.zeros_like(result) if isinstance(result, torch.Tensor) else result


class OnMeta(contextlib.AbstractContextManager[None]):
    """The default device is one without memory."""

    def __enter__(self) -> None:
        torch.set_default_device("meta")

    def __exit__(self, *raised: object) -> None:
        torch.set_default_device(None)


STATES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "fake tensors": lambda: FakeTensorMode(allow_non_fake_inputs=True),
    "function mode": Zeros,
    "inference mode": torch.inference_mode,
    "default device": OnMeta,
    "dual numbers": forward_ad.dual_level,
}


@pytest.mark.parametrize("state", STATES)
def test_defect_05_first_use_in_any_state_of_torch(
    fake: Started, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A right kernel was banned on disk for good, or the call raised what was not its own."""
    fake.serve("ptr_v1")
    a, b = reference.normal(64, 64, 64, "nn", torch.float16)
    with STATES[state]():
        fake.matmul(a, b)
    assert selftest.read_quarantine(settings.settings().cache) == {} and not caplog.records
    reference.assert_product(fake.matmul(a, b), a, b)
    assert launcher.counters()["hits"] >= 1 and "quarantined" not in fake.fallbacks()


def test_defect_05_the_self_test_is_not_counted(fake: Started) -> None:
    fake.serve("ptr_v1")
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    with FlopCounterMode(display=False) as counter:
        fake.matmul(a, b)
    assert counter.get_total_flops() == 2 * 64**3
    assert fake.control.launches == 1, "the test itself; the call was torch's"


def test_defect_05_captures_do_not_restrict_the_thread_of_the_self_test(
    fake: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How a thread takes captures of others is its own; the memory was asked for in another one."""
    fake.serve("ptr_v1")
    seen: list[tuple[str, int]] = []
    relaxed, prove = launcher._C.relaxed, selftest.prove

    def note(name: str) -> None:
        seen.append((name, threading.get_ident()))

    monkeypatch.setattr(launcher._C, "relaxed", lambda work: (note("relaxed"), relaxed(work))[1])
    monkeypatch.setattr(selftest, "prove", lambda *args: (note("prove"), prove(*args)))
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    (first, its_thread), (second, the_same) = seen
    assert (first, second) == ("relaxed", "prove")
    assert its_thread == the_same != threading.get_ident()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_defect_05_an_interrupt_reaches_the_caller(
    fake: Started, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    fake.serve("ptr_v1")
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)

    def interrupted(*args: object) -> None:
        raise kind("now")

    with monkeypatch.context() as patch:
        patch.setattr(selftest, "prove", interrupted)
        with pytest.raises(kind, match="now"):
            fake.matmul(a, b)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert launcher.counters()["hits"] == 1 and fake.fallbacks() == {}


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
    selftest.keep_out(cache, kernel, "7 of 9 values differ")
    out = later_process()
    assert out.startswith("quarantined ") and "7 of 9 values differ" in out
    (cache / "v1" / "quarantine" / f"{identity(kernel)}.json").unlink()
    assert later_process().startswith("kernel ")


def test_defect_04_a_record_of_an_earlier_version_is_of_every_kernel_of_its_cubin(
    clean_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = packs.write_good(tmp_path / "pack")
    (row,) = (row for row in pack.manifest.table if row.key == packs.WIN.key)
    folder = tmp_path / "cache" / "v1" / "quarantine"
    folder.mkdir(mode=0o700, parents=True)
    (folder / f"{row.kernel}.json").write_text('{"reason": "as 0.1.0 wrote it"}')
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(pack.path))
    choice = select.resolve(packs.WIN, 0, packs.H200)
    assert choice.code == "quarantined" and "as 0.1.0 wrote it" in choice.reasons[0].text
    assert select.resolve(packs.WIN_SMALL, 0, packs.H200).code == "kernel"


def test_the_record(tmp_path: Path) -> None:
    selftest.keep_out(tmp_path, KERNEL, "wrong")
    path = tmp_path / "v1" / "quarantine" / f"{identity(KERNEL)}.json"
    assert json.loads(path.read_bytes()) == {"reason": "wrong"}
    assert path.stat().st_mode & 0o777 == 0o600
    assert selftest.read_quarantine(tmp_path) == {identity(KERNEL): "wrong"}


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"reason": 3}', b'{"reason": "\\n"}', b"x" * 9999]
)
def test_a_damaged_record_keeps_the_kernel_out(tmp_path: Path, content: bytes) -> None:
    path = a_record(tmp_path)
    path.write_bytes(content)
    assert unread(tmp_path, path)


def a_record(root: Path) -> Path:
    selftest.keep_out(root, KERNEL, "wrong")
    return root / "v1" / "quarantine" / f"{identity(KERNEL)}.json"


def unread(root: Path, path: Path) -> bool:
    """Whether this record keeps its kernel out, and nothing in it is believed."""
    known = selftest.read_quarantine(root)
    return list(known) == [path.stem] and known[path.stem].startswith(f"{path} says so, unread: ")


def test_defect_11_a_fifo_for_a_record_hangs_nothing(tmp_path: Path) -> None:
    path = a_record(tmp_path)
    path.unlink()
    os.mkfifo(path)
    assert unread(tmp_path, path)


def _others_write_the_folder(path: Path) -> None:
    path.parent.chmod(0o777)


def _others_write_the_file(path: Path) -> None:
    path.chmod(0o666)


def _a_link_to_the_file(path: Path) -> None:
    path.symlink_to(path.rename(path.with_name("elsewhere")))


def _a_link_to_the_folder(path: Path) -> None:
    path.parent.symlink_to(path.parent.rename(path.parent.with_name("elsewhere")))


@pytest.mark.parametrize(
    "change",
    [
        *(_others_write_the_folder, _others_write_the_file),
        *(_a_link_to_the_file, _a_link_to_the_folder),
    ],
)
def test_defect_11_what_others_may_have_written_is_not_read(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """As a receipt. Its kernel stays out: to let one in is worse than to keep one out."""
    path = a_record(tmp_path)
    change(path)
    assert unread(tmp_path, path)


def test_defect_11_a_folder_of_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_record(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert unread(tmp_path, path)


def test_a_quarantine_that_cannot_be_listed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a_record(tmp_path)

    def stale(path: Path) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path, "iterdir", stale)
    assert selftest.read_quarantine(tmp_path) == {}
    assert "which kernels failed before is not known: " in caplog.text


def test_other_files_are_no_records(tmp_path: Path) -> None:
    folder = tmp_path / "v1" / "quarantine"
    folder.mkdir(parents=True)
    for name in (".new-x", "README", "A" * 64 + ".json", "a" * 63 + ".json", "a" * 64):
        (folder / name).write_text("{}")
    assert selftest.read_quarantine(tmp_path) == {}
    assert selftest.read_quarantine(None) == {}
    assert selftest.read_quarantine(tmp_path / "none") == {}
