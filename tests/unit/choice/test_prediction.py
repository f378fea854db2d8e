"""Problems without a row: predicted where that is sure, and never in place of what was measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from hgemm_packs import select
from hgemm_packs.pack.features import NUMBERS, numbers_of
from hgemm_packs.problem import Problem
from tests import packs, predictions
from tests.abuse.builder import edit

pytestmark = pytest.mark.usefixtures("clean_process")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pack = predictions.write(tmp_path / "predicting")
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(pack.path))
    return pack.path


def resolve(m: int, n: int, k: int, **changes: object) -> select.Selection:
    problem = dataclasses.replace(Problem(m, n, k, "nn", "f16"), **changes)  # type: ignore[arg-type]
    return select.resolve(problem, 0, packs.H200)


@pytest.mark.parametrize(
    ("shape", "code", "expected"),
    [
        ((128, 128, 256), "predicted", 2.0),
        ((256, 128, 256), "predicted", 2.0),
        ((264, 128, 256), "not_measured", None),  # as long as torch
        ((128, 64, 256), "predicted", 4.0),  # doubted, and yet 2^0.5
        ((256, 512, 1024), "kernel", None),  # has a row
        ((512, 512, 512), "cublas_measured_better", None),  # has a row, too
        ((128, 132, 256), "unaligned", None),  # no multiple of 8: no candidate takes it
    ],
)
def test_who_runs_it(place: Path, shape: tuple[int, ...], code: str, expected: float) -> None:
    choice = resolve(*shape)
    assert choice.code == code
    assert choice.expected == (None if expected is None else pytest.approx(expected))
    if code == "predicted":
        assert choice.kernel is not None and choice.kernel.name == "k_tma2" and choice.row is None


def test_a_margin_above_the_doubted_gain_abstains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = predictions.write(tmp_path / "careful", margin=1.5)
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(pack.path))
    assert resolve(128, 128, 256).code == "predicted"
    doubted = resolve(128, 64, 256)
    assert doubted.code == "not_measured"
    assert doubted.reasons[-1].text == (
        "test-pack 1.0.0: a kernel is expected to take 4.000x torch's speed, surely 1.414x; "
        "it serves from 1.500x on"
    )


def test_first_trees_that_leave_no_hope_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Twelve trees have the kernel at e^6 of torch's time; the last one, by 7 and so by more than
    # trees do, at a third of it.
    ours = predictions.model(0.0, *[[(-1, 0.5, 0)]] * 12, [(-1, -7.0, 0)])
    pack = predictions.write(tmp_path / "hopeless", ours=ours)
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(pack.path))
    choice = resolve(128, 128, 256)
    assert choice.code == "not_measured"
    assert choice.reasons[-1].text == (
        "test-pack 1.0.0: a kernel is expected to take 2.718x torch's speed, surely 2.718x; "
        "it serves from 1.250x on, and also by the first trees alone"
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"packed": False}, "strided"),
        ({"base": (8, 16, 16)}, "unaligned"),
        ({"epilogue": "bias"}, "not_measured"),
    ],
)
def test_other_operands_are_not_predicted(
    place: Path, changes: dict[str, object], code: str
) -> None:
    assert resolve(128, 128, 256, **changes).code == code


def test_another_device_is_not_predicted(place: Path) -> None:
    problem = Problem(128, 128, 256, "nn", "f16")
    other = dataclasses.replace(packs.H200, name="NVIDIA H100 80GB HBM3")
    assert select.resolve(problem, 0, other).code == "profile"


def test_a_quarantined_kernel_is_not_predicted(place: Path) -> None:
    kernel = resolve(128, 128, 256).kernel
    assert kernel is not None
    select.quarantine(kernel, "it failed")
    assert resolve(128, 128, 256).code == "quarantined"


def test_a_damaged_predictor_takes_its_pack_out(place: Path) -> None:
    def spoil(document: dict[str, object]) -> None:
        document["predictors"][0]["ours"]["right"][0] = 0  # type: ignore[index]

    edit(place, spoil)
    assert resolve(256, 512, 1024).code == "kernel", "nobody has looked at it yet"
    assert resolve(128, 128, 256).code == "pack_refused"
    assert [each.error.code for each in select.find_packs().refused] == ["bad_predictor"]


def test_a_candidate_that_is_not_its_kernel_takes_its_pack_out(place: Path) -> None:
    def spoil(document: dict[str, object]) -> None:
        document["predictors"][0]["candidates"][0]["numbers"][1] = 256  # type: ignore[index]

    edit(place, spoil)
    assert resolve(128, 128, 256).code == "pack_refused"
    assert [each.error.code for each in select.find_packs().refused] == ["bad_candidate"]


@pytest.mark.parametrize(
    ("genome", "align", "tile_k", "copied"),
    [
        ({"tile_k": 128, "unroll": 8}, 16, 128, 0),
        ({"unroll": 8, "warps_k": 8}, 16, 2048, 0),  # 2560 of K take as long as 4096
        ({"unroll": 4, "warps_k": 8}, 2, 512, 0),
        ({"unroll": 2}, 16, 64, 0),
        ({"cp_async": True}, 16, 64, 1),
        ({"cp_async": False, "wide": True}, 2, 64, 1),
        ({"cp_async": False, "wide": False}, 16, 64, 0),
    ],
)
def test_numbers_say_the_k_in_flight_and_who_copies(
    genome: dict[str, int | str | bool], align: int, tile_k: int, copied: int
) -> None:
    """A kernel of one row lost a fifth to torch at K = 2560: of each CTA 2048 were in flight, where
    a candidate said 64. Kernels by cp.async looked like those by tensor maps."""
    grid = SimpleNamespace(tile_m=8, tile_n=32, persistent=False, slices=1)
    kernel = SimpleNamespace(
        family="sm90_simulated", genome=genome, grid=grid, cluster=(1, 1, 1), block=256
    )
    kernel.smem_bytes, kernel.align = 1024, (align, 16, 16)
    found = dict(zip(NUMBERS, numbers_of(kernel, ("sm90_simulated",)), strict=True))
    assert (found["tile_k"], found["wide"]) == (tile_k, copied)
    assert found["a_bytes"] == align and found["group"] == 1
