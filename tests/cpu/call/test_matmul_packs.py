"""matmul beside bad packs: right values whatever lies on the path, through the good pack if there
is one. Runs the real selection, loading and launcher on the stand-in driver.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from hgemm_packs import launcher, select
from hgemm_packs.errors import FallbackError
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.pack import discover
from hgemm_packs.pack.cache_folders import used_file
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import MAPPED, KernelEntry, PackInfo
from hgemm_packs.settings import settings
from tests import fake_driver, packs, reference
from tests.abuse.builder import edit
from tests.abuse.cases import CASES, OPEN, USE, WHOLE, Case


def runnable(name: str, param_layout: str) -> bytes:
    return fake_driver.image(name, param_layout)


def multiply(fake: fake_driver.Started, problem: packs.Problem = packs.WIN_SMALL) -> None:
    """One call with the values that it must give."""
    p = problem
    a, b = reference.cancelling(p.m, p.n, p.k, p.layout, torch.float16)
    reference.assert_exact(fake.matmul(a, b), a, b)


def install(patch: pytest.MonkeyPatch, *places: Path) -> None:
    patch.setenv("HGEMM_PACKS_PATH", os.pathsep.join(map(str, places)))
    settings.cache_clear()  # starting the launcher has read it


@pytest.mark.parametrize("problem", [packs.WIN, packs.WIN_SMALL], ids=str)
def test_a_pack_from_disk_runs(
    bare: fake_driver.Started,
    problem: packs.Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, packs.write_good(tmp_path / "good", runnable).path)
    multiply(bare, problem)
    multiply(bare, problem)
    assert launcher.counters() == {"hits": 2, "launches": 2, "fallbacks": 0}
    assert bare.control.loads == 1
    multiply(bare, packs.CUBLAS)
    assert bare.fallbacks() == {"cublas_measured_better": 1}


def test_a_cached_pack_is_noted_as_used(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gc` goes by last use: that of a kernel, not that of the fetch."""
    written = packs.write_good(tmp_path / "good", runnable)
    cached = tmp_path / "packs" / written.manifest_sha256
    for folder in (cached.parent, used_file(cached).parent):
        folder.mkdir()
    written.path.rename(cached)
    install(monkeypatch, cached)
    assert not used_file(cached).exists()
    multiply(bare)
    assert used_file(cached).exists()


def test_one_kernel_from_disk_is_launched_as_each_row_says(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = packs.built("k", "tma2_v1", cubin=runnable("k", "tma2_v1"))
    rows = [packs.row(packs.WIN, kernel), packs.row(packs.WIN_SMALL, kernel, dependent=kernel)]
    source = packs.source([kernel], rows)
    pack = write_pack(tmp_path / "one", source, [kernel], generator_info=packs.GENERATOR)  # type: ignore[list-item]
    install(monkeypatch, pack.path)
    for problem in (packs.WIN, packs.WIN_SMALL):
        multiply(bare, problem)  # loads
    bare.capture(7)
    for problem, pdl in (
        (packs.WIN, 0),
        (packs.WIN_SMALL, 1),
        (packs.WIN, 0),
        (packs.WIN_SMALL, 1),
    ):
        multiply(bare, problem)
        assert bare.control.pdl == pdl
    assert bare.control.loads == 2 and launcher.counters()["hits"] == 6


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("param_layout", MAPPED)
def test_every_layout_from_disk(
    bare: fake_driver.Started,
    layout: str,
    param_layout: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Operands stored as matmul(a.t(), b) finds them; the other three layouts are torch's."""
    problem = packs.Problem(72, 40, 96, layout, "f16")
    cubin = fake_driver.image("k", param_layout, layout)
    kernel = packs.built("k", param_layout, layout=layout, cubin=cubin)
    source = packs.source([kernel], [packs.row(problem, kernel)])
    pack = write_pack(tmp_path / "one", source, [kernel], generator_info=packs.GENERATOR)
    install(monkeypatch, pack.path)
    for each in ("nn", "nt", "tn", "tt"):
        multiply(bare, packs.Problem(72, 40, 96, each, "f16"))
    assert launcher.counters()["hits"] == 1
    assert bare.fallbacks() == {"not_measured": 3}
    slices = 4 if param_layout == "tma2_ws_v2" else 1
    assert bare.control.grid == 2 * slices  # one tile of 128 x 64, up to the cluster of two


def refused() -> list[str]:
    return [each.error.code for each in select.find_packs().refused]


def seen_as_said(case: Case) -> bool:
    """One product does not use all that the cases spoil; tests/abuse does."""
    code = case.used or case.code
    return refused() in {OPEN: ([code],), USE: ([code], []), WHOLE: ([],)}[case.seen]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_abusive_pack_beside_a_good_one(
    bare: fake_driver.Started, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = packs.write_good(tmp_path / "bad", runnable).path
    case.change(bad)
    install(monkeypatch, bad, packs.write_good(tmp_path / "good", runnable).path)
    multiply(bare)
    assert launcher.counters()["launches"] == 1
    assert seen_as_said(case)


@pytest.mark.parametrize("case", CASES[::7], ids=lambda case: case.name)
def test_an_abusive_pack_alone(
    bare: fake_driver.Started, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = packs.write_good(tmp_path / "bad", runnable).path
    case.change(bad)
    install(monkeypatch, bad)
    multiply(bare)
    counters = launcher.counters()
    assert counters["launches"] + counters["fallbacks"] == 1
    assert counters["launches"] == 0 or not refused()
    assert seen_as_said(case)


def other_sizes(name: str, param_layout: str) -> bytes:
    """A cubin whose parameters are not those of its launch record."""
    return fake_driver.image(name, param_layout, sizes=[8] * 9)


def other_symbol(name: str, param_layout: str) -> bytes:
    return fake_driver.image("another", param_layout)


def other_limit(name: str, param_layout: str) -> bytes:
    """A kernel that cannot have as many threads as its launch record gives it."""
    return fake_driver.image(name, param_layout, threads=128)


def noise(name: str, param_layout: str) -> bytes:
    return packs.fake_cubin(name, 300)


@pytest.mark.parametrize(
    "make", [other_sizes, other_symbol, other_limit, noise], ids=lambda make: make.__name__
)
def test_a_cubin_that_belies_its_record_is_quarantined(
    bare: fake_driver.Started,
    make: packs.CubinMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every hash is right, so only loading can tell; the pack behind it is then asked."""
    bad = packs.write_good(tmp_path / "bad", make).path
    install(monkeypatch, bad, packs.write_good(tmp_path / "good", runnable).path)
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        multiply(bare)
        multiply(bare)
    assert launcher.counters()["launches"] == 2
    assert len(caplog.records) == 1 and "k_direct is not used" in caplog.text
    choice = select.resolve(packs.WIN_SMALL, 0, packs.H200)
    assert [reason.code for reason in choice.reasons] == ["quarantined", "kernel"]


def twins(place: Path, *tiles: int) -> list[Path]:
    """Packs of one cubin each, all the same one, with tiles of these sizes in its record."""
    cubin = runnable("k", "tma2_v1")
    made = []
    for tile in tiles:
        grid = {"tile_m": tile, "tile_n": tile, "persistent": False}
        changes: dict[str, Any] = {"cubin": cubin, "grid": grid, "cluster": [1, 1, 1]}
        kernel = packs.built("k", "tma2_v1", **changes)
        info = PackInfo(f"of-{tile}", "1.0.0", "Apache-2.0", "2026-11-20T00:00:00Z")
        problem = packs.Problem(64, 64, tile, "nn", "f16")
        source = packs.source([kernel], [packs.row(problem, kernel)], pack=info)
        folder = place / str(tile)
        made.append(write_pack(folder, source, [kernel], generator_info=packs.GENERATOR).path)
    return made


def test_defect_04_each_pack_launches_a_cubin_by_its_own_record(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept by the cubin alone the second went by the first one's tiles: 1 CTA instead of 16."""
    install(monkeypatch, *twins(tmp_path, 64, 16))
    for tile, ctas in ((64, 1), (16, 16), (64, 1)):
        multiply(bare, packs.Problem(64, 64, tile, "nn", "f16"))
        assert bare.control.grid == ctas
    assert bare.control.loads == 2 and launcher.counters()["hits"] == 3


def test_defect_04_a_record_that_does_not_load_leaves_the_cubin_to_others(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = twins(tmp_path, 64, 16)
    edit(bad, lambda document: document["kernels"][0].update(symbol="another"))
    install(monkeypatch, bad, good)
    for tile in (64, 16):
        multiply(bare, packs.Problem(64, 64, tile, "nn", "f16"))
    assert bare.fallbacks() == {"quarantined": 1} and launcher.counters()["hits"] == 1


def test_a_cubin_that_changes_on_disk_has_its_pack_refused(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = packs.write_good(tmp_path / "bad", runnable).path
    install(monkeypatch, pack)
    assert len(select.find_packs().packs) == 1
    (pack / "kernels.bin").write_bytes(b"\0" * (pack / "kernels.bin").stat().st_size)
    multiply(bare)
    assert launcher.counters()["launches"] == 0 and refused() == ["kernel_hash"]
    assert select.resolve(packs.WIN_SMALL, 0, packs.H200).code == "pack_refused"


def test_a_pack_for_another_device_is_not_used(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, packs.write_good(tmp_path / "other", runnable, arch="sm_80").path)
    multiply(bare)
    assert launcher.counters()["launches"] == 0
    assert select.resolve(packs.WIN_SMALL, 0, packs.H200).code == "arch"


# --- a pack's files may fail at any time, and in any way


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
    assert [refused.error.code for refused in select.find_packs().refused] == ["unreadable"]
