"""Packs that the stand-in driver runs, and a call that they serve."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from hgemm_packs import select
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.pack.manifest import PackInfo
from hgemm_packs.settings import settings
from tests import fake_driver, packs, reference


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


def refused() -> list[str]:
    return [each.error.code for each in select.found().refused]


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
