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


def run(out: Console, arch: str, folder: Path | None, jobs: int) -> list[Pack]:
    """Build a pack per source manifest of `arch`, into `folder` (default packs/<arch>).

    Raises UserError with the compiler's words when a kernel does not build, OSError, before any
    is compiled, for a folder that cannot be written.
    """
    builder = generator("compile.pack_writer")
    packs = []
    paths = sources(arch)
    for path in paths:
        target = folder or Path("packs") / arch
        target = target if len(paths) == 1 else target / path.stem
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
