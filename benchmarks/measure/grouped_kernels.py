"""The candidates of `grouped`: which genomes there are, and the pack of winners."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import candidates
from hgemm_packs.generator.compile import pack_writer
from hgemm_packs.generator.families import family
from hgemm_packs.generator.families.base import Genome
from hgemm_packs.generator.tables import judge
from hgemm_packs.generator.tables.table import document
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import GROUPED_ABI, GroupedRow, Timing, WinPolicy
from hgemm_packs.profiles import names

FAMILY = "sm90_grouped"
#: Rows of weights, k-tile, consumers, whether in turn, whether they get the producer's registers,
#: CTAs on an SM; with the tiles of tokens that each is tried with. Stages are as many as fit.
SHAPES: Sequence[tuple[int, int, int, bool, bool, int, tuple[int, ...]]] = (
    (64, 128, 1, False, False, 3, (8, 16)),
    (64, 64, 1, False, False, 4, (8, 16, 32)),
    (64, 128, 1, False, False, 2, (8, 32, 64)),
    (128, 64, 1, False, False, 2, (8, 16, 32, 64)),
    (128, 128, 1, False, False, 1, (8, 16)),
    (128, 64, 2, False, False, 2, (16, 32, 64)),
    (128, 128, 2, False, False, 1, (16, 64)),
    (256, 64, 2, False, False, 1, (16, 32, 64, 96)),
    (128, 64, 2, False, False, 1, (96, 128, 192)),
    (128, 64, 2, True, True, 1, (64, 96, 128, 160)),
    (64, 64, 2, True, True, 1, (128, 256)),
    (128, 64, 2, False, True, 1, (192, 256)),
    (256, 64, 2, False, True, 1, (64, 96, 128, 160)),
)


def genomes(layouts: Sequence[str] = ("nt", "nn"), dtype: str = "bf16") -> Iterator[Genome]:
    """Every candidate, of the most stages that are valid."""
    own = family(FAMILY)
    for layout in layouts:
        for rows, tile_k, consumers, in_turn, more, ctas, tiles in SHAPES:
            for tokens in tiles:
                genome: dict[str, int | str | bool] = {
                    "layout": layout,
                    "dtype": dtype,
                    "tile_m": tokens,
                    "tile_n": rows,
                    "tile_k": tile_k,
                    "consumers": consumers,
                    "pingpong": in_turn,
                    "reallocate": more,
                    "ctas_per_sm": ctas,
                }
                fitting = [
                    genome | {"stages": stages}
                    for stages in own.genes["stages"]
                    if own.is_valid(genome | {"stages": stages})
                ]
                if fitting:
                    yield fitting[-1]


def row(line: Mapping[str, Any], problem: Sequence[Any], profile: str, date: str) -> GroupedRow:
    """The row of a measured line; hot and cold are one figure."""
    ours, torchs = (round(median(line["us"][name]), 3) for name in ("ours", "torch"))
    gain = line["speedup"]
    timing = Timing(ours, torchs, torchs, round(gain["value"], 4), round(gain["lcb"], 4))
    own = line["built"]["id"]
    return GroupedRow(*problem, own, profile, timing, timing, gain["pairs"], date)


def write_pack(
    header: Mapping[str, Any],
    measured: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    source_path: Path,
    pack_path: Path,
) -> Pack:
    """Write the source document of measured problems, whose rows name kernels where they won, and
    build its pack. Raises ValueError where nothing was measured."""
    if not measured:
        raise ValueError("no line with a confirmed measurement")
    device, date = header["device"], header["date"]
    bounds = [dict.fromkeys(("hot", "cold"), line["noise"]) for _, line in measured]
    policy = WinPolicy(judge.noise_floor(bounds), judge.RULE)
    rows, kernels = candidates.make_rows(
        measured, FAMILY, policy, lambda line, problem: row(line, problem, device["name"], date)
    )
    fastest = max(weight_bytes(*each) / median(each[1]["us"]["ours"]) for each in measured)
    source = document(
        *(device["arch"], candidates.profile_of(device, fastest), candidates.versions_of(header)),
        *(policy.noise_floor, kernels, [], date, f"{names.of_project(device['arch'])}-grouped"),
    )
    source = dataclasses.replace(source, launcher_abi=GROUPED_ABI, grouped=tuple(rows))
    pack_writer.write_source(source_path, source)
    return pack_writer.build_pack(source_path, pack_path)


def weight_bytes(problem: Sequence[Any], line: Mapping[str, Any]) -> float:
    """Bytes of the weights that a call reads."""
    return 2.0 * float(line["experts"]) * int(problem[2]) * int(problem[3])
