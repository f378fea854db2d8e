"""A kernel that disagrees with its launch record, with the device or with this launcher is refused
with its own words when it is loaded, and matmul goes on without it.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from hgemm_packs import launcher, report, select
from hgemm_packs.errors import FallbackError
from hgemm_packs.pack.identity import identity
from hgemm_packs.pack.manifest import GridRule
from hgemm_packs.problem import DeviceInfo
from tests import fake_driver, reference
from tests.fake_driver import Started

SIZES = (8, 8, 8, 4, 4, 4, 4, 4, 4)


def cubin(**changes: Any) -> bytes:
    return fake_driver.image("kernel", "ptr_v1", **changes)


# What is wrong, the cubin, the changed fields of the record, words of the refusal.
DISAGREEING: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "fewer parameters": (cubin(sizes=SIZES[:-1]), {}, "has 8 parameters, ptr_v1 has 9"),
    "more parameters": (cubin(sizes=(*SIZES, 4)), {}, "more parameters than the 9"),
    "wider parameter": (cubin(sizes=(8, 8, 8, 4, 8, 4, 4, 4, 4)), {}, "parameter 4 .* 8 bytes"),
    "too many threads": (cubin(threads=256), {"block": 384}, "384 threads, the cubin allows 256"),
    "too much memory": (cubin(static_smem=40000), {"smem_bytes": 200000}, "200000 . 40000 bytes"),
    "not a cubin": (b"\x7fELF no such thing\0", {}, "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE"),
    "another symbol": (cubin(), {"symbol": "other"}, "other: CUDA_ERROR_NOT_FOUND"),
}

# Records that no valid manifest holds: the launcher checks them again on its side.
IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "unknown layout": ({"param_layout": "ptr_v9"}, "ptr_v9 is not known"),
    "other sizes": ({"param_sizes": (8, 8, 8, 4, 4, 4, 4, 4, 8)}, "not those of ptr_v1"),
    "maps without need": ({"tma": fake_driver.entry("tma2_v1").tma}, "takes 0 tensor maps"),
    "no threads": ({"block": 0}, "positive"),
    "no cluster": ({"cluster": (1, 0, 1)}, "positive"),
    "no alignment": ({"align": (16, 0, 16)}, "positive"),
    "other storage": ({"layout": "nx"}, "layout nx"),
    "other type": ({"dtype": "f32"}, "dtype f32"),
    "no slices": ({"grid": GridRule(64, 32, False, 0)}, "positive"),
    "slices of no use": ({"grid": GridRule(64, 32, False, 2)}, "ptr_v1: 2 slices, 0 bytes"),
    "cooperative without slices": ({"cooperative": True}, "0 bytes of workspace, cooperative"),
    "a cluster of no size (defect 19)": ({"cluster": (1 << 16, 1 << 16, 1)}, "cluster of 65536x"),
    "a cluster that is too large": ({"cluster": (4, 4, 2)}, "cluster of 4x4x2 CTAs, 16 at most"),
    "workspace of no use": ({"workspace_bytes": 16}, "ptr_v1: 1 slices, 16 bytes"),
}


@pytest.mark.parametrize("name", DISAGREEING)
def test_a_disagreeing_cubin_is_refused(bare: Started, name: str) -> None:
    image, changes, words = DISAGREEING[name]
    with pytest.raises(RuntimeError, match=words):
        launcher.load(0, fake_driver.entry("ptr_v1", cubin=image, **changes), image)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_record_is_refused(bare: Started, name: str) -> None:
    changes, words = IMPOSSIBLE[name]
    with pytest.raises(ValueError, match=words):
        launcher.load(0, fake_driver.entry("ptr_v1")._replace(**changes), cubin())
    assert bare.control.loads == 0


def test_a_cluster_that_does_not_fit(bare: Started) -> None:
    bare.control.clusters = 0
    with pytest.raises(RuntimeError, match="no block of this kernel fits"):
        launcher.load(0, fake_driver.entry("ptr_v1", cluster=(4, 1, 1)), cubin())


def test_co_resident_blocks_are_asked_of_the_driver(bare: Started) -> None:
    bare.control.clusters = 31
    assert launcher.load(0, fake_driver.entry("ptr_v1"), cubin()).max_ctas == 2 * 132
    clustered = fake_driver.entry("ptr_v1", cluster=(2, 2, 1))
    assert launcher.load(0, clustered, cubin()).max_ctas == 31 * 4


@pytest.mark.parametrize("name", DISAGREEING)
def test_matmul_goes_on_without_it(
    fake: Started, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    image, changes, _ = DISAGREEING[name]
    fake.serve("ptr_v1", cubin=image, **changes)
    a, b = reference.cancelling(32, 32, 32, "nn", torch.float16)
    with caplog.at_level(logging.WARNING):
        for n in (32, 24, 32):
            reference.assert_exact(fake.matmul(a, b[:, :n].contiguous()), a, b[:, :n])
    assert fake.fallbacks() == {"quarantined": 3}
    assert len(caplog.records) == 1 and "is not used" in caplog.text
    assert list(select._quarantine) == [identity(fake.kernels["nn", "f16", "none"])]


def test_a_kernel_is_loaded_once(fake: Started) -> None:
    fake.serve("tma2_v1", "nn")
    for m in (8, 16, 24):
        a, b = reference.cancelling(m, 32, 32, "nn", torch.float16)
        reference.assert_exact(fake.matmul(a, b), a, b)
    launcher.reset_table()
    reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.control.loads == 1 and len(fake.asked) == 4
    # A load outside relaxed mode could spoil a graph capture in another thread.
    assert fake.control.unrelaxed_loads == 0 and fake.control.capture_mode == 0


def test_a_load_lets_go_of_the_gil(bare: Started) -> None:
    """A host callback that wants it, and for which the load waits, was a deadlock."""
    called = []
    callback = ctypes.CFUNCTYPE(None)(lambda: called.append(threading.get_ident()))
    bare.control.host_callback = ctypes.cast(callback, ctypes.c_void_p).value
    kernel = launcher.load(0, fake_driver.entry("ptr_v1"), cubin())
    assert kernel.max_ctas and len(called) == 1 and called != [threading.get_ident()]


def test_device_info(bare: Started) -> None:
    here = DeviceInfo("NVIDIA H200", "sm_90a", 132, 62914560, 13000, bus_id="00000000:1b:00.0")
    assert launcher.device_info(0) == here
    for index in (2, -1, 64, 1 << 40):
        with pytest.raises((RuntimeError, OverflowError)):
            launcher.device_info(index)


def test_a_driver_that_lacks_a_function(
    clean_process: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = fake_driver.compile_driver(tmp_path / "old.so", "-DcuFuncGetParamInfo=cuSomething")
    old = fake_driver.start(monkeypatch, library)
    with pytest.raises(RuntimeError, match=r"old\.so has no cuFuncGetParamInfo"):
        launcher.device_info(0)
    a, b = reference.cancelling(32, 32, 32, "nn", torch.float16)
    reference.assert_exact(old.matmul(a, b), a, b)
    assert old.fallbacks() == {"no_device": 1}


def test_words_where_the_driver_cannot_be_used(
    clean_process: None,
    monkeypatch: pytest.MonkeyPatch,
    driver_library: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # STRICT and explain raised the driver's RuntimeError themselves, naming no call.
    fake = fake_driver.start(monkeypatch, driver_library, driver="libno-such-driver.so.1")
    a, b = reference.cancelling(32, 32, 32, "nn", torch.float16)
    launcher._extension().set_strict(True)
    with pytest.raises(FallbackError, match=r"32x32x32 nn f16 .*no_device: .*libno-such-driver"):
        fake.matmul(a, b)
    real = report.explain_problem  # operands of the stand-in's device have no index
    monkeypatch.setattr(report, "explain_problem", lambda problem, index: real(problem, 0))
    report.explain(a, b)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "runs on   torch (fallback: no_device)" and "libno-such-driver" in said[1]


def test_no_driver_at_all(
    clean_process: None,
    monkeypatch: pytest.MonkeyPatch,
    driver_library: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = fake_driver.start(monkeypatch, driver_library, driver="libno-such-driver.so.1")
    a, b = reference.cancelling(32, 32, 32, "nn", torch.float16)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            reference.assert_exact(fake.matmul(a, b), a, b)
    assert fake.fallbacks() == {"no_device": 3}
    assert len(caplog.records) == 1 and "libno-such-driver.so.1" in caplog.text
