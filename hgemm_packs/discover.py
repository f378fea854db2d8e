"""Where packs come from: HGEMM_PACKS_PATH, installed provider wheels, the cache; in this order.

Called by `select` once per process and by the CLI. A pack that is refused costs one warning and is
remembered with its reason; it never stops the search and never raises. No network, ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .cache_folders import check_private
from .errors import CacheError, PackError
from .pack import Pack
from .receipts import read_receipt
from .settings import LOGGER, settings

PROVIDERS_GROUP = "hgemm_packs.providers"


@dataclass(frozen=True, slots=True)
class Refused:
    """A place that was asked to be a pack, and why it is none."""

    place: str
    error: PackError


@dataclass(frozen=True, slots=True)
class Found:
    """Packs in search order, and what was refused on the way."""

    packs: tuple[Pack, ...]
    refused: tuple[Refused, ...]


_warned: set[tuple[str, str]] = set()


def packs() -> list[Pack]:
    """The usable packs in search order; see `find`."""
    return list(find().packs)


def find() -> Found:
    """Look at every place once, and open what is there."""
    opened: list[Pack] = []
    refused: list[Refused] = []
    seen: set[str] = set()
    for place in _places():
        if isinstance(place, Refused):
            refused.append(place)
            continue
        try:
            pack = open_pack(place)
        except PackError as error:
            refused.append(Refused(str(place), error))
            continue
        if pack.manifest_sha256 not in seen:
            seen.add(pack.manifest_sha256)
            opened.append(pack)
    for each in refused:
        _warn_once(each)
    return Found(tuple(opened), tuple(refused))


def _warn_once(refused: Refused) -> None:
    # The log and not warnings.warn: under -W error a warning would raise inside matmul.
    key = (refused.place, refused.error.code)
    if key not in _warned:
        _warned.add(key)
        LOGGER.warning("pack ignored: %s: %s", refused.place, refused.error)


def _places() -> Iterator[Path | Refused]:
    yield from settings().path
    yield from _provided()
    yield from _cached()


def _provided() -> Iterator[Path | Refused]:
    """Paths of installed provider wheels: entry points that are a path or return one."""
    from importlib import metadata

    for point in sorted(metadata.entry_points(group=PROVIDERS_GROUP), key=lambda p: p.name):
        try:
            value = point.load()
            place = Path(os.fspath(value() if callable(value) else value))
        except Exception as error:  # a provider is somebody else's code and may raise anything
            detail = f"{type(error).__name__}: {error}"
            yield Refused(point.value, PackError("provider_failed", detail))
        else:
            yield place


def _cached() -> Iterator[Path | Refused]:
    """Packs in the cache, if only this user can write there: who can, runs code on the GPU."""
    root = settings().cache
    if root is None:
        return
    folder = root / "v1" / "packs"
    try:
        for part in (root, root / "v1", folder):
            check_private(part)
        yield from sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except CacheError as error:
        yield Refused(str(root), PackError("cache_unsafe", str(error)))
    except OSError as error:
        yield Refused(str(root), PackError("unreadable", str(error)))


def open_pack(place: Path) -> Pack:
    """The pack of a place. In the cache a directory is named by the sha256 of its manifest, and has
    a receipt, which is looked at before the manifest is read."""
    root = settings().cache
    if root is None or place.parent != root / "v1" / "packs":
        return Pack.open(place)
    receipt = read_receipt(root, place.name)
    if receipt is None:
        raise PackError("no_receipt", "nothing says that it was checked: fetch it again")
    pack = Pack.open(place)
    if pack.manifest_sha256 != place.name:
        raise PackError("cache_name", f"its manifest's sha256 is {pack.manifest_sha256}")
    if pack.manifest.blob.sha256 != receipt.blob_sha256:
        raise PackError("bad_receipt", f"it is of kernels with sha256 {receipt.blob_sha256}")
    return pack
