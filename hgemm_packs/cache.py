"""The cache of fetched packs: added whole or not at all, listed, aged, removed.

Called by `hub`, `packs` and the CLI; `select` notes a use with `touch`. Whoever has a temporary
folder of a pack holds that pack's lock, so what a killed process left is known by its free lock.
Nothing here touches the network, and no name is taken from a manifest.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .errors import CacheError, PackError
from .manifest import MAX_MANIFEST_BYTES
from .pack import BLOB_NAME, MANIFEST_NAME, Pack
from .settings import LOGGER, settings

#: Every file that a pack may have.
FILES = (
    MANIFEST_NAME,
    BLOB_NAME,
    "manifest.json.sigstore",
    "manifest.json.sig",
    "LICENSE",
    "REPORT.md",
    "README.md",
)

_DAY_S = 86400.0
#: What flock says where there are no locks, as on NFS without its lock daemon.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
_is_sha256 = re.compile("[0-9a-f]{64}").fullmatch


@dataclass(frozen=True, slots=True)
class Entry:
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
    place = _place(None)
    _make_private(place)
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
    if not _is_sha256(manifest_sha256):
        raise ValueError(f"{manifest_sha256!r} is not a sha256 in lower-case hex")
    base = _base(root)
    target = base / "packs" / manifest_sha256
    if _is_good(target):  # first of all: a read-only cache has no locks to take
        return target
    _make(base)
    with _locked(base, manifest_sha256) as lock:
        if not _is_good(target):
            _sweep(base, manifest_sha256, lock)
            _put(target, fill, base / "temp")
    return target


def packs(root: Path | None = None) -> list[Entry]:
    """What is in the cache, by name; an absent cache is empty. Raises CacheError, OSError."""
    base = _base(root)
    try:
        folders = sorted((base / "packs").iterdir())
    except FileNotFoundError:
        return []
    entries = (_entry(folder) for folder in folders if _is_sha256(folder.name))
    return [entry for entry in entries if entry is not None]


def touch(path: Path) -> None:
    """Note that a pack is used now. Nothing happens outside a cache or where it cannot be noted."""
    if not (_is_sha256(path.name) and path.parent.name == "packs"):
        return
    try:
        handle = os.open(
            _used(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            os.utime(handle)
        finally:
            os.close(handle)
    except OSError:
        return


def remove(manifest_sha256: str, root: Path | None = None) -> bool:
    """Take a pack and its receipt out; False when it was not there. Who has it open keeps it.

    Raises ValueError, CacheError, OSError.
    """
    if not _is_sha256(manifest_sha256):
        raise ValueError(f"{manifest_sha256!r} is not a sha256 in lower-case hex")
    base = _base(root)
    target = base / "packs" / manifest_sha256
    if not os.path.lexists(target):
        return False
    _make(base)
    with _locked(base, manifest_sha256):
        try:
            _move_out(target, base / "temp")
        except FileNotFoundError:
            return False
        for beside in (base / "receipts" / f"{manifest_sha256}.json", _used(target)):
            beside.unlink(missing_ok=True)
    return True


def gc(
    root: Path | None = None,
    *,
    unused_days: float | None = None,
    max_bytes: int | None = None,
    dry_run: bool = False,
) -> list[Entry]:
    """Remove packs unused for longer than `unused_days`, then the longest unused until the rest is
    within `max_bytes`; and what killed processes left. Returns the packs, which with `dry_run` are
    still there. Raises ValueError, CacheError, OSError.

    The process that uses a pack notes it once, at its start; one that runs for longer than
    `unused_days` keeps its open pack and misses it at its next start.
    """
    if min(unused_days or 0, max_bytes or 0) < 0:
        raise ValueError("unused_days and max_bytes cannot be negative")
    base = _base(root)
    by_age = sorted(packs(root), key=lambda entry: entry.last_used)
    kept_bytes = sum(entry.bytes for entry in by_age)
    chosen = []
    for entry in by_age:
        too_old = unused_days is not None and time.time() - entry.last_used > unused_days * _DAY_S
        if too_old or (max_bytes is not None and kept_bytes > max_bytes):
            chosen.append(entry)
            kept_bytes -= entry.bytes
    if not dry_run and base.exists():
        for entry in chosen:
            remove(entry.manifest_sha256, root)
        _make(base)
        _sweep(base)
    return chosen


def _place(root: Path | None) -> Path:
    place = root or settings().cache
    if place is None:
        raise CacheError("there is no home to keep packs in: set HGEMM_PACKS_CACHE")
    return place


def _base(root: Path | None) -> Path:
    """`v1` below the root, what of both exists checked and nothing made."""
    place = _place(root)
    for folder in (place, place / "v1", place / "v1" / "packs"):
        try:
            _check_private(folder)
        except FileNotFoundError:
            break
    return place / "v1"


def _make(base: Path) -> None:
    for folder in (base.parent, base, *(base / n for n in ("packs", "temp", "locks", "used"))):
        _make_private(folder)


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        pass  # a file, or a link to nowhere: the check says so
    _check_private(folder)


def _check_private(folder: Path) -> None:
    facts = os.lstat(folder)
    if stat.S_ISLNK(facts.st_mode):
        raise CacheError(f"{folder} is a symbolic link: name the folder that it leads to")
    if not stat.S_ISDIR(facts.st_mode):
        raise CacheError(f"{folder} is not a folder")
    if facts.st_uid != os.geteuid():
        raise CacheError(f"{folder} belongs to user {facts.st_uid}, not to {os.geteuid()}")
    if facts.st_mode & 0o022:
        raise CacheError(f"others can write to {folder}: chmod go-w, if you trust what is in it")


class _Lock(enum.Enum):
    HELD = enum.auto()
    BUSY = enum.auto()
    NONE = enum.auto()  # the file system has none: work may be done twice, nothing worse


@contextmanager
def _locked(base: Path, sha: str, wait: bool = True) -> Iterator[_Lock]:
    """Try to hold the lock of one pack; it goes with the process, however that ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(base / "locks" / f"{sha}.lock", flags, 0o600)
    try:
        lock = _flock(handle, sha, wait)
        yield lock
        if lock is _Lock.HELD:  # closing is not enough where a child has inherited the file
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _flock(handle: int, sha: str, wait: bool) -> _Lock:
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                return _Lock.BUSY
            LOGGER.info("waiting for the process that adds pack %s", sha)
            fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        LOGGER.warning("no locks in the cache: %s; packs may be fetched twice", error)
        return _Lock.NONE
    return _Lock.HELD


def _sweep(base: Path, own: str = "", own_lock: _Lock = _Lock.NONE) -> None:
    """Delete what dead processes left: whoever has a temporary folder alive holds its pack's lock.
    Where there are no locks a day of age has to do."""
    for temp in (base / "temp").iterdir():
        sha = temp.name[:64]
        if not _is_sha256(sha):
            continue
        if sha == own:
            _delete_dead(temp, own_lock)
        else:
            with _locked(base, sha, wait=False) as lock:
                _delete_dead(temp, lock)


def _delete_dead(temp: Path, lock: _Lock) -> None:
    try:
        old = time.time() - os.lstat(temp).st_mtime > _DAY_S
    except FileNotFoundError:
        return
    if lock is _Lock.HELD or (lock is _Lock.NONE and old):
        shutil.rmtree(temp, ignore_errors=True)


def _put(target: Path, fill: Callable[[Path], None], temps: Path) -> None:
    temp = _new_temp(target.name, temps)
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
            _move_out(target, temps)
            os.rename(temp, target)
        _sync(target.parent)
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _new_temp(sha: str, temps: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{sha}-", dir=temps))


def _move_out(target: Path, temps: Path) -> None:
    """Rename first, delete then: a pack is whole or gone."""
    temp = _new_temp(target.name, temps)
    try:
        os.rename(target, temp / "removed")
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
    manifest = folder / MANIFEST_NAME
    try:
        size = manifest.stat().st_size
        if size > MAX_MANIFEST_BYTES:
            raise PackError("manifest_too_large", f"{size} bytes, not at most {MAX_MANIFEST_BYTES}")
        found = hashlib.sha256(manifest.read_bytes()).hexdigest()
    except FileNotFoundError:
        raise PackError("missing_file", f"{MANIFEST_NAME} is missing") from None
    if found != sha:
        raise PackError("manifest_hash", f"sha256 of {MANIFEST_NAME} is {found}, not {sha}")
    Pack.open(folder).close()


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


def _used(target: Path) -> Path:
    return target.parent.parent / "used" / target.name


def _entry(folder: Path) -> Entry | None:
    """None for a pack that is being removed."""
    try:
        used = os.lstat(folder).st_mtime
        size = sum(os.lstat(folder / name).st_size for name in os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        used = max(used, os.lstat(_used(folder)).st_mtime)
    except FileNotFoundError:
        pass
    return Entry(folder, folder.name, size, used)
