"""HGEMM_PACKS_SELFTEST=1: a kernel that is wrong at its first use is never used again, by this
process or a later one.
"""

from __future__ import annotations

import contextlib
import logging
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
from tests import fake_driver, reference
from tests.cpu.conftest import driver_library as driver_library  # fixtures of the stand-in driver
from tests.fake_driver import Started


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
    return identity(fake.kernels["nn", "f16", "none"])


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

    def spoil(kernel: object, *abc: torch.Tensor, addend: torch.Tensor | None = None) -> None:
        launch(kernel, *abc)  # type: ignore[arg-type]
        abc[2].add_(fake.control.pdl)

    monkeypatch.setattr(launcher, "launch", spoil)
    a, b = reference.cancelling(64, 64, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"quarantined": 1} and fake.control.loads == 2
    known = selftest.read_quarantine(settings.settings().cache)
    assert list(known) == [identity(fake.kernels["nn", "f16", "none"])]


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

    def spoil(kernel: object, *abc: torch.Tensor, addend: torch.Tensor | None = None) -> None:
        launch(kernel, *abc)  # type: ignore[arg-type]
        abc[2][-1, -1] += 64

    monkeypatch.setattr(launcher, "launch", spoil)
    a, b = reference.cancelling(40, 32, 64, "nn", torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"quarantined": 1}
    (reason,) = selftest.read_quarantine(settings.settings().cache).values()
    assert reason.endswith(": 1 of 1280 values differ, by up to 64")


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
    assert "the failure cannot be recorded" in caplog.text


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
