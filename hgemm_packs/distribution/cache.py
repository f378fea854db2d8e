"""The cache of fetched packs: added whole or not at all, listed, aged, removed.

Called by `hub`, `packs` and the CLI; whoever opens a pack for use notes it with `touch`. Nothing
here touches the network or decides whom to trust, and no name is taken from a manifest.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import PackError, of_path
from ..pack.cache_folders import (
    DAY_S,
    base_of,
    hold_lock,
    is_sha256,
    make_all,
    make_private,
    move_out,
    new_temp,
    root_of,
    sweep,
    sweep_downloads,
    used_file,
)
from ..pack.cache_folders import touch as touch
from ..pack.folder import FILES, MANIFEST_NAME, Pack, read_file
from ..pack.manifest import MAX_MANIFEST_BYTES
from ..settings import LOGGER

#: What rename says of a folder that is there.
_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class CachedPack:
    """A pack in the cache, unread; `last_used` in seconds since the epoch."""

    path: Path
    manifest_sha256: str
    bytes: int
    last_used: float


def root() -> Path:
    """The cache's folder, made for its owner alone if it is absent.

    Raises CacheError when there is no home, or when the folder is a link, not ours, or others can
    write to it: who can write here, runs code on the GPU.
    """
    place = root_of(None)
    make_private(place)
    return place


def add(manifest_sha256: str, fill: Callable[[Path], None], root: Path | None = None) -> Path:
    """The folder of a pack; `fill` writes the pack's files into a new folder if it is not there.

    Of processes that add one pack at once, one fills and the others wait for it. A pack that is
    there but damaged is filled again. It becomes visible by one rename after its hashes are right
    and its bytes are on the disk, so a process killed anywhere leaves nothing wrong to be seen.
    What `fill` has checked beyond that (a signature) is not remembered: receipts are the caller's.

    Raises ValueError for what is no sha256, PackError when the files are not that pack, CacheError
    for an unsafe cache, OSError from the disk, and what `fill` raises.
    """
    if not is_sha256(manifest_sha256):
        raise ValueError(f"{manifest_sha256!r} is not a sha256 in lower-case hex")
    base = base_of(root)
    target = base / "packs" / manifest_sha256
    if _is_good(target):  # first of all: a read-only cache has no locks to take
        return target
    make_all(base)
    with hold_lock(base, manifest_sha256) as lock:
        if not _is_good(target):
            sweep(base, manifest_sha256, lock)
            with of_path(target):
                _put(target, fill, base / "temp")
    return target


def packs(root: Path | None = None) -> list[CachedPack]:
    """What is in the cache, by name; an absent cache is empty. Raises CacheError, OSError."""
    base = base_of(root)
    try:
        folders = sorted((base / "packs").iterdir())
    except FileNotFoundError:
        return []
    entries = (_entry(folder) for folder in folders if is_sha256(folder.name))
    return [entry for entry in entries if entry is not None]


def remove(manifest_sha256: str, root: Path | None = None) -> bool:
    """Take a pack and its receipt out; False when it was not there. Who has it open keeps it.

    Raises ValueError, CacheError, OSError.
    """
    if not is_sha256(manifest_sha256):
        raise ValueError(f"{manifest_sha256!r} is not a sha256 in lower-case hex")
    base = base_of(root)
    target = base / "packs" / manifest_sha256
    if not os.path.lexists(target):
        return False
    make_all(base)
    with hold_lock(base, manifest_sha256):
        try:
            move_out(target, base / "temp")
        except FileNotFoundError:
            return False
        for beside in (base / "receipts" / f"{manifest_sha256}.json", used_file(target)):
            beside.unlink(missing_ok=True)
    return True


def gc(
    root: Path | None = None,
    *,
    unused_days: float | None = None,
    max_bytes: int | None = None,
    dry_run: bool = False,
) -> list[CachedPack]:
    """Remove packs unused for longer than `unused_days`, then the longest unused until the rest is
    within `max_bytes`; and what killed processes left, downloads that can go on after a week.
    Returns the packs, which with `dry_run` are still there. Raises ValueError, CacheError, OSError.

    The process that uses a pack notes it once, at its start; one that runs for longer than
    `unused_days` keeps its open pack and misses it at its next start.
    """
    if min(unused_days or 0, max_bytes or 0) < 0:
        raise ValueError("unused_days and max_bytes cannot be negative")
    base = base_of(root)
    by_age = sorted(packs(root), key=lambda entry: entry.last_used)
    kept_bytes = sum(entry.bytes for entry in by_age)
    chosen = []
    for entry in by_age:
        too_old = unused_days is not None and time.time() - entry.last_used > unused_days * DAY_S
        if too_old or (max_bytes is not None and kept_bytes > max_bytes):
            chosen.append(entry)
            kept_bytes -= entry.bytes
    if not dry_run and base.exists():
        for entry in chosen:
            remove(entry.manifest_sha256, root)
        make_all(base)
        sweep(base)
        sweep_downloads(base)
    return chosen


def _put(target: Path, fill: Callable[[Path], None], temps: Path) -> None:
    temp = new_temp(target.name, temps)
    try:
        fill(temp)
        _check_pack(temp, target.name)
        for name in os.listdir(temp):
            _sync(temp / name)
        _sync(temp)
        try:
            os.rename(temp, target)
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
            if _is_good(target):  # without locks somebody else was first
                return
            LOGGER.warning("%s was damaged and is replaced", target)
            move_out(target, temps)
            os.rename(temp, target)
        _sync(target.parent)
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _is_good(target: Path) -> bool:
    try:
        _check_pack(target, target.name)
    except (OSError, PackError):
        return False
    return True


def _check_pack(folder: Path, sha: str) -> None:
    """Only known files, the manifest's hash before it is parsed, then all that `Pack` checks."""
    for name in sorted(os.listdir(folder)):
        if name not in FILES:
            raise PackError("unknown_file", f"{name!r} is not a file of a pack")
        if not stat.S_ISREG(os.lstat(folder / name).st_mode):
            raise PackError("not_regular_file", f"{name} is not a regular file")
    data = read_file(folder, MANIFEST_NAME, MAX_MANIFEST_BYTES)
    found = hashlib.sha256(data).hexdigest()
    if found != sha:
        raise PackError("manifest_hash", f"sha256 of {MANIFEST_NAME} is {found}, not {sha}")
    Pack.open_verified(folder).close()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems cannot sync a folder; a file they can.
        if error.errno != errno.EINVAL or not stat.S_ISDIR(os.fstat(handle).st_mode):
            raise
    finally:
        os.close(handle)


def _entry(folder: Path) -> CachedPack | None:
    """None for a pack that is being removed."""
    try:
        used = os.lstat(folder).st_mtime
        size = sum(os.lstat(folder / name).st_size for name in os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return None
    with suppress(FileNotFoundError):
        used = max(used, os.lstat(used_file(folder)).st_mtime)
    return CachedPack(folder, folder.name, size, used)
