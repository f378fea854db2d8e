"""Tiles of tokens that are fitted to a problem: counted by hand, against every other size, and
against the kernels that a first run on an H200 ended with."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.core import token_tiles
from hgemm_packs.generator.core.space import FITTED, Space, admits
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.core.token_tiles import Way, fit_tokens, token_designs
from hgemm_packs.generator.families import family
from hgemm_packs.problem import EPILOGUES, Problem

RUN = Path(__file__).parents[3] / "benchmarks" / "results" / "tried" / "tokens"
LAYER = Problem(777, 6144, 4096, "nt", "bf16")


def lines(path: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(path) as packed:
        return [json.loads(line) for line in packed.read("lines").splitlines()]


@pytest.mark.parametrize(
    ("way", "tokens", "waves", "filled"),
    [
        # 10 x 24 tiles are two waves of 132, of 264 places
        (Way(256, 2, "cooperative"), 80, 2, 777 * 6144 / (264 * 80 * 256)),
        # 5 x 48 pairs of tiles that share tokens: 66 pairs run at once
        (Way(64, 1, "cooperative", cluster_n=2), 160, 4, 777 * 6144 / (4 * 132 * 160 * 64)),
        # clusters of four: 30 at once, and 2 x 4 tiles of tokens, for 7 that hold any
        (Way(128, 2, "pingpong", cluster_m=4), 104, 4, 777 * 6144 / (4 * 120 * 104 * 128)),
    ],
)
def test_tiles_by_hand(way: Way, tokens: int, waves: int, filled: float) -> None:
    (tile,) = [tile for tile in fit_tokens(LAYER, way) if tile.tokens == tokens]
    assert tile.waves == waves
    assert tile.filled == pytest.approx(filled)


@pytest.mark.parametrize("m", [1, 8, 100, 777, 5000])
def test_of_tiles_that_are_as_many_the_least_is_listed(m: int) -> None:
    way = Way(128, 2, "cooperative")
    listed = {tile.tokens for tile in fit_tokens(_of(m), way)}
    counts = [math.ceil(m / tokens) for tokens in listed]
    assert len(set(counts)) == len(counts)
    for tokens in range(8, 257, 8):
        assert any(t <= tokens and math.ceil(m / t) == math.ceil(m / tokens) for t in listed)


def _of(m: int, n: int = 6144, k: int = 4096, **rest: str) -> Problem:
    return Problem(m, n, k, **{"layout": "nt", "dtype": "bf16", **rest})


def test_another_device_gets_other_tiles() -> None:
    """One wave of 132 places is two of 66: the best tile is not the same."""
    way = Way(128, 2, "cooperative")
    half = {size: most // 2 for size, most in token_tiles.AT_ONCE.items()}
    whole = fit_tokens(_of(300, 4096), way)[0]
    assert (whole.tokens, whole.waves) == (80, 1)  # 4 x 32 of 132
    assert [tile.waves for tile in fit_tokens(_of(300, 4096), way, half) if tile.tokens == 80] == [
        2
    ]


def test_the_kernels_that_a_run_ended_with_are_listed() -> None:
    """Finals and confirmations on an H200, of 45 layers. All are but one tile of the largest."""
    kernels = [line["fields"] for line in lines(RUN / "kernels.jsonl.zip")]
    found, missing = 0, set()
    for path in sorted((RUN / "jobs").glob("*.zip")):
        for line in lines(path):
            problem = Problem(*line["problem"])
            designs = set(token_designs(problem))
            for number in line["kernels"]:
                if (kernel := kernels[int(number)])["family"] in FITTED:
                    listed = Choice.of(kernel["family"], kernel["genome"]) in designs
                    found += listed
                    if not listed:
                        missing.add((problem.m, kernel["genome"]["tile_m"]))
    assert (found, missing) == (81, {(7398, 152)})


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("sizes", [(8, 64, 64), (104, 4096, 4096), (776, 6144, 4096)])
def test_designs_are_valid_and_admit_their_problem(
    layout: str, sizes: tuple[int, int, int]
) -> None:
    problem = Problem(*sizes, layout, "f16")
    designs = token_designs(problem)
    assert len(designs) == len(set(designs)) > 20
    for choice in designs:
        family(choice.family).validate(choice.genome)
    core = {choice for choice in Space(problem).core if choice.family in FITTED}
    assert core == {choice for choice in designs if admits(choice, problem)}
    shallow = [c for c in designs if c not in core]
    assert all(c.genome["split_k"] != 1 for c in shallow)  # K has no part for each


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_every_epilogue_has_designs(epilogue: str) -> None:
    designs = token_designs(_of(104, epilogue=epilogue))
    assert {c.genome.get("computes", "none") for c in designs} == {epilogue}
    stores = {c.genome["epilogue"] for c in designs}
    assert stores == {"rows", "staged"} | (set() if epilogue == "gated_silu" else {"bulk"})


def test_few_tiles_are_split_and_many_are_not_persistent_in_one_wave() -> None:
    for choice in token_designs(_of(104, 2048, 16384)):
        g = choice.genome
        clusters = math.ceil(104 / (int(g["tile_m"]) * int(g["cluster_m"]))) * math.ceil(
            2048 / (int(g["tile_n"]) * int(g["cluster_n"]))
        )
        ctas = int(g["cluster_m"]) * int(g["cluster_n"]) * int(g["split_k"])
        one_wave = clusters <= token_tiles.AT_ONCE[ctas] // ctas
        looped = g["split_k"] == 1 and (not one_wave or g["schedule"] == "pingpong")
        assert g["persistent"] == looped
    assert {c.genome["split_k"] for c in token_designs(_of(104, 2048, 16384))} == {1, 2, 4}
