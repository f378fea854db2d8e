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


def targets(paths: list[Path], folder: Path) -> dict[Path, list[Path]]:
    """Where packs go, and the documents of each: the tables of all cards into `folder`. Those that
    add to another's name, as h200_grouped to h200, into a pack beside, with as much added."""
    found: dict[Path, list[Path]] = {}
    for path in paths:
        base = next((each for each in paths if path.name.startswith(f"{each.name}_")), path)
        target = folder.with_name(folder.name + path.name[len(base.name) :])
        found.setdefault(target, []).append(path)
    return found


def run(out: Console, arch: str, folder: Path | None, jobs: int) -> list[Pack]:
    """Build the packs of the source manifests of `arch`, into `folder` (default packs/<arch>):
    `targets`.

    Raises UserError with the compiler's words when a kernel does not build, OSError, before any
    is compiled, for a folder that cannot be written.
    """
    builder = generator("compile.unite")
    packs = []
    for target, paths in targets(sources(arch), folder or Path("packs") / arch).items():
        names = ", ".join(path.stem for path in paths)
        try:
            with progress(out, f"compiling {arch}/{names}") as tick:
                pack: Pack = builder.build_united(paths, target, jobs, tick)
        except (builder.BuildError, ValueError) as error:
            raise UserError(f"{names}: {error}") from error
        manifest = pack.manifest
        out.print(
            f"{manifest.pack}: {len(manifest.kernels)} kernels, "
            f"{len(manifest.table)} rows, {manifest.blob.bytes / 1e6:.1f} MB in {target}",
        )
        packs.append(pack)
    return packs
