"""Where packs come from: the tables of this machine, HGEMM_PACKS_PATH, installed provider wheels,
the cache; in this order.

Called by `select` once per process and by the CLI. A pack that is refused costs one warning and is
remembered with its reason; it never stops the search and never raises. No network, ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import CacheError, PackError
from ..problem import Reason
from ..settings import LOGGER, settings
from .cache_folders import check_private
from .folder import Pack
from .local import place as local

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PROVIDERS_GROUP = "hgemm_packs.providers"


class Refused(NamedTuple):
    """A place that was asked to be a pack, and why it is none."""

    place: str
    error: PackError


class Found(NamedTuple):
    """Packs in search order, and what was refused on the way."""

    packs: tuple[Pack, ...]
    refused: tuple[Refused, ...]

    def reasons(self, alone: bool) -> list[Reason]:
        """What speaks against packs that were not asked; with `alone` at least that there is
        none."""
        reasons = []
        for refused in self.refused:
            code = "launcher_abi" if refused.error.code == "launcher_abi" else "pack_refused"
            reasons.append(Reason(code, f"{refused.place}: {refused.error}"))
        if alone and not reasons:
            reasons.append(Reason("no_pack", "no pack is installed"))
        return reasons


_warned: set[tuple[str, str]] = set()
#: Entry points of wheels by the folder that they provided.
_providers: dict[Path, EntryPoint] = {}


def packs() -> list[Pack]:
    """The usable packs in search order; see `find`."""
    return list(find().packs)


def find() -> Found:
    """Look at every place once, and open what is there."""
    return _open_all(_places())


def renew_local(found: Found) -> Found:
    """The same packs with the tables of this machine as they are now."""
    fresh = _open_all(_find_local())
    others = tuple(pack for pack in found.packs if not pack.local)
    known = {refused.place for refused in fresh.refused}
    refused = tuple(
        each for each in found.refused if each.place not in known and not _is_local(each.place)
    )
    return Found((*fresh.packs, *others), (*fresh.refused, *refused))


def put_first(pack: Pack, others: Iterable[Pack]) -> tuple[Pack, ...]:
    """`pack` before the others, behind those of this machine alone."""
    rest = (each for each in others if each.manifest_sha256 != pack.manifest_sha256)
    return tuple(sorted((pack, *rest), key=lambda each: not each.local))


def drop(pack: Pack, found: Found, error: PackError) -> Found:
    """What is left when `pack` is refused; one of this machine is put away."""
    refused = Refused(str(pack.path.parent if pack.local else pack.path), error)
    if pack.local:
        local.put_away(pack.path, error)
    warn_once(refused)
    rest = tuple(each for each in found.packs if each is not pack)
    return Found(rest, (*found.refused, refused)) if len(rest) < len(found.packs) else found


def _open_all(places: Iterable[Path | Refused]) -> Found:
    opened: list[Pack] = []
    refused: list[Refused] = []
    seen: set[str] = set()
    for place in places:
        if isinstance(place, Refused):
            refused.append(place)
            continue
        try:
            pack = open_pack(place)
        except PackError as error:
            refused.append(Refused(str(place), error))
            continue
        except Exception as error:  # whatever reading a pack comes to, the others are to be used
            detail = f"{type(error).__name__}: {error}"
            refused.append(Refused(str(place), PackError("unreadable", detail)))
            continue
        if pack.manifest_sha256 not in seen:
            seen.add(pack.manifest_sha256)
            opened.append(pack)
    for each in refused:
        warn_once(each)
    return Found(tuple(opened), tuple(refused))


def warn_once(refused: Refused) -> None:
    """Say that a pack is refused, once for each reason."""
    # The log and not warnings.warn: under -W error a warning would raise inside matmul.
    key = (refused.place, refused.error.code)
    if key not in _warned:
        _warned.add(key)
        LOGGER.warning("pack ignored: %s: %s", refused.place, refused.error)


def _places() -> Iterator[Path | Refused]:
    yield from _find_local()
    yield from settings().path
    yield from _find_provided()
    yield from _find_cached()


def _find_local() -> Iterator[Path | Refused]:
    """Folders of tables that this machine has measured."""
    root = settings().cache
    try:
        yield from local.find_folders(root) if root is not None else ()
    except CacheError as error:
        yield Refused(str(local.base_of(root or Path())), PackError("cache_unsafe", str(error)))
    except OSError as error:
        yield Refused(str(local.base_of(root or Path())), PackError("unreadable", str(error)))


def _is_local(place: Path | str) -> bool:
    root = settings().cache
    return root is not None and Path(place).parent == local.base_of(root)


def _find_provided() -> Iterator[Path | Refused]:
    """Paths of installed provider wheels: entry points that are a path or return one."""
    points, failed = _entry_points()
    yield from failed
    for point in sorted(points, key=lambda p: p.name):
        try:
            value = point.load()
            place = Path(os.fspath(value() if callable(value) else value))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # somebody else's code may raise anything, SystemExit too
            yield _refuse_provider(point.value, error)
        else:
            _providers[place] = point
            yield place


def origin(pack: Pack) -> str:
    """Where a pack of this process is from, and of one in the cache who vouched for it. Raises
    PackError for a receipt that has changed since."""
    root = settings().cache
    if pack.local:
        return "measured on this machine by `hgemm-packs tune`"
    if pack.path in settings().path:
        return "HGEMM_PACKS_PATH"
    if pack.path in _providers:
        wheel = _providers[pack.path].dist
        return f"wheel {wheel.name} {wheel.version}" if wheel else "a wheel"
    if root is None or pack.path.parent != root / "v1" / "packs":
        return "this process"
    from .receipts import read_receipt

    receipt = read_receipt(root, pack.path.name)
    if receipt is None:
        raise PackError("no_receipt", "the pack has no receipt of its check: fetch it again")
    place = f" of {receipt.repo}" if receipt.repo else ""
    who = "its sha256" if receipt.authority == "sha256" else receipt.vouched
    return f"cache{place}, vouched for by {who}"


def _entry_points() -> tuple[list[EntryPoint], list[Refused]]:
    """Those of the providers, and the distributions whose own could not be read."""
    from importlib import metadata

    with suppress(Exception):
        return list(metadata.entry_points(group=PROVIDERS_GROUP)), []
    # One distribution that is damaged, anybody's, spoils them all: each by itself, which is slow.
    points: list[EntryPoint] = []
    failed, seen = [], set()
    for each in metadata.distributions():
        place = str(each.locate_file(""))
        try:
            place = each.metadata["Name"] or place
            if place not in seen:  # of one name the first on the path counts, as above
                points += each.entry_points.select(group=PROVIDERS_GROUP)
        except Exception as error:
            failed.append(_refuse_provider(place, error))
        seen.add(place)
    return points, failed


def _refuse_provider(place: str, error: BaseException) -> Refused:
    return Refused(place, PackError("provider_failed", f"{type(error).__name__}: {error}"))


def _find_cached() -> Iterator[Path | Refused]:
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
    a receipt, which is looked at before the manifest is read. A folder of this machine's tables has
    one that counts."""
    root = settings().cache
    if _is_local(place):
        return local.open_table(place)
    if root is None or place.parent != root / "v1" / "packs":
        return Pack.open(place)
    from .receipts import read_receipt

    receipt = read_receipt(root, place.name)
    if receipt is None:
        raise PackError("no_receipt", "the pack has no receipt of its check: fetch it again")
    pack = Pack.open(place)
    if pack.manifest_sha256 != place.name:
        raise PackError("cache_name", f"the manifest of the pack has sha256 {pack.manifest_sha256}")
    if pack.manifest.blob.sha256 != receipt.blob_sha256:
        raise PackError(
            "bad_receipt", f"the receipt is of kernels with sha256 {receipt.blob_sha256}"
        )
    return pack
