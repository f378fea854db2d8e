"""Files of a pack may fail at any time and in any way: matmul is right all the same."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from hgemm_packs import launcher, select
from hgemm_packs.errors import FallbackError
from hgemm_packs.pack import discover
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import KernelEntry
from tests import fake_driver, packs
from tests.cpu.call.served_packs import install, multiply, runnable, twins


def test_packs_that_cannot_be_looked_for(
    bare: fake_driver.Started,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only a RuntimeError was caught: what a network file system raised left matmul."""

    def fail() -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(discover, "find", fail)
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        for problem in (packs.WIN_SMALL, packs.CUBLAS):
            multiply(bare, problem)
    assert bare.fallbacks() == {"pack_refused": 2}
    (record,) = caplog.records
    assert "Stale file handle" in record.getMessage()
    launcher._extension().set_strict(True)
    with pytest.raises(FallbackError, match=r"pack_refused \(.*Stale file handle"):
        multiply(bare, packs.WIN_SMALL)


@pytest.mark.parametrize("error", [OSError(errno.ESTALE, "Stale file"), ValueError("odd")])
def test_a_pack_that_fails_in_a_way_of_its_own(
    bare: fake_driver.Started,
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is refused alone, with one warning."""
    good = packs.write_good(tmp_path / "good", runnable).path
    install(monkeypatch, tmp_path / "bad", good)
    real = Pack.open

    def fail(place: Path) -> Pack:
        if place != good:
            raise error
        return real(place)

    monkeypatch.setattr(Pack, "open", fail)
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        for _ in range(2):
            multiply(bare)
    assert launcher.counters()["hits"] == 2
    (record,) = caplog.records
    assert f"{tmp_path / 'bad'}: unreadable: {type(error).__name__}: {error}" in record.getMessage()


def test_a_cubin_that_cannot_be_read_is_torchs_to_multiply(
    bare: fake_driver.Started,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    image = Pack.image

    def stale(pack: Pack, entry: KernelEntry) -> memoryview:
        if entry.symbol == "k" and pack.manifest.pack.name == "of-64":
            raise OSError(errno.ESTALE, "Stale file handle")
        return image(pack, entry)

    monkeypatch.setattr(Pack, "image", stale)
    install(monkeypatch, *twins(tmp_path, 64, 16))
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        for tile in (64, 64, 16):
            multiply(bare, packs.Problem(64, 64, tile, "nn", "f16"))
    assert bare.fallbacks() == {"quarantined": 2} and launcher.counters()["hits"] == 1
    (record,) = caplog.records
    assert "kernel k is not used" in record.getMessage() and "Stale file" in record.getMessage()


def test_a_file_that_goes_stale_while_a_pack_is_opened(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that pack which is refused; the one behind it serves."""
    install(
        monkeypatch,
        packs.write_good(tmp_path / "stale", runnable).path,
        packs.write_good(tmp_path / "good", runnable).path,
    )
    fstat, bad = os.fstat, os.stat(tmp_path / "stale" / "kernels.bin")

    def stale(handle: int) -> os.stat_result:
        facts = fstat(handle)
        if os.path.samestat(facts, bad):
            raise OSError(errno.ESTALE, "Stale file handle")
        return facts

    monkeypatch.setattr(os, "fstat", stale)
    multiply(bare)
    assert launcher.counters()["hits"] == 1
    assert [refused.error.code for refused in select.found().refused] == ["unreadable"]
