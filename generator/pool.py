"""The candidates of the first table, written by hand, kept so that it can be made again.

`benchmarks/calibrate_prior.py` finds here the genomes that its records name; no search reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from hgemm_packs.generator.families import FAMILIES, Genome

Job = tuple[str, Genome]

# tile_m, tile_n, stages, consumers, schedule; persistent, one CTA an SM
PERSISTENT = (
    (128, 128, 4, 2, "pingpong"),
    (128, 128, 6, 2, "pingpong"),
    (128, 96, 6, 2, "pingpong"),
    (128, 160, 4, 2, "pingpong"),
    (64, 128, 6, 2, "pingpong"),
    (64, 192, 5, 2, "pingpong"),
    (64, 256, 4, 2, "pingpong"),
    (128, 128, 5, 2, "cooperative"),
    (128, 192, 4, 2, "cooperative"),
    (128, 256, 3, 2, "cooperative"),
    (128, 256, 4, 2, "cooperative"),
    (256, 128, 3, 2, "cooperative"),
    (256, 96, 4, 2, "cooperative"),
)
EPILOGUES = (
    ("staged", False),
    ("staged", True),
    ("bulk", False),
    ("grouped", False),
    ("grouped", True),
)
# tile_m, tile_n, tile_k, stages, consumers, ctas_per_sm; one tile a CTA
SINGLE = (
    (64, 32, 64, 8, 1, 1),
    (64, 32, 128, 4, 1, 1),
    (64, 32, 128, 4, 1, 2),
    (64, 32, 128, 8, 1, 1),
    (64, 64, 64, 4, 1, 2),
    (64, 64, 64, 4, 1, 3),
    (64, 64, 64, 8, 1, 1),
    (64, 64, 128, 3, 1, 2),
    (64, 64, 128, 4, 1, 1),
    (64, 64, 128, 6, 1, 1),
    (64, 96, 64, 8, 1, 1),
    (64, 96, 128, 4, 1, 1),
    (64, 128, 64, 3, 1, 2),
    (64, 128, 64, 8, 1, 1),
    (64, 128, 128, 4, 1, 1),
    (64, 160, 64, 7, 1, 1),
    (64, 192, 64, 5, 1, 1),
    (64, 192, 64, 6, 1, 1),
    (64, 224, 64, 5, 1, 1),
    (64, 256, 64, 4, 1, 1),
    (128, 32, 128, 4, 2, 1),
    (128, 64, 64, 6, 1, 1),
    (128, 64, 64, 6, 2, 1),
    (128, 64, 128, 4, 2, 1),
    (128, 96, 64, 6, 2, 1),
    (128, 128, 64, 6, 2, 1),
    (128, 128, 128, 3, 2, 1),
    (128, 160, 64, 5, 2, 1),
    (128, 192, 64, 5, 2, 1),
    (128, 224, 64, 4, 2, 1),
    (128, 256, 64, 4, 2, 1),
    (256, 64, 64, 4, 2, 1),
)
# tile_m, tile_n, tile_k, stages, consumers, ctas_per_sm, split_k
SPLIT = (
    (64, 64, 64, 8, 1, 1, 2),
    (64, 64, 64, 5, 1, 2, 2),
    (64, 64, 128, 4, 1, 1, 2),
    (64, 64, 128, 6, 1, 1, 2),
    (64, 96, 128, 4, 1, 1, 2),
    (64, 96, 128, 4, 1, 1, 3),
    (64, 160, 64, 6, 1, 1, 2),
    (64, 160, 64, 6, 1, 1, 5),
    (64, 224, 64, 4, 1, 1, 2),
    (128, 96, 64, 5, 2, 1, 2),
    (128, 96, 64, 5, 2, 1, 3),
    (128, 160, 64, 3, 2, 1, 2),
    (128, 192, 64, 3, 2, 1, 2),
    (128, 192, 64, 3, 2, 1, 3),
    (64, 128, 64, 7, 1, 1, 2),
    (64, 128, 128, 3, 1, 1, 2),
    (64, 128, 64, 3, 1, 2, 2),
    (64, 192, 64, 4, 1, 1, 2),
    (64, 192, 64, 4, 1, 1, 3),
    (64, 256, 64, 3, 1, 1, 2),
    (128, 64, 128, 3, 2, 1, 2),
    (128, 128, 64, 4, 2, 1, 2),
    (64, 64, 64, 8, 1, 1, 4),
    (64, 64, 64, 5, 1, 2, 4),
    (64, 64, 128, 4, 1, 1, 4),
    (64, 64, 128, 6, 1, 1, 4),
    (64, 96, 128, 4, 1, 1, 6),
    (64, 128, 64, 7, 1, 1, 4),
    (64, 128, 128, 3, 1, 1, 4),
    (64, 128, 64, 3, 1, 2, 4),
    (64, 192, 64, 4, 1, 1, 4),
    (64, 192, 64, 4, 1, 1, 6),
    (64, 256, 64, 3, 1, 1, 4),
    (128, 64, 128, 3, 2, 1, 4),
    (128, 128, 64, 4, 2, 1, 4),
    (64, 128, 64, 7, 1, 1, 8),
    (64, 128, 128, 3, 1, 1, 8),
    (64, 128, 64, 3, 1, 2, 8),
    (64, 256, 64, 3, 1, 1, 8),
    (128, 128, 64, 4, 2, 1, 8),
)
# mi, ni, warps_m, warps_n, warps_k, unroll
DIRECT = (
    (1, 2, 1, 1, 1, 2),
    (1, 2, 1, 1, 2, 1),
    (1, 2, 1, 1, 2, 2),
    (1, 2, 1, 1, 4, 1),
    (1, 2, 1, 1, 4, 2),
    (1, 2, 1, 1, 4, 4),
    (1, 2, 1, 1, 8, 1),
    (1, 2, 1, 1, 8, 2),
    (1, 2, 1, 1, 4, 8),
    (1, 2, 1, 1, 8, 4),
    (1, 2, 1, 1, 8, 8),
    (1, 2, 1, 1, 16, 1),
    (1, 2, 1, 1, 16, 2),
    (1, 2, 1, 1, 16, 4),
    (1, 2, 1, 2, 4, 1),
    (1, 2, 2, 2, 1, 2),
    (1, 4, 1, 1, 1, 2),
    (1, 4, 1, 1, 2, 1),
    (1, 4, 1, 1, 2, 2),
    (1, 4, 1, 1, 4, 1),
    (1, 4, 1, 1, 4, 2),
    (1, 4, 1, 1, 4, 4),
    (1, 4, 1, 1, 8, 1),
    (1, 4, 1, 1, 8, 2),
    (1, 4, 1, 1, 8, 4),
    (1, 4, 1, 1, 16, 1),
    (1, 4, 1, 1, 16, 2),
    (1, 4, 1, 1, 16, 4),
    (1, 4, 1, 2, 4, 2),
    (1, 4, 2, 1, 2, 1),
    (1, 4, 2, 1, 4, 1),
    (1, 4, 2, 1, 8, 1),
    (1, 4, 2, 2, 1, 2),
    (1, 4, 2, 2, 2, 1),
    (1, 4, 2, 2, 2, 2),
    (1, 8, 1, 1, 8, 1),
    (1, 8, 1, 1, 8, 2),
    (2, 4, 1, 1, 4, 2),
    (2, 4, 1, 1, 8, 1),
    (2, 4, 1, 1, 8, 2),
    (2, 4, 1, 2, 1, 2),
    (2, 4, 1, 2, 2, 2),
    (2, 4, 1, 2, 4, 1),
    (2, 4, 2, 2, 1, 2),
    (2, 4, 2, 2, 2, 1),
)


def _wgmma(common: Genome, tile: tuple[int, int, int], **genes: int | str | bool) -> Job:
    tile_m, tile_n, tile_k = tile
    defaults: Genome = {
        "schedule": "cooperative",
        "cluster_m": 1,
        "cluster_n": 1,
        "split_k": 1,
        "persistent": False,
        "ctas_per_sm": 1,
        "raster": "m",
        "group": 8,
        "epilogue": "staged",
        "streaming": False,
    }
    tiles: Genome = {"tile_m": tile_m, "tile_n": tile_n, "tile_k": tile_k}
    return "sm90_wgmma", {**common, **defaults, **tiles, **genes}


def _persistent(common: Genome) -> Iterator[Job]:
    for tile_m, tile_n, stages, consumers, schedule in PERSISTENT:
        tile = (tile_m, tile_n, 64)
        shape: Genome = {
            "stages": stages,
            "consumers": consumers,
            "schedule": schedule,
            "persistent": True,
        }
        for epilogue, streaming in EPILOGUES:
            shape |= {"epilogue": epilogue, "streaming": streaming}
            yield _wgmma(common, tile, **shape)
            if tile_m * tile_n >= 128 * 128:
                yield _wgmma(common, tile, **shape, cluster_m=2)
        shape |= {"epilogue": "bulk" if tile_n % 64 == 0 else "staged", "streaming": False}
        if tile_m * tile_n >= 128 * 128:
            yield _wgmma(common, tile, **shape, cluster_n=2)
            yield _wgmma(common, tile, **shape, raster="n")
            yield _wgmma(common, tile, **shape, group=16)
    for epilogue, streaming in EPILOGUES:
        shape = {"stages": 3, "consumers": 1, "ctas_per_sm": 2, "persistent": True}
        shape |= {"epilogue": epilogue, "streaming": streaming}
        yield _wgmma(common, (64, 128, 64), **shape)
        yield _wgmma(common, (64, 64, 64), **{**shape, "stages": 4, "ctas_per_sm": 3})


def _single(common: Genome) -> Iterator[Job]:
    for tile_m, tile_n, tile_k, stages, consumers, ctas in SINGLE:
        shape: Genome = {"stages": stages, "consumers": consumers, "ctas_per_sm": ctas}
        for epilogue in ("staged", "grouped"):
            yield _wgmma(common, (tile_m, tile_n, tile_k), **shape, epilogue=epilogue)
        if tile_m * tile_n <= 64 * 128:
            yield _wgmma(common, (tile_m, tile_n, tile_k), **shape, cluster_m=2)


def _split(common: Genome) -> Iterator[Job]:
    for tile_m, tile_n, tile_k, stages, consumers, ctas, split in SPLIT:
        shape: Genome = {"stages": stages, "consumers": consumers, "ctas_per_sm": ctas}
        for epilogue in ("staged", "grouped"):
            genes = {**shape, "epilogue": epilogue, "split_k": split}
            yield _wgmma(common, (tile_m, tile_n, tile_k), **genes)


def _direct(common: Genome) -> Iterator[Job]:
    for mi, ni, warps_m, warps_n, warps_k, unroll in DIRECT:
        for exact in (True, False):
            genome: Genome = {"mi": mi, "ni": ni, "warps_m": warps_m, "warps_n": warps_n}
            genome |= {"warps_k": warps_k, "unroll": unroll, "exact": exact}
            genome |= {"fixed_k": 0, "cluster_k": 1}
            yield "sm90_direct", {**common, **genome}


def pool(layout: str, dtype: str) -> list[Job]:
    """Every valid candidate (family name, genome) of a layout and dtype."""
    common: Genome = {"layout": layout, "dtype": dtype}
    jobs = [*_persistent(common), *_single(common), *_split(common), *_direct(common)]
    return [(name, genome) for name, genome in jobs if FAMILIES[name].is_valid(genome)]
