"""matmul beside bad packs: right values whatever lies on the path, through the good pack if there
is one. Runs the real selection, loading and launcher on the stand-in driver.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
import torch

from hgemm_packs import launcher, select
from hgemm_packs.cache_folders import used_file
from hgemm_packs.generator.packer import write_pack
from hgemm_packs.manifest import MAPPED
from hgemm_packs.settings import settings
from tests import fake_driver, packs, reference
from tests.abuse.builder import edit
from tests.abuse.cases import CASES, Case


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_abusive_pack_beside_a_good_one(
    bare: fake_driver.Started, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = packs.write_good(tmp_path / "bad", runnable).path
    case.change(bad)
    install(monkeypatch, bad, packs.write_good(tmp_path / "good", runnable).path)
    multiply(bare)
    assert launcher.counters()["launches"] == 1
    assert [refused.error.code for refused in select.found().refused] == [case.code]


@pytest.mark.parametrize("case", CASES[::7], ids=lambda case: case.name)
def test_an_abusive_pack_alone(
    bare: fake_driver.Started, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = packs.write_good(tmp_path / "bad", runnable).path
    case.change(bad)
    install(monkeypatch, bad)
    multiply(bare)
    assert launcher.counters()["launches"] == 0
    assert launcher.counters()["fallbacks"] == 1


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


def test_a_cubin_that_changes_on_disk_is_quarantined(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = packs.write_good(tmp_path / "bad", runnable).path
    install(monkeypatch, pack)
    assert len(select.found().packs) == 1
    (pack / "kernels.bin").write_bytes(b"\0" * (pack / "kernels.bin").stat().st_size)
    multiply(bare)
    assert launcher.counters()["launches"] == 0
    assert select.resolve(packs.WIN_SMALL, 0, packs.H200).code == "quarantined"


def test_a_pack_for_another_device_is_not_used(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = packs.write_good(tmp_path / "other", runnable).path
    edit(pack, lambda document: document.update(arch="sm_80"))
    install(monkeypatch, pack)
    multiply(bare)
    assert launcher.counters()["launches"] == 0
    assert select.resolve(packs.WIN_SMALL, 0, packs.H200).code == "arch"
