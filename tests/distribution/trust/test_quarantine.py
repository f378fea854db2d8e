"""Kernels that were wrong stay out of later processes; whose records of it are read."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hgemm_packs import select, selftest
from hgemm_packs.pack.identity import identity
from tests import fake_driver, packs
from tests.cpu.conftest import driver_library as driver_library  # fixtures of the stand-in driver

KERNEL = fake_driver.entry("ptr_v1")


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
    assert "the record of failed kernels cannot be read: " in caplog.text


def test_other_files_are_no_records(tmp_path: Path) -> None:
    folder = tmp_path / "v1" / "quarantine"
    folder.mkdir(parents=True)
    for name in (".new-x", "README", "A" * 64 + ".json", "a" * 63 + ".json", "a" * 64):
        (folder / name).write_text("{}")
    assert selftest.read_quarantine(tmp_path) == {}
    assert selftest.read_quarantine(None) == {}
    assert selftest.read_quarantine(tmp_path / "none") == {}
