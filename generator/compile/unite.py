"""One pack of the tables of several cards of an architecture, each kernel in it once.

Called by the CLI's build. Every card keeps its rows and its profile; nothing is measured or chosen
here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile.compiler import BuildError
from hgemm_packs.generator.compile.pack_writer import (
    SourceManifest,
    build_pack,
    read_source,
    write_source,
)
from hgemm_packs.pack.folder import Pack

__all__ = ["BuildError", "build_united", "unite_sources"]


def unite_sources(sources: Sequence[SourceManifest]) -> SourceManifest:
    """The documents as one. What is said once of a pack is that of the document with the most rows;
    the noise floor is the least, which the rows of the others clear as well.

    Raises PackError for two tables of a profile, for kernels built by different toolchains, for
    times against another torch or cuBLAS.
    """
    first, *rest = sorted(sources, key=lambda one: -len(one.table))
    profiles = [each.name for one in sources for each in one.device_profiles]
    twice = {name for name in profiles if profiles.count(name) > 1}
    if twice:
        raise PackError("two_tables", f"several documents have rows of {min(twice)}")
    for other in rest:
        for name in ("arch", "toolchain"):
            _same(first, other, name, getattr(first, name), getattr(other, name))
        for name in ("torch", "cublas", "protocol"):
            _same(first, other, name, getattr(first.baseline, name), getattr(other.baseline, name))
        _same(first, other, "rule", first.policy.rule, other.policy.rule)
    kernels = {kernel.id: kernel for one in (*rest, first) for kernel in one.kernels}
    every = (first, *rest)
    return replace(
        first,
        device_profiles=tuple(each for one in every for each in one.device_profiles),
        min_driver=max(one.min_driver for one in every),
        launcher_abi=max(one.launcher_abi for one in every),
        policy=first.policy._replace(noise_floor=min(one.policy.noise_floor for one in every)),
        kernels=tuple(kernels.values()),
        table=tuple(row for one in every for row in one.table),
        grouped=tuple(row for one in every for row in one.grouped),
        predictors=tuple(each for one in every for each in one.predictors),
    )


def _same(
    first: SourceManifest, other: SourceManifest, name: str, mine: object, its: object
) -> None:
    if mine != its:
        cards = " and ".join(one.device_profiles[0].name for one in (first, other))
        raise PackError("tables_differ", f"{name} of {cards}: {mine!r}, {its!r}")


def build_united(
    places: Sequence[Path],
    out_dir: Path,
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Pack:
    """The pack of one document or of several. Raises what `unite_sources` and `build_pack` do."""
    if len(places) == 1:
        return build_pack(places[0], out_dir, jobs, progress)
    united = unite_sources([read_source(place) for place in places])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "source.json"
        write_source(path, united)
        return build_pack(path, out_dir, jobs, progress)
