"""What the tests of the cache share: packs to add, and looks into a cache."""

from __future__ import annotations

from pathlib import Path

from hgemm_packs.distribution import cache
from hgemm_packs.pack.folder import Pack
from tests import packs
from tests.distribution.cache import cache_steps

DAY_S = 86400.0


def no_fill(temp: Path) -> None:
    raise AssertionError(f"fill was called for {temp}")


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def written(folder: Path, version: str) -> Pack:
    info = packs.PackInfo("test-pack", version, "Apache-2.0", "2026-11-20T00:00:00Z")
    return packs.write_good(folder, pack=info)


def add(pack: Pack, root: Path) -> Path:
    return cache.add(pack.manifest_sha256, cache_steps.fill_from(pack.path), root)


def temps(root: Path) -> list[Path]:
    return list((root / "v1" / "temp").iterdir())


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
