"""The tables of several cards as one pack: each keeps its rows, a kernel is there once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.compiler import Built
from hgemm_packs.generator.compile.pack_writer import (
    SourceManifest,
    read_source,
    write_source,
)
from hgemm_packs.generator.compile.unite import build_united, unite_sources
from hgemm_packs.pack.manifest import DeviceProfile
from hgemm_packs.problem import Problem
from tests import packs
from tests.generator.kernels import DIRECT, WGMMA, Job
from tests.packs import H200

QUICK: Job = ("sm90_direct", DIRECT)
PRODUCTS: Job = ("sm90_wgmma", WGMMA)
SMALL, LARGE = (
    Problem(m, 4096, 4096, str(DIRECT["layout"]), str(DIRECT["dtype"])) for m in (64, 4096)
)
OTHER = DeviceProfile("NVIDIA H100 80GB HBM3", 132, 50 << 20, 3350.0)


@pytest.fixture(scope="module")
def built() -> list[Built]:
    return [compiler.build_one(*job) for job in (QUICK, PRODUCTS)]


def h200(built: list[Built]) -> SourceManifest:
    rows = [packs.row(SMALL, built[0]), packs.row(LARGE, None)]  # type: ignore[arg-type]
    return packs.source(built, rows)  # type: ignore[arg-type]


def h100(built: list[Built]) -> SourceManifest:
    """A table with a kernel of both and a row of the same problem."""
    row = packs.row(SMALL, built[0], lcb=1.02)._replace(profile=OTHER.name)  # type: ignore[arg-type]
    made = packs.source(built[:1], [])  # type: ignore[arg-type]
    policy = made.policy._replace(noise_floor=0.01)
    return replace(made, device_profiles=(OTHER,), table=(row,), policy=policy, launcher_abi=6)


def test_both_tables_are_whole_and_kernels_are_there_once(built: list[Built]) -> None:
    one, two = h200(built), h100(built)
    united = unite_sources([two, one])
    assert [each.name for each in united.device_profiles] == [H200.name, OTHER.name]
    assert set(united.table) == {*one.table, *two.table}
    assert sorted(kernel.id for kernel in united.kernels) == sorted(k.id for k in one.kernels)
    assert united.policy.noise_floor == 0.01, "what clears more clears less"
    assert all(united.policy.clears(row) for row in united.table if row.kernel)
    assert united.launcher_abi == max(one.launcher_abi, 6)
    assert (united.pack, united.baseline) == (one.pack, one.baseline)


def test_one_pack_has_the_rows_of_both_cards(built: list[Built], tmp_path: Path) -> None:
    places = [tmp_path / "h100.json", tmp_path / "h200.json"]
    for place, source in zip(places, (h100(built), h200(built)), strict=True):
        write_source(place, source)
    pack = build_united(places, tmp_path / "pack", jobs=1)
    pack.verify()
    table = {(row.profile, Problem(*row.key)): row for row in pack.manifest.table}
    quick = built[0].entry_fields["id"]
    assert {key: row.kernel for key, row in table.items()} == {
        (H200.name, SMALL): quick,
        (H200.name, LARGE): None,
        (OTHER.name, SMALL): quick,
    }
    assert table[OTHER.name, SMALL].hot.lcb == 1.02
    assert len(pack.manifest.kernels) == 2
    alone = build_united(places[1:], tmp_path / "alone", jobs=1)
    assert {row.profile for row in alone.manifest.table} == {H200.name}
    assert read_source(places[1]).table == h200(built).table


def test_tables_that_do_not_go_together_are_refused(built: list[Built]) -> None:
    one, two = h200(built), h100(built)
    with pytest.raises(PackError, match=f"several documents have rows of {H200.name}"):
        unite_sources([one, one])
    baseline = two.baseline._replace(torch="2.12.0")
    with pytest.raises(PackError, match=r"torch of NVIDIA H200 and NVIDIA H100 .*'2.12.0'"):
        unite_sources([one, replace(two, baseline=baseline)])
    tools = two.toolchain._replace(nvrtc="13.1.0")
    with pytest.raises(PackError, match="toolchain of NVIDIA H200 and NVIDIA H100"):
        unite_sources([one, replace(two, toolchain=tools)])
    driver = replace(two, baseline=two.baseline._replace(driver="590.1"))
    assert unite_sources([one, driver]).baseline == one.baseline
