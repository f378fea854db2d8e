"""The cache of packs where a disk is full or read-only, without locks, after dead processes."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.distribution import cache
from hgemm_packs.pack.cache_folders import Lock, hold_lock
from hgemm_packs.pack.folder import Pack
from tests.distribution.cache import cache_steps
from tests.distribution.cache.cached import DAY_S, add, contents, flip, no_fill, temps, written

NO_ROOM = OSError(errno.ENOSPC, "No space left on device")


def failing_from(first: int) -> tuple[cache_steps.Step, list[str]]:
    """A disk that is full from the given step on, and the steps that were asked of it."""
    asked: list[str] = []

    def step(real: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
        asked.append(name)
        if len(asked) > first:
            raise NO_ROOM
        return real(*args, **kwargs)

    return step, asked


@pytest.mark.parametrize("damaged", [False, True])
def test_a_full_disk_at_every_step(damaged: bool, pack: Pack, root: Path) -> None:
    """The add fails with the disk's own error, no wrong pack is seen, and with room it goes on."""
    first = 0
    while True:
        shutil.rmtree(root, ignore_errors=True)
        before = []
        if damaged:
            flip(add(pack, root) / "kernels.bin")
            before = [contents(entry.path) for entry in cache.packs(root)]
        step, asked = failing_from(first)
        with pytest.MonkeyPatch.context() as patch:
            cache_steps.replace(step, cache_steps.ALLOCATING, lambda n, f: patch.setattr(os, n, f))
            try:
                add(pack, root)
            except OSError as error:
                assert error is NO_ROOM
            else:
                break
        if (root / "v1" / "temp").exists():
            assert temps(root) == []
        seen = [contents(entry.path) for entry in cache.packs(root)]
        whole = contents(pack.path)
        assert seen in ([], before, [whole])
        assert contents(add(pack, root)) == whole
        first += 1
    assert first == len(asked)
    kinds = ["open", "write", "fsync", "fsync", "fsync", "rename"]
    assert [kind for kind in kinds if kind not in asked] == []
    assert asked.count("fsync") == 4 and first >= (15 if damaged else 18)


def test_threads_of_one_process_fill_once(pack: Pack, root: Path) -> None:
    fills = []

    def fill(temp: Path) -> None:
        fills.append(temp)
        time.sleep(0.05)
        cache_steps.fill_from(pack.path)(temp)

    with ThreadPoolExecutor(4) as threads:
        folders = list(threads.map(lambda _: cache.add(pack.manifest_sha256, fill, root), range(4)))
    assert len(fills) == 1 and len(set(folders)) == 1
    assert contents(folders[0]) == contents(pack.path)


def test_a_forked_child_does_not_keep_the_lock(pack: Pack, root: Path) -> None:
    """flock belongs to the open file, which a child of fork shares until it ends."""
    wait, gate = os.pipe()
    children = []

    def fill(temp: Path) -> None:
        child = os.fork()
        if not child:
            os.close(gate)
            os.read(wait, 1)
            os._exit(0)
        children.append(child)
        cache_steps.fill_from(pack.path)(temp)

    cache.add(pack.manifest_sha256, fill, root)
    try:
        with hold_lock(root / "v1", pack.manifest_sha256, wait=False) as lock:
            assert lock is Lock.HELD
        assert os.waitpid(children[0], os.WNOHANG) == (0, 0)
    finally:
        os.close(gate)
        os.close(wait)
        os.waitpid(children[0], 0)


def refuse_changes(patch: pytest.MonkeyPatch) -> None:
    """Let os refuse what a read-only file system refuses."""

    def step(real: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
        if name == "mkdir" and os.path.lexists(args[0]):
            return real(*args, **kwargs)
        raise OSError(errno.EROFS, "Read-only file system", args[0])

    cache_steps.replace(step, cache_steps.CHANGING, lambda n, f: patch.setattr(os, n, f))


def test_a_read_only_cache_is_read(pack: Pack, root: Path, tmp_path: Path) -> None:
    folder = add(pack, root)
    other = written(tmp_path / "other", "2")
    with pytest.MonkeyPatch.context() as patch:
        refuse_changes(patch)
        assert cache.add(pack.manifest_sha256, no_fill, root) == folder
        cache.touch(folder)
        (entry,) = cache.packs(root)
        assert entry.path == folder
        assert cache.gc(root, max_bytes=0, dry_run=True) == [entry]
        for change in (
            lambda: add(other, root),
            lambda: cache.remove(pack.manifest_sha256, root),
            lambda: cache.gc(root, max_bytes=0),
        ):
            with pytest.raises(OSError) as refused:
                change()
            assert refused.value.errno == errno.EROFS
    assert contents(folder) == contents(pack.path)


def test_an_absent_root_on_a_read_only_disk(pack: Pack, root: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        refuse_changes(patch)
        assert cache.packs(root) == [] and cache.gc(root, max_bytes=0) == []
        assert cache.remove(pack.manifest_sha256, root) is False
        with pytest.raises(OSError) as refused:
            add(pack, root)
        assert refused.value.errno == errno.EROFS


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_it_works_and_says_so(
    pack: Pack, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        folder = add(pack, root)
    assert contents(folder) == contents(pack.path)
    assert "No locks available; packs may be fetched twice" in caplog.text


@pytest.mark.usefixtures("no_locks")
def test_without_locks_the_first_of_two_stays(pack: Pack, root: Path) -> None:
    inode = []

    def fill(temp: Path) -> None:
        inode.append(add(pack, root).stat().st_ino)  # somebody else, meanwhile
        cache_steps.fill_from(pack.path)(temp)

    folder = cache.add(pack.manifest_sha256, fill, root)
    assert [folder.stat().st_ino] == inode
    assert temps(root) == []


@pytest.mark.usefixtures("no_locks")
def test_without_locks_what_is_left_goes_after_a_day(pack: Pack, root: Path) -> None:
    add(pack, root)
    young, old = (root / "v1" / "temp" / f"{sha * 64}-x" for sha in "ab")
    for temp in (young, old):
        temp.mkdir()
    os.utime(old, (0, time.time() - 1.01 * DAY_S))
    cache.gc(root)
    assert temps(root) == [young]


def test_another_error_of_a_lock_is_an_error(pack: Pack, root: Path, monkeypatch: Any) -> None:
    def flock(handle: int, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="Input/output error"):
        add(pack, root)


def test_a_folder_that_cannot_be_synced_is_no_error(
    pack: Pack, root: Path, monkeypatch: Any
) -> None:
    real, refused = os.fsync, []

    def fsync(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            refused.append(handle)
            raise OSError(errno.EINVAL, "Invalid argument")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    assert contents(add(pack, root)) == contents(pack.path)
    assert len(refused) == 2


def test_what_dead_processes_left_is_swept_by_the_next_writer(
    pack: Pack, root: Path, tmp_path: Path
) -> None:
    add(pack, root)
    other = written(tmp_path / "other", "2")
    own, dead, alive = (f"{sha}-x" for sha in (other.manifest_sha256, "a" * 64, "b" * 64))
    for name in (own, dead, alive, "notes"):
        (root / "v1" / "temp" / name).mkdir()
        (root / "v1" / "temp" / name / "kernels.bin").write_bytes(b"half")
    ahead = time.time() + DAY_S  # of a file server's clock
    os.utime(root / "v1" / "temp" / dead, (0, ahead))
    with open(root / "v1" / "locks" / f"{'b' * 64}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        add(pack, root)
        assert {temp.name for temp in temps(root)} == {own, dead, alive, "notes"}
        add(other, root)
        assert {temp.name for temp in temps(root)} == {alive, "notes"}
    cache.gc(root)
    assert {temp.name for temp in temps(root)} == {"notes"}


@pytest.mark.parametrize("place", ["temp", "downloads"])
def test_defect_14_a_stray_file_is_stepped_over(place: str, pack: Pack, root: Path) -> None:
    folder = root / "v1" / place
    folder.mkdir(parents=True, mode=0o700)
    for part in (root, root / "v1"):
        part.chmod(0o700)
    (folder / ("a" * 64)).write_bytes(b"stray")
    (folder / ("b" * 64)).symlink_to(folder / ("a" * 64))
    added = add(pack, root)
    cache.gc(root)
    assert [entry.path for entry in cache.packs(root)] == [added]
    assert {each.name[0] for each in folder.iterdir()} == {"a", "b"}


def test_gc_leaves_a_download_a_week_to_be_gone_on_with(pack: Pack, root: Path) -> None:
    add(pack, root)
    cache.gc(root)  # there is no folder of downloads yet
    downloads = root / "v1" / "downloads"
    week_ago = time.time() - 7.01 * DAY_S
    for name, then in (("a", week_ago), ("b", week_ago), ("c", time.time())):
        folder = downloads / (name * 64)
        folder.mkdir(parents=True)
        (folder / "kernels.bin").write_bytes(b"half")
        os.utime(folder / "kernels.bin", (0, then))
        os.utime(folder, (0, week_ago))
    with open(root / "v1" / "locks" / f"{'b' * 64}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cache.gc(root)
    assert sorted(folder.name[0] for folder in downloads.iterdir()) == ["b", "c"]
