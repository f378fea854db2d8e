"""The folders of the cache: private to one user, a lock for each pack, temporary folders.

Called by `cache`, and by `discover` for who owns them. Who has a temporary folder of a pack holds
that pack's lock, so what a killed process left is known by its free lock. Nothing here knows what a
pack is.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import CacheError
from ..settings import LOGGER, settings

DAY_S = 86400.0
_ANY_AGE = float("-inf")  # a file server's clock may be ahead of ours
#: What flock says where there are no locks, as on NFS without its lock daemon.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_FOLDERS = ("packs", "temp", "locks", "used")
is_sha256 = re.compile("[0-9a-f]{64}").fullmatch


def root_of(root: Path | None) -> Path:
    """The given root or that of the settings. Raises CacheError when there is neither."""
    place = root or settings().cache
    if place is None:
        raise CacheError("there is no home folder for the cache of packs: set HGEMM_PACKS_CACHE")
    return place


def base_of(root: Path | None) -> Path:
    """`v1` below the root; what exists is checked and nothing is made. Raises CacheError."""
    place = root_of(root)
    base = place / "v1"
    with suppress(FileNotFoundError):
        for folder in (place, base, base / "packs"):
            check_private(folder)
    return base


def make_all(base: Path) -> None:
    """Make what is missing of the root, `v1` and the folders in it. Raises CacheError, OSError."""
    for folder in (base.parent, base, *(base / name for name in _FOLDERS)):
        make_private(folder)


def make_private(folder: Path) -> None:
    """Make a folder for its owner alone, or check the one that is there."""
    with suppress(FileExistsError):  # a file, or a link to nowhere: the check says so
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(folder)


def check_private(folder: Path) -> None:
    """Raises CacheError unless it is a folder, no link to one, that only this user can write to."""
    facts = os.lstat(folder)
    if stat.S_ISLNK(facts.st_mode):
        raise CacheError(f"{folder} is a symbolic link: name its target instead")
    if not stat.S_ISDIR(facts.st_mode):
        raise CacheError(f"{folder} is not a folder")
    if facts.st_uid != os.geteuid():
        raise CacheError(f"{folder} belongs to user {facts.st_uid}, not to {os.geteuid()}")
    if facts.st_mode & 0o022:
        raise CacheError(f"others can write to {folder}: chmod go-w, if you trust what is in it")


class Lock(enum.Enum):
    """What came of trying to take a lock."""

    HELD = enum.auto()
    BUSY = enum.auto()
    NONE = enum.auto()  # the file system has none: work may be done twice, nothing worse


@contextmanager
def hold_lock(base: Path, sha: str, wait: bool = True) -> Iterator[Lock]:
    """Hold the lock of one pack, if it can be had; it ends with the process, however that ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(base / "locks" / f"{sha}.lock", flags, 0o600)
    try:
        lock = _flock(handle, wait)
        try:
            yield lock
        finally:
            if lock is Lock.HELD:  # closing is not enough where a child has inherited the file
                fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _flock(handle: int, wait: bool) -> Lock:
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                return Lock.BUSY
            LOGGER.info("waiting for another process that adds the same pack")
            fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        LOGGER.warning("the cache cannot be locked: %s; packs may be fetched twice", error)
        return Lock.NONE
    return Lock.HELD


def sweep(base: Path, own: str = "", own_lock: Lock = Lock.NONE) -> None:
    """Delete what dead processes left: whoever has a temporary folder alive holds its pack's lock.
    Where there are no locks a day of age has to do."""
    for temp in (base / "temp").iterdir():
        sha = temp.name[:64]
        if not is_sha256(sha):
            continue
        if sha == own:
            _delete_dead(temp, own_lock, _ANY_AGE)
        else:
            with hold_lock(base, sha, wait=False) as lock:
                _delete_dead(temp, lock, _ANY_AGE)


def sweep_downloads(base: Path) -> None:
    """Delete the downloads that ended early and that nobody has gone on with for a week."""
    with suppress(FileNotFoundError):
        for folder in (base / "downloads").iterdir():
            if is_sha256(folder.name):
                with hold_lock(base, folder.name, wait=False) as lock:
                    _delete_dead(folder, lock, 7 * DAY_S)


def _delete_dead(folder: Path, lock: Lock, least_age_s: float) -> None:
    if lock is Lock.NONE:
        least_age_s = max(least_age_s, DAY_S)
    try:
        written = max(os.lstat(each).st_mtime for each in (folder, *folder.iterdir()))
    except OSError:  # gone meanwhile, no folder, or one that may not be looked into
        return
    if lock is not Lock.BUSY and time.time() - written >= least_age_s:
        shutil.rmtree(folder, ignore_errors=True)


def new_temp(sha: str, temps: Path) -> Path:
    """A new temporary folder of a pack; the caller holds the pack's lock."""
    return Path(tempfile.mkdtemp(prefix=f"{sha}-", dir=temps))


def move_out(target: Path, temps: Path) -> None:
    """Delete a pack: by one rename at first, so that it is whole or gone. Raises OSError."""
    temp = new_temp(target.name, temps)
    try:
        os.rename(target, temp / "removed")
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def used_file(target: Path) -> Path:
    """The empty file whose time is that of a pack's last use."""
    return target.parent.parent / "used" / target.name


def touch(path: Path) -> None:
    """Note that a pack is used now. Nothing happens outside a cache or where it cannot be noted."""
    if not (is_sha256(path.name) and path.parent.name == "packs"):
        return
    try:
        handle = os.open(
            used_file(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            os.utime(handle)
        finally:
            os.close(handle)
    except OSError:
        return
