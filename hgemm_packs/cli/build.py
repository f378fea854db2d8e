"""`hgemm-packs build`: the pack that a committed manifest names, compiled here from source."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ..pack.folder import Pack
from .console import UserError, generator, manifests_dir, progress


def sources(arch: str) -> list[Path]:
    """Committed source manifests of an architecture. Raises UserError when there is none."""
    known = sorted({path.parents[1].name for path in manifests_dir().glob("sm_*/*/pack.json")})
    found = sorted(path.parent for path in (manifests_dir() / arch).glob("*/pack.json"))
    if arch not in known:
        raise UserError(f"no manifest for {arch!r}; there is: {', '.join(known) or 'none'}")
    return found


def targets(paths: list[Path], folder: Path) -> list[Path]:
    """Where the packs of documents go: that of one device into `folder`, those of several below it.
    A document that adds to another's name, as h200_grouped to h200, gets a folder beside its pack,
    with as much added."""
    bases = [
        next((each for each in paths if path.name.startswith(f"{each.name}_")), path)
        for path in paths
    ]
    alone = len(set(bases)) == 1
    places = [folder if alone else folder / base.name for base in bases]
    return [
        place.with_name(place.name + path.name[len(base.name) :])
        for place, base, path in zip(places, bases, paths, strict=True)
    ]


def run(out: Console, arch: str, folder: Path | None, jobs: int) -> list[Pack]:
    """Build a pack per source manifest of `arch`, into `folder` (default packs/<arch>): `targets`.

    Raises UserError with the compiler's words when a kernel does not build, OSError, before any
    is compiled, for a folder that cannot be written.
    """
    builder = generator("compile.pack_writer")
    packs = []
    paths = sources(arch)
    for path, target in zip(paths, targets(paths, folder or Path("packs") / arch), strict=True):
        try:
            with progress(out, f"compiling {arch}/{path.stem}") as tick:
                pack: Pack = builder.build_pack(path, target, jobs, tick)
        except (builder.BuildError, ValueError) as error:
            raise UserError(f"{path.stem}: {error}") from error
        manifest = pack.manifest
        out.print(
            f"{manifest.pack.name} {manifest.pack.version}: {len(manifest.kernels)} kernels, "
            f"{len(manifest.table)} rows, {manifest.blob.bytes / 1e6:.1f} MB in {target}",
        )
        packs.append(pack)
    return packs
