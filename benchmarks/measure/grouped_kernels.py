"""The candidates of `grouped`: which genomes, their cubins in a folder, and the pack of winners."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from hgemm_packs import launcher
from hgemm_packs.generator.compile import candidate, compiler, pack_writer
from hgemm_packs.generator.compile.pack_writer import SourceKernel
from hgemm_packs.generator.families import family
from hgemm_packs.generator.families.base import Genome
from hgemm_packs.generator.tables import judge
from hgemm_packs.generator.tables.table import document
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import (
    GROUPED_ABI,
    DeviceProfile,
    GroupedRow,
    KernelEntry,
    Numerics,
    Timing,
    WinPolicy,
)

if TYPE_CHECKING:
    from hgemm_packs._C import Kernel

FAMILY = "sm90_grouped"
INDEX = "kernels.json"
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


class Loaded(NamedTuple):
    """A candidate on the device."""

    entry: KernelEntry
    kernel: Kernel


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


def build(folder: Path, own: str = FAMILY, chosen: Iterable[Genome] | None = None) -> int:
    """Compile all candidates into `folder`, or those `chosen` of a family; how many there are.
    Raises BuildError."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = []
    for one in compiler.build((own, genome) for genome in chosen or genomes()):
        if isinstance(one, compiler.BuildError):
            raise one
        (folder / f"{one.entry_fields['id']}.cubin").write_bytes(one.cubin)
        fields.append(one.entry_fields)
    (folder / INDEX).write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
    return len(fields)


def load_all(folder: Path, device: int) -> dict[str, Loaded]:
    """All candidates by name, loaded."""
    loaded = {}
    for fields in json.loads((folder / INDEX).read_text(encoding="utf-8")):
        cubin = (folder / f"{fields['id']}.cubin").read_bytes()
        entry = candidate.entry(fields, cubin)
        loaded[entry.name] = Loaded(entry, launcher.load(device, entry, cubin))
    return loaded


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
    device, versions = header["device"], {"driver": "unknown", "cublas": "unknown"}
    versions |= header["versions"]
    bounds = [dict.fromkeys(("hot", "cold"), line["noise"]) for _, line in measured]
    floor = judge.noise_floor(bounds)
    policy = WinPolicy(floor, judge.RULE)
    rows, kernels = [], {}
    for problem, line in measured:
        made = row(line, problem, device["name"], header["date"])
        if policy.clears(made):
            kernels[made.kernel] = source_kernel(line)
            rows.append(made)
        else:
            rows.append(made._replace(kernel=None))
    speed = max(weight_bytes(*each) / median(each[1]["us"]["ours"]) / 1e3 for each in measured)
    profile = DeviceProfile(device["name"], device["sm_count"], device["l2_bytes"], round(speed, 1))
    source = document(
        device["arch"], profile, versions, floor, [*kernels.values()], [], header["date"]
    )
    source = dataclasses.replace(
        source,
        pack=source.pack._replace(name=f"{source.pack.name}-grouped"),
        launcher_abi=GROUPED_ABI,
        grouped=tuple(rows),
    )
    pack_writer.write_source(source_path, source)
    return pack_writer.build_pack(source_path, pack_path)


def source_kernel(line: Mapping[str, Any], own: str = FAMILY) -> SourceKernel:
    """The kernel of a line, of that family, as a source document has it."""
    built, seen = line["built"], line["numerics"]
    numerics = Numerics("float64", round(seen["max_rel_err"], 9), seen["shapes_tested"])
    return SourceKernel(built["id"], built["name"], own, built["genome"], numerics)


def weight_bytes(problem: Sequence[Any], line: Mapping[str, Any]) -> float:
    """Bytes of the weights that a call reads."""
    return 2.0 * float(line["experts"]) * int(problem[2]) * int(problem[3])
