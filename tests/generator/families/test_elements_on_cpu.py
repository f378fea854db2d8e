"""Whole kernels of sm90_elements on a CPU: their own source with the kernel itself, by a host
compiler, CTAs of a cluster side by side, against double to the last bit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hgemm_packs.generator.families import Genome, computed
from tests.generator import host
from tests.generator.kernels import ELEMENTS

pytestmark = host.needs_compiler

#: One of each layout; warps and CTAs that share K, or none; tiles of one warp and of several.
WHOLE: list[Genome] = [
    {"layout": "nt"},
    {"layout": "nn", "mi": 2, "ni": 1, "warps_n": 2, "warps_k": 1, "unroll": 4},
    {"layout": "tn", "warps_m": 2, "warps_k": 4, "unroll": 1, "cluster_k": 2},
    {"layout": "tt", "ni": 1, "warps_k": 4, "unroll": 1, "cluster_k": 4},
    {"layout": "tn", "mi": 2, "ni": 8, "warps_m": 2, "warps_k": 1, "unroll": 1},
]


def count_wrong(
    folder: Path, genes: Genome, epilogue: str = "none", change: tuple[str, str] = ("", "")
) -> int:
    """Elements of C and beside it that are not what a product in float64 rounds to. A program that
    reads behind a matrix ends: memory is watched."""
    genome = computed.compute_also({**ELEMENTS, "dtype": "bf16", **genes}, epilogue)
    return host.count_wrong(
        *(folder, "sm90_elements", genome, '#include "products.h"', change),
        checks="-fsanitize=address",
        whole=True,
    )


@pytest.mark.parametrize("genes", WHOLE, ids=lambda genes: "-".join(map(str, genes.values())))
@pytest.mark.parametrize("epilogue", ["none", "residual"])
def test_whole_products_are_right_to_the_bit(genes: Genome, epilogue: str, tmp_path: Path) -> None:
    """Of odd sizes, at odd addresses, in rows with gaps; from one element up."""
    assert count_wrong(tmp_path, genes, epilogue) == 0


@pytest.mark.parametrize(
    "change",
    [
        ("a.pair(2 * i + w % 2, w / 2)", "a.pair(2 * i + w / 2, w % 2)"),
        ("rank * slice + warp_k * kStepK", "rank * slice"),
        ("min_of((int)(rank + 1) * slice, k)", "k"),
        ("ceil_div(k, kStepK * kRanks) * kStepK", "k / (kStepK * kRanks) * kStepK"),
        ("ceil_div(end - start, kWindow)", "(end - start) / kWindow"),
        ("round * kWindow + u * kStride", "round * kWindow + u * kStepK"),
        ("return sum_parts<kRanks, kWidth>", "return sum_parts<kRanks / 2, kWidth>"),
        ("rank * TileMeeting::kShare + at", "at"),
        ("kRanks > 1 ? blockIdx.x % kRanks : 0", "0"),
        ("kSumRow + j * 8, {", "kSumRow + j * 4, {"),
    ],
)
def test_a_kernel_that_is_wrong_is_seen(change: tuple[str, str], tmp_path: Path) -> None:
    genes: Genome = {"layout": "nt", "warps_k": 4, "unroll": 2, "cluster_k": 2}
    assert count_wrong(tmp_path, genes, change=change) > 10


@pytest.mark.parametrize(
    "change",
    [
        ("(u32)(u64)line >> 1 & 1", "0"),
        ("head && place == 0", "false"),
        ("min_of(columns, kTileN) - column", "kTileN - column"),
        ("row >= rows ? 0", "row > rows ? 0"),
        ("k + 4 * j, end", "k + 4 * j, end + 1"),
        ("min_of(first + 8 * i, rows - 1)", "min_of(first + 8 * i, rows)"),
        ("step *= 2", "step *= 4"),
        ("store_if(left == 1, line + column, (u16)both);", ""),
        ("HGP_RESIDUAL ? addend_stride : 0", "0"),
        ("addend + column, HGP_RESIDUAL", "addend, HGP_RESIDUAL"),
    ],
)
def test_an_element_that_is_wrong_is_seen(change: tuple[str, str], tmp_path: Path) -> None:
    """A program that reads or writes where it must not ends: memory is watched."""
    epilogue = "residual" if "HGP_RESIDUAL" in change[0] else "none"
    try:
        assert count_wrong(tmp_path, {"layout": "nt"}, epilogue, change) > 10
    except subprocess.CalledProcessError as error:
        assert error.cmd[0] == str(tmp_path / "sm90_elements"), "the compiler's own error"
