"""matmul beside bad packs: right values whatever lies on the path, through the good pack if there
is one. Runs the real selection, loading and launcher on the stand-in driver.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hgemm_packs import launcher, select
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.pack.cache_folders import used_file
from hgemm_packs.pack.manifest import WITH_ADDEND
from tests import fake_driver, packs
from tests.abuse.builder import edit
from tests.abuse.case import OPEN, USE, WHOLE, Case
from tests.abuse.cases import CASES
from tests.cpu.call.served_packs import install, multiply, refused, runnable, twins


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
@pytest.mark.parametrize("param_layout", WITH_ADDEND)
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
