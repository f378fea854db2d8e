"""sm90_streamk: which genomes are valid, what a record says of the grid, that the CTAs' runs make
up all tiles and no two CTAs wait for each other, and that kernels of every kind compile."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
from typing import Any, NamedTuple

import pytest

from hgemm_packs.generator import build, sass
from hgemm_packs.generator.families import InvalidGenome
from hgemm_packs.generator.families.streamk import FAMILY

from .kernels import STREAMK, record

BASE = STREAMK
# Two consumers of 64 x 256, which take the producer's registers.
LARGE = {**BASE, "tile_m": 128, "tile_n": 256, "stages": 4}

# (genes that differ from a valid genome, words of the refusal)
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"tile_m": 256, "tile_n": 192}, "192 accumulators a thread do not fit 232 registers"),
    ({**LARGE, "ctas_per_sm": 2, "stages": 2}, "128 accumulators a thread do not fit 96"),
    ({"tile_n": 192, "ctas_per_sm": 3, "stages": 2}, "96 accumulators a thread do not fit 128"),
    ({"layout": "nn", "epilogue": "grouped"}, "grouped epilogue is for nt and tt"),
    ({"layout": "tn", "epilogue": "grouped"}, "grouped epilogue is for nt and tt"),
    ({**LARGE, "stages": 5}, "shared memory"),
    ({"ctas_per_sm": 2}, "shared memory"),
]


@pytest.mark.parametrize(("genes", "words"), BROKEN)
def test_a_broken_constraint_is_named(genes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidGenome, match=f"^sm90_streamk: .*{words}"):
        FAMILY.validate({**BASE, **genes})


def test_the_grid_fills_the_device() -> None:
    fields = FAMILY.fields(LARGE)
    assert fields["grid"] == {"tile_m": 128, "tile_n": 256, "persistent": True}
    assert (fields["param_layout"], fields["cluster"]) == ("tma2_ws_v1", [1, 1, 1])
    assert fields["workspace_bytes"] == 128 * 256 * 4  # a part: one tile, fp32
    assert fields["block"] == 256 + 128
    assert fields["smem_bytes"] == 1024 + 4 * (128 + 256) * 128 + 128 * 64 * 2
    entry = record(fields)
    assert entry.cooperative and entry.deterministic and not entry.pdl


@pytest.mark.parametrize(("ctas", "stages"), [(1, 2), (1, 8), (2, 2), (2, 5), (3, 2), (3, 3)])
def test_an_sm_holds_no_more_ctas_than_meant(ctas: int, stages: int) -> None:
    smem = FAMILY.fields({**BASE, "ctas_per_sm": ctas, "stages": stages})["smem_bytes"]
    assert 228 * 1024 // (smem + 1024) == ctas


class Part(NamedTuple):
    """K-tiles of a tile that a CTA works on."""

    tile: int
    begin: int
    end: int


class Grid(NamedTuple):
    """The segments of each CTA in their order, and the CTAs that the owner of a tile waits for."""

    k_tiles: int
    runs: list[list[Part]]
    awaited: dict[int, list[int]]


PROBE = """
#define __device__
#define __host__
#define __forceinline__ inline
#define __shfl_sync(mask, value, lane) (value)
#include "common/schedule.cuh"
#include <cstdio>
%s
template <int kWaves, int kLeast>
void show(int ctas, int tiles, int k_tiles) {
  for (int cta = 0; cta < ctas; ++cta) {
    Stream<kWaves, kLeast> work(cta, ctas, tiles, k_tiles);
    Segment s;
    while (work.next(s)) {
      std::printf("%%d %%d %%d %%d", cta, s.tile, s.begin, s.end);
      // What every thread of a warpgroup asks, which may be about CTAs beyond the last.
      for (int other = cta + 1; s.begin == 0 && s.end < k_tiles && other < cta + 129; ++other) {
        if (work.shares(other, s.tile)) std::printf(" %%d", other);
      }
      std::printf("\\n");
    }
  }
}
int main() {
  int ctas, tiles, k_tiles;
  while (std::scanf("%%d %%d %%d", &ctas, &tiles, &k_tiles) == 3) {
    show<%d, %d>(ctas, tiles, k_tiles);
    std::printf("\\n");
  }
}
"""
CASES = [
    *itertools.product((1, 2, 7), (1, 2, 3, 6, 7, 8, 13, 14, 15, 29), (1, 2, 3, 4, 5, 8, 9, 31)),
    *itertools.product((132, 264), (1, 4, 96, 131, 132, 133, 192, 263, 264, 300, 704), (1, 16, 57)),
]


@pytest.fixture(
    scope="module", params=[(1, 1), (2, 1), (1, 4), (2, 4), (2, 8)], ids="waves{0[0]}-{0[1]}".format
)
def grids(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Grid]:
    """The schedule of the kernel's own source, compiled for this machine."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder, kernels = tmp_path_factory.mktemp("stream"), build.sources_dir()
    text = (kernels / "common" / "stream.cuh").read_text()
    schedule = text[text.index("struct Segment") : text.index("// Says that a part")]
    (folder / "probe.cpp").write_text(PROBE % (schedule, *request.param))
    command = [compiler, "-std=c++17", "-O1", "-w", f"-I{kernels}", "probe.cpp", "-o", "probe"]
    subprocess.run(command, cwd=folder, check=True)
    lines = "".join(f"{ctas} {tiles} {k_tiles}\n" for ctas, tiles, k_tiles in CASES)
    probe = [str(folder / "probe")]
    told = subprocess.run(probe, input=lines, capture_output=True, text=True, check=True).stdout
    blocks = told.split("\n\n")[:-1]
    return [_grid(case, block) for case, block in zip(CASES, blocks, strict=True)]


def _grid(case: tuple[int, int, int], block: str) -> Grid:
    ctas, _, k_tiles = case
    grid = Grid(k_tiles, [[] for _ in range(ctas)], {})
    for line in block.strip().splitlines():
        cta, tile, begin, end, *others = map(int, line.split())
        grid.runs[cta].append(Part(tile, begin, end))
        if begin == 0 and end < k_tiles:
            grid.awaited[tile] = others
    return grid


def test_every_k_tile_is_worked_on_once(grids: list[Grid]) -> None:
    for (_, tiles, k_tiles), grid in zip(CASES, grids, strict=True):
        parts = sorted(part for run in grid.runs for part in run)
        expected = iter(parts)
        for tile in range(tiles):
            done = 0
            while done < k_tiles:
                part = next(expected)
                assert (part.tile, part.begin) == (tile, done) and part.end > done
                done = part.end
        assert next(expected, None) is None


def test_the_owner_waits_for_each_part_once_and_in_the_order_of_k(grids: list[Grid]) -> None:
    for grid in grids:
        left = {(p.tile, p.begin): cta for cta, run in enumerate(grid.runs) for p in run if p.begin}
        expected: dict[int, list[int]] = {}
        for (tile, _), cta in sorted(left.items()):
            expected.setdefault(tile, []).append(cta)
        assert grid.awaited == expected


def test_a_part_is_left_before_all_else(grids: list[Grid]) -> None:
    """So a CTA leaves one part at most, and has waited for nobody: there is no circle. It waits
    once at most."""
    for grid in grids:
        for run in grid.runs:
            assert all(part.begin == 0 for part in run[1:])
            assert sum(part.begin == 0 and part.end < grid.k_tiles for part in run) <= 1


def test_runs_are_equal(grids: list[Grid], request: pytest.FixtureRequest) -> None:
    _, least = request.node.callspec.params["grids"]
    for (ctas, tiles, k_tiles), grid in zip(CASES, grids, strict=True):
        work = [sum(part.end - part.begin for part in run) for run in grid.runs]
        fair = tiles * k_tiles / ctas
        assert max(work) < fair + 2 * least and min(work) > fair - 2 * least


def test_with_two_streamed_waves_a_tile_has_two_ctas_at_most(
    grids: list[Grid], request: pytest.FixtureRequest
) -> None:
    """Runs are then a tile long or longer; with one they may be short."""
    waves, _ = request.node.callspec.params["grids"]
    full = [grid for (ctas, tiles, _), grid in zip(CASES, grids, strict=True) if tiles >= ctas]
    most = max(len(others) for grid in full for others in grid.awaited.values())
    assert most == 1 if waves == 2 else most > 1


def test_no_order_of_events_hangs_or_changes_the_sum(grids: list[Grid]) -> None:
    """CTAs in any interleaving: flags are raised once, lowered by their reader, and all zero in the
    end; a tile's sum names its k-tiles in order."""
    rng = random.Random(0)
    for grid in rng.sample(grids, 60):
        flags = [0] * len(grid.runs)
        left: dict[int, tuple[int, ...]] = {}
        sums: dict[int, tuple[int, ...]] = {}
        todo = {cta: list(run) for cta, run in enumerate(grid.runs) if run}
        while todo:
            ready = [cta for cta, run in todo.items() if _ready(grid, run[0], flags)]
            assert ready, "every CTA waits"
            cta = rng.choice(ready)
            part = todo[cta].pop(0)
            own = tuple(range(part.begin, part.end))
            if part.begin:
                assert not flags[cta]
                flags[cta], left[cta] = 1, own
            else:
                others = grid.awaited.get(part.tile, []) if part.end < grid.k_tiles else []
                sums[part.tile] = sum((left[other] for other in others), own)
                for other in others:
                    flags[other] = 0
            if not todo[cta]:
                del todo[cta]
        assert not any(flags)
        assert all(terms == tuple(range(grid.k_tiles)) for terms in sums.values())


def _ready(grid: Grid, part: Part, flags: list[int]) -> bool:
    if part.begin or part.end == grid.k_tiles:
        return True
    return all(flags[other] for other in grid.awaited[part.tile])


KERNELS: list[dict[str, Any]] = [
    {},
    {"layout": "nn", "dtype": "bf16", "waves": 1, "least": 1},
    {"layout": "tn", "tile_n": 224, "tile_m": 128, "stages": 3},
    {"layout": "tt", "tile_m": 256, "tile_n": 128, "stages": 4, "epilogue": "grouped"},
    {"tile_n": 32, "tile_k": 128, "stages": 4, "ctas_per_sm": 2, "raster": "n"},
    {**LARGE, "layout": "nn"},
]


@pytest.mark.parametrize("genes", KERNELS)
def test_kernels_compile_and_wait_without_atomics(genes: dict[str, Any]) -> None:
    genome = {**BASE, **genes}
    census = sass.census(build.build_one("sm90_streamk", genome).cubin)
    blocks = max(1, int(genome["tile_m"]) // 128)
    products = census.mma_count("HGMMA", "f32")
    assert products and products % (blocks * int(genome["tile_k"]) // 16) == 0
    assert census.count("ATOM", "ATOMG", "RED", "REDG", "LDL", "STL") == 0
