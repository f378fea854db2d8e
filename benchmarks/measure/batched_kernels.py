"""The candidates of `batched`: which genomes there are, and the pack of winners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import candidates
from hgemm_packs.generator.compile import pack_writer
from hgemm_packs.generator.families import family
from hgemm_packs.generator.families.base import Genome
from hgemm_packs.generator.families.computed import compute_also
from hgemm_packs.generator.tables import judge
from hgemm_packs.generator.tables.table import document
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import Row, Timing, WinPolicy
from hgemm_packs.problem import Problem, set_bytes
from hgemm_packs.profiles import names

FAMILY = "sm90_batched"
LAYOUTS, DTYPES = ("nn", "nt"), ("bf16", "f16")
#: Rows of weights, k-tile, consumers, whether in turn, CTAs on an SM, how C is stored and in how
#: many buffers; with the tiles of tokens that each is tried with. Stages are as many as fit.
SHAPES: Sequence[tuple[int, int, int, bool, int, str, int, tuple[int, ...]]] = (
    (64, 64, 1, False, 2, "staged", 1, (8, 16, 32)),
    (64, 128, 1, False, 2, "staged", 1, (8, 32, 64)),
    (128, 64, 1, False, 2, "staged", 1, (8, 16)),
    (128, 64, 2, False, 2, "rows", 1, (16, 32, 64)),
    (128, 128, 2, False, 1, "rows", 1, (8, 64)),
    (256, 64, 2, False, 1, "rows", 1, (16, 32, 64)),
    (64, 64, 1, False, 2, "bulk", 1, (64, 128)),
    (128, 64, 2, False, 1, "bulk", 1, (128, 192, 256)),
    (256, 64, 2, False, 1, "bulk", 1, (96, 128)),
    (128, 64, 2, True, 1, "bulk", 1, (64, 96, 128, 160)),
    (128, 64, 2, True, 1, "rows", 1, (128,)),
    (64, 64, 2, True, 1, "bulk", 2, (64, 128, 256)),
    (192, 64, 3, False, 1, "bulk", 1, (128,)),
)
#: Clusters along M and N, CTAs that share weights or tokens, that one of these is tried with, too.
CLUSTERS = ((2, 1), (1, 2))
CLUSTERED = (128, True, "bulk", 128)


def genomes(epilogue: str = "none") -> Iterator[Genome]:
    """Every candidate, of the most stages that are valid."""
    for layout in LAYOUTS:
        for dtype in DTYPES:
            for rows, tile_k, consumers, in_turn, ctas, store, buffers, tiles in SHAPES:
                for tokens in tiles:
                    base: dict[str, int | str | bool] = {
                        "layout": layout,
                        "dtype": dtype,
                        "tile_m": tokens,
                        "tile_n": rows,
                        "tile_k": tile_k,
                        "consumers": consumers,
                        "schedule": "pingpong" if in_turn else "cooperative",
                        "cluster_m": 1,
                        "cluster_n": 1,
                        "ctas_per_sm": ctas,
                        "raster": "m",
                        "group": 1,
                        "epilogue": store,
                        "buffers": buffers,
                        "streaming": False,
                    }
                    yield from _deepest(base, epilogue)
                    if (rows, in_turn, store, tokens) == CLUSTERED:
                        for m, n in CLUSTERS:
                            yield from _deepest({**base, "cluster_m": m, "cluster_n": n}, epilogue)


def _deepest(genome: Genome, epilogue: str) -> Iterator[Genome]:
    """The genome with the most stages that fit, if any do."""
    own = family(FAMILY)
    for stages in reversed(own.genes["stages"]):
        made = compute_also({**genome, "stages": stages}, epilogue)
        if own.is_valid(made):
            yield made
            return


def row(line: Mapping[str, Any], problem: Problem, profile: str, date: str) -> Row:
    """The row of a measured line. No cuBLASLt call is measured: `cublaslt_us` is torch's time."""
    timings = []
    for protocol in ("hot", "cold"):
        us, gain = line["us"][protocol], line["speedup"][protocol]
        ours, torchs = (round(median(us[name]), 3) for name in ("ours", "torch"))
        timings.append(Timing(ours, torchs, torchs, round(gain["value"], 4), round(gain["lcb"], 4)))
    pairs = min(each["pairs"] for each in line["speedup"].values())
    made = Row(*problem.key[:8], line["built"]["id"], profile, *timings, pairs, date)
    return made._replace(base=problem.base, packed=problem.packed, batches=problem.batches)


def write_pack(
    header: Mapping[str, Any],
    measured: Sequence[tuple[Problem, Mapping[str, Any]]],
    source_path: Path,
    pack_path: Path,
) -> Pack:
    """Write the source document of measured problems, whose rows name kernels where they won, and
    build its pack. Raises ValueError where nothing was measured."""
    if not measured:
        raise ValueError("no line with a confirmed measurement")
    device, date = header["device"], header["date"]
    policy = WinPolicy(judge.noise_floor(line["noise"] for _, line in measured), judge.RULE)
    rows, kernels = candidates.make_rows(
        measured, FAMILY, policy, lambda line, problem: row(line, problem, device["name"], date)
    )
    fastest = max(set_bytes(each) / median(line["us"]["cold"]["ours"]) for each, line in measured)
    source = document(
        *(device["arch"], candidates.profile_of(device, fastest), candidates.versions_of(header)),
        *(policy.noise_floor, kernels, rows, date, f"{names.of_project(device['arch'])}-batched"),
    )
    pack_writer.write_source(source_path, source)
    return pack_writer.build_pack(source_path, pack_path)
