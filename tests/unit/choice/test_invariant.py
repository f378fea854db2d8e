"""Which kernel the batch-invariant mode chooses, and from which it may."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import hgemm_packs
from hgemm_packs import report, select
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.pack import batch_invariant
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import Problem
from tests import packs

pytestmark = pytest.mark.usefixtures("clean_process")

SMALL, LARGE = Problem(16, 4096, 4096, "nn", "f16"), Problem(2048, 4096, 4096, "nn", "f16")
SPLIT, DIRECT = Problem(64, 512, 4096, "nn", "f16"), Problem(64, 64, 128, "nn", "f16")


def kernel(name: str, tile: tuple[int, int], family: str, **changes: Any) -> packs.FakeBuilt:
    grid = {"tile_m": tile[0], "tile_n": tile[1], "persistent": False}
    layout = changes.pop("param_layout", "tma2_v1")
    span = {"min": 8, "max": 16384, "multiple_of": 8}
    dims = {"m": {"min": 1, "max": 16384, "multiple_of": 1}, "n": span, "k": span}
    fields = {"cluster": [1, 1, 1], "dims": dims} | changes
    return packs.built(name, layout, family=family, grid=grid, **fields)


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> select.Pack:
    """Four kernels, each fastest of a row; two add up K in order."""
    kernels = [
        kernel("k_swapped", (16, 64), "sm90_swapab"),
        kernel("k_large", (128, 256), "sm90_wgmma"),
        kernel("k_split", (64, 64), "sm90_wgmma", cluster=[1, 1, 2]),
        kernel("k_direct", (64, 64), "sm90_direct", param_layout="ptr_v1"),
    ]
    rows = [
        packs.row(problem, each)
        for problem, each in zip((SMALL, LARGE, SPLIT, DIRECT), kernels, strict=True)
    ]
    rows[1] = rows[1]._replace(hot=rows[1].hot._replace(us=100.0, torch_us=120.0))
    source = packs.source(kernels, sorted(rows, key=lambda row: row.key))
    found = write_pack(tmp_path / "pack", source, kernels, generator_info=packs.GENERATOR)  # type: ignore[arg-type]
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(found.path))
    return found


def resolve(problem: Problem, **device: Any) -> select.Selection:
    return select.resolve(problem, 0, dataclasses.replace(packs.H200, **device), invariant=True)


def chosen(problem: Problem) -> str:
    found = resolve(problem).kernel
    assert found is not None
    return found.name


def test_families_say_what_the_runtime_takes() -> None:
    declared = {name for name, family in FAMILIES.items() if family.in_order}
    assert declared == batch_invariant.IN_ORDER


def test_the_order_is_that_of_the_launch_record(pack: select.Pack) -> None:
    """Of a family that adds up in order, CTAs along K or slices of K make another sum."""
    entry = next(each for each in pack.manifest.kernels if each.name == "k_large")
    assert batch_invariant.adds_in_order(entry)
    changed: list[KernelEntry] = [
        entry._replace(cluster=(1, 1, 2)),
        entry._replace(grid=entry.grid._replace(slices=2)),
        entry._replace(family="sm90_direct"),
        entry._replace(family="sm90_splitk"),
        entry._replace(epilogue="bias"),
    ]
    assert not any(map(batch_invariant.adds_in_order, changed))
    assert batch_invariant.adds_in_order(entry._replace(cluster=(2, 2, 1)))


@pytest.mark.parametrize("m", [1, 8, 16, 64, 100, 512, 2048, 4096])
def test_every_m_gets_a_kernel_that_adds_in_order(pack: select.Pack, m: int) -> None:
    """Whatever the row of the problem names: that of SPLIT and DIRECT split K."""
    for problem in (SMALL, LARGE, SPLIT, DIRECT):
        for n in (problem.n, 248):
            found = resolve(dataclasses.replace(problem, m=m, n=n))
            assert found.kernel is not None and batch_invariant.adds_in_order(found.kernel)
            assert found.dependent is None and found.pack is not None and found.code == "kernel"


def test_m_chooses_by_speed(pack: select.Pack) -> None:
    assert [chosen(dataclasses.replace(SMALL, m=m)) for m in (1, 16, 24)] == ["k_swapped"] * 3
    assert [chosen(dataclasses.replace(SMALL, m=m)) for m in (1500, 4096)] == ["k_large"] * 2
    own = resolve(SMALL)
    assert own.row is not None and own.row.key == SMALL.key
    assert resolve(dataclasses.replace(SMALL, m=17)).row is None


def test_times_nearby_are_carried_over(pack: select.Pack) -> None:
    """A row's time, by how much more the rule says the problem takes."""
    near = dataclasses.replace(LARGE, m=4096)
    found = {each.kernel.name: each for each in batch_invariant.rank(pack.manifest, near, 132)}
    large = found["k_large"]
    assert large.row is not None and large.row.key == LARGE.key
    ratio = large.us / large.row.hot.us
    assert 1.8 < ratio < 2.1  # 256 tiles are 2 waves, 512 are 4
    assert large.us < found["k_swapped"].us


def test_a_kernel_that_failed_is_not_chosen(pack: select.Pack) -> None:
    select.find_packs()
    manifest = select.find_packs().packs[0].manifest
    names = {each.name: each for each in manifest.kernels}
    select.quarantine(names["k_swapped"], "it failed")
    assert chosen(SMALL) == "k_large"
    select.quarantine(names["k_large"], "it failed, too")
    found = resolve(SMALL)
    assert found.kernel is None and found.code == "quarantined"


@pytest.mark.parametrize(
    ("problem", "device", "code"),
    [
        (dataclasses.replace(SMALL, layout="nt"), {}, "no_invariant_kernel"),
        (dataclasses.replace(SMALL, dtype="bf16", out_dtype="bf16"), {}, "no_invariant_kernel"),
        (dataclasses.replace(SMALL, k=32768), {}, "no_invariant_kernel"),
        (dataclasses.replace(SMALL, base=(8, 8, 8)), {}, "unaligned"),
        (dataclasses.replace(SMALL, packed=False), {}, "strided"),
        (SMALL, {"arch": "sm_100a"}, "arch"),
        (SMALL, {"driver": 12080}, "driver"),
    ],
)
def test_what_no_kernel_of_the_mode_takes(
    pack: select.Pack, problem: Problem, device: dict[str, Any], code: str
) -> None:
    found = resolve(problem, **device)
    assert (found.kernel, found.pack, found.row, found.code) == (None, None, None, code)


def test_another_card_of_the_architecture_is_served(pack: select.Pack) -> None:
    """Bits do not depend on it, and the mode claims no speed."""
    assert resolve(LARGE, name="NVIDIA H100", sm_count=114).code == "kernel"
    assert select.resolve(LARGE, 0, dataclasses.replace(packs.H200, name="NVIDIA H100")).code == (
        "profile"
    )


def test_a_kernel_that_no_row_names_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is chosen where no row nearby has a kernel of the mode."""
    split = kernel("k_split", (64, 64), "sm90_wgmma", cluster=[1, 1, 2])
    behind = kernel("k_behind", (64, 64), "sm90_wgmma")
    kernels, rows = [split, behind], [packs.row(SPLIT, split, dependent=behind)]
    source = packs.source(kernels, rows)
    made = write_pack(tmp_path / "pack", source, kernels, generator_info=packs.GENERATOR)  # type: ignore[arg-type]
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(made.path))
    assert chosen(SPLIT) == "k_behind"


def test_explain_names_the_kernel(pack: select.Pack) -> None:
    odd = dataclasses.replace(SMALL, m=17)
    with hgemm_packs.options(batch_invariant=True):
        said = report.explain_problem(odd, device=packs.H200).splitlines()
        assert said[2:] == [
            "runs on   k_swapped, batch-invariant",
            "          yes kernel: test-pack 1.0.0: k_swapped, one of 2 that add up K in order",
        ]
        unfit = dataclasses.replace(SMALL, layout="nt")
        said = report.explain_problem(unfit, device=packs.H200).splitlines()
        assert said[2:] == [
            "raises    InvariantError in the batch-invariant mode (no_invariant_kernel)",
            "          no  no_invariant_kernel: test-pack 1.0.0: no kernel that adds up K in order "
            "takes 16x4096x4096 nt f16",
        ]
    assert "runs on   torch (fallback: not_measured)" in report.explain_problem(
        odd, device=packs.H200
    )
