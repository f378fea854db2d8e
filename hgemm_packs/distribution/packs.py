"""Packs from Python: fetch one, use one, see which are in the cache. Also `hgemm_packs.packs`.

The public face of `hub`, `publish` and `cache`. Only `fetch`, `push` and `list_published` touch the
network; importing this module imports nothing of theirs that does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .. import launcher, select
from ..errors import PackError
from ..pack import discover
from ..pack.cache_folders import root_of
from ..pack.folder import Pack
from ..pack.receipts import Receipt, read_receipt
from . import cache
from .hub import fetch as fetch
from .hub import resolve
from .publish import Listed as Listed
from .publish import list_published as list_published
from .publish import push as push
from .transfer import HubError as HubError

__all__ = [
    "HubError",
    "Installed",
    "Listed",
    "fetch",
    "list_installed",
    "list_published",
    "push",
    "use",
]


@dataclass(frozen=True, slots=True)
class Installed:
    """A pack of the cache with its receipt. A kernel of the pack is checked when it is loaded."""

    pack: Pack
    receipt: Receipt
    bytes: int
    last_used: float


def list_installed() -> list[Installed]:
    """List the packs of the cache, sorted by name, and packs of one name by last use.

    A pack without a receipt, or one that does not open, is left out. Raises CacheError.

    Example:

        for each in packs.list_installed():
            print(each.pack.path, each.receipt.vouched)
    """
    place = root_of(None)
    found = []
    for entry in cache.packs(place):
        try:
            receipt = read_receipt(place, entry.manifest_sha256)
            pack = Pack.open(entry.path)
        except PackError:
            continue  # `hgemm-packs list` names it with the reason
        if receipt is not None and pack.manifest_sha256 == entry.manifest_sha256:
            found.append(Installed(pack, receipt, entry.bytes, entry.last_used))
    return sorted(found, key=lambda each: (each.pack.manifest.pack.name, -each.last_used))


def find(spec: str) -> Installed:
    """Find the pack of the cache that `spec` names; of several packs, the last used.

    `spec` is NAME of the registry or OWNER/REPO, either with @COMMIT, or the sha256 of a manifest,
    or the name in a manifest. Raises ValueError when the cache has no such pack. Uses no network.

    Example:

        find("owner/repo").pack
    """
    here = list_installed()
    try:
        source = resolve(spec)
    except ValueError:  # no repository, and no name that the registry knows
        chosen = [
            each
            for each in here
            if spec in (each.pack.manifest_sha256, each.pack.manifest.pack.name)
        ]
    else:
        moving = "@" not in spec and source.pin is None
        chosen = [
            each
            for each in here
            if each.receipt.repo == source.repo
            and (moving or each.receipt.revision == source.revision)
            and (source.pin is None or each.pack.manifest_sha256 == source.pin.manifest_sha256)
        ]
    if not chosen:
        raise ValueError(f"{spec[:200]!a} is not in the cache: hgemm-packs fetch it first")
    return max(chosen, key=lambda each: each.last_used)


def use(pack: str | os.PathLike[str]) -> Pack:
    """Prefer a pack to all others for the rest of this process.

    `pack` is a pack directory: your own, as in HGEMM_PACKS_PATH, or one that `fetch` returned. A
    str that is not a directory names a pack of the cache, as for `find`. `matmul` chooses its
    kernels anew; a captured CUDA graph keeps its kernels.

    Raises PackError for a folder that is not a pack, ValueError for a name that the cache lacks.

    Example:

        packs.use("packs/sm_90a")
    """
    place = Path(pack)
    if not isinstance(pack, str) or place.is_dir():
        chosen = discover.open_pack(place)
    else:
        chosen = find(pack).pack
        cache.touch(chosen.path)
    select.prefer(chosen)
    launcher.reset_table()
    return chosen
