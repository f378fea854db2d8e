"""The cache of packs in one process: what it takes, refuses, mends, ages and removes."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs import cache
from hgemm_packs.errors import CacheError, PackError
from hgemm_packs.manifest import MAX_MANIFEST_BYTES
from hgemm_packs.pack import Pack
from tests import packs
from tests.hub import cache_steps

pytestmark = pytest.mark.usefixtures("clean_process")

DAY_S = 86400.0
NO_ROOM = OSError(errno.ENOSPC, "No space left on device")


def no_fill(temp: Path) -> None:
    raise AssertionError(f"fill was called for {temp}")


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def written(folder: Path, version: str) -> Pack:
    info = packs.PackInfo("test-pack", version, "Apache-2.0", "2026-11-20T00:00:00Z")
    return packs.write_good(folder, pack=info)


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return written(tmp_path / "source", "1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def add(pack: Pack, root: Path) -> Path:
    return cache.add(pack.manifest_sha256, cache_steps.fill_from(pack.path), root)


def temps(root: Path) -> list[Path]:
    return list((root / "v1" / "temp").iterdir())


def age(path: Path, days: float) -> None:
    """Let a pack be unused for so long."""
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))
    (path.parents[1] / "used" / path.name).unlink(missing_ok=True)


# The folder


def test_the_root_is_made_for_its_owner_alone(tmp_path: Path, monkeypatch: Any) -> None:
    place = tmp_path / "home" / ".cache" / "hgemm_packs"
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(place))
    assert cache.root() == place
    assert place.stat().st_mode & 0o7777 == 0o700
    assert cache.root() == place


def test_without_a_home_there_is_no_root(monkeypatch: Any) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HGEMM_PACKS_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(CacheError, match="set HGEMM_PACKS_CACHE"):
        cache.root()


def link(place: Path) -> None:
    shutil.move(place, place.with_name("moved"))
    place.symlink_to(place.with_name("moved"))


def dangle(place: Path) -> None:
    shutil.rmtree(place)
    place.symlink_to(place.with_name("nothing"))


def file(place: Path) -> None:
    shutil.rmtree(place)
    place.touch()


UNSAFE: dict[str, tuple[Callable[[Path], None], str]] = {
    "link": (link, "is a symbolic link"),
    "dangling": (dangle, "is a symbolic link"),
    "file": (file, "is not a folder"),
    "group": (lambda place: place.chmod(0o770), "others can write to"),
    "world": (lambda place: place.chmod(0o707), "others can write to"),
}


@pytest.mark.parametrize("part", [".", "v1", "v1/packs"])
@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_folder_is_refused(
    name: str, part: str, pack: Pack, root: Path, monkeypatch: Any
) -> None:
    add(pack, root)
    spoil, text = UNSAFE[name]
    spoil(root / part)
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(root))
    for use in (
        lambda: cache.add(pack.manifest_sha256, no_fill, root),
        lambda: cache.packs(root),
        lambda: cache.remove(pack.manifest_sha256, root),
        lambda: cache.gc(root, unused_days=0),
        *([cache.root] if part == "." else []),
    ):
        with pytest.raises(CacheError, match=text):
            use()


@pytest.mark.parametrize("part", ["v1/temp", "v1/locks"])
def test_an_unsafe_working_folder_is_refused(part: str, pack: Pack, root: Path) -> None:
    add(pack, root)
    (root / part).chmod(0o777)
    with pytest.raises(CacheError, match="others can write to"):
        cache.remove(pack.manifest_sha256, root)
    with pytest.raises(CacheError, match="others can write to"):
        cache.add("0" * 64, no_fill, root)


def test_a_folder_of_somebody_else_is_refused(pack: Pack, root: Path, monkeypatch: Any) -> None:
    add(pack, root)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(CacheError, match=f"belongs to user {mine}, not to {mine + 1}"):
        cache.packs(root)
    with pytest.raises(CacheError, match="belongs to user"):
        cache.add(pack.manifest_sha256, no_fill, root)


# Adding


def test_a_pack_is_filled_once_and_has_the_bytes_of_its_source(pack: Pack, root: Path) -> None:
    for name in ("manifest.json.sigstore", "manifest.json.sig", "LICENSE", "REPORT.md"):
        (pack.path / name).write_text(name)
    (pack.path / "README.md").write_bytes(b"")
    folder = add(pack, root)
    assert folder == root / "v1" / "packs" / pack.manifest_sha256
    assert contents(folder) == contents(pack.path)
    assert folder.stat().st_mode & 0o7777 == 0o700
    assert temps(root) == []
    assert cache.add(pack.manifest_sha256, no_fill, root) == folder


def test_without_a_root_the_settings_say_where(pack: Pack, root: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(root))
    folder = cache.add(pack.manifest_sha256, cache_steps.fill_from(pack.path))
    assert folder.parents[2] == root
    assert [entry.path for entry in cache.packs()] == [folder]


@pytest.mark.parametrize("name", ["", "../x", "A" * 64, "0" * 63, "0" * 64 + "\n", "latest"])
def test_a_name_that_is_no_hash_is_refused(name: str, root: Path) -> None:
    with pytest.raises(ValueError, match="is not a sha256"):
        cache.add(name, no_fill, root)
    with pytest.raises(ValueError, match="is not a sha256"):
        cache.remove(name, root)
    assert not root.exists()


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def to_link(path: Path) -> None:
    path.rename(path.with_name("LICENSE"))
    path.symlink_to("LICENSE")


WRONG: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "manifest": ("manifest_hash", lambda p: flip(p / "manifest.json", 100)),
    "no manifest": ("missing_file", lambda p: (p / "manifest.json").unlink()),
    "long manifest": (
        "manifest_too_large",
        lambda p: os.truncate(p / "manifest.json", MAX_MANIFEST_BYTES + 1),
    ),
    "blob": ("kernel_hash", lambda p: flip(p / "kernels.bin")),
    "short blob": ("blob_size", lambda p: os.truncate(p / "kernels.bin", 100)),
    "no blob": ("missing_file", lambda p: (p / "kernels.bin").unlink()),
    "linked manifest": ("not_regular_file", lambda p: to_link(p / "manifest.json")),
    "linked blob": ("not_regular_file", lambda p: to_link(p / "kernels.bin")),
    "another file": ("unknown_file", lambda p: (p / "setup.py").touch()),
    "a folder": ("not_regular_file", lambda p: (p / "LICENSE").mkdir()),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_and_leave_nothing(name: str, pack: Pack, root: Path) -> None:
    code, spoil = WRONG[name]

    def fill(temp: Path) -> None:
        shutil.copytree(pack.path, temp, dirs_exist_ok=True)
        spoil(temp)

    with pytest.raises(PackError) as refused:
        cache.add(pack.manifest_sha256, fill, root)
    assert refused.value.code == code
    assert cache.packs(root) == [] and temps(root) == []
    assert contents(add(pack, root)) == contents(pack.path)


@pytest.mark.parametrize("name", WRONG)
def test_a_pack_that_was_damaged_is_filled_again(
    name: str, pack: Pack, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = add(pack, root)
    WRONG[name][1](folder)
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        assert add(pack, root) == folder
    assert contents(folder) == contents(pack.path)
    assert temps(root) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"{folder} was damaged and is replaced"
    ]


def test_a_damaged_pack_stays_until_there_is_another(pack: Pack, root: Path) -> None:
    folder = add(pack, root)
    flip(folder / "kernels.bin")
    before = contents(folder)

    def fill(temp: Path) -> None:
        raise ConnectionError("no network")

    with pytest.raises(ConnectionError, match="no network"):
        cache.add(pack.manifest_sha256, fill, root)
    assert contents(folder) == before and temps(root) == []


@pytest.mark.parametrize("error", [ConnectionError("gone"), KeyboardInterrupt()])
def test_a_fill_that_breaks_off_leaves_nothing(
    error: BaseException, pack: Pack, root: Path
) -> None:
    def fill(temp: Path) -> None:
        (temp / "manifest.json").write_bytes(b"{")
        raise error

    with pytest.raises(type(error)):
        cache.add(pack.manifest_sha256, fill, root)
    assert cache.packs(root) == [] and temps(root) == []
    assert add(pack, root).is_dir()


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


# A read-only place, a place without locks


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


# What killed processes leave


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


def test_gc_leaves_a_download_a_week_to_be_gone_on_with(pack: Pack, root: Path) -> None:
    add(pack, root)
    cache.gc(root)  # there is no folder of downloads yet
    downloads = root / "v1" / "downloads"
    week_ago = time.time() - 7.01 * DAY_S
    for name, written in (("a", week_ago), ("b", week_ago), ("c", time.time())):
        folder = downloads / (name * 64)
        folder.mkdir(parents=True)
        (folder / "kernels.bin").write_bytes(b"half")
        os.utime(folder / "kernels.bin", (0, written))
        os.utime(folder, (0, week_ago))
    with open(root / "v1" / "locks" / f"{'b' * 64}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cache.gc(root)
    assert sorted(folder.name[0] for folder in downloads.iterdir()) == ["b", "c"]


# Listing, use and removal


def test_packs_lists_what_is_there(pack: Pack, root: Path, tmp_path: Path) -> None:
    assert cache.packs(root) == []
    folder = add(pack, root)
    other = add(written(tmp_path / "other", "2"), root)
    (root / "v1" / "packs" / "notes").mkdir()
    os.utime(folder, (0, 1000))
    os.utime(other, (0, 5000))
    entries = {entry.path: entry for entry in cache.packs(root)}
    size = sum(len(data) for data in contents(folder).values())
    assert entries[folder] == cache.Entry(folder, pack.manifest_sha256, size, 1000)
    assert entries.keys() == {folder, other} and entries[other].last_used == 5000


def test_touch_is_the_last_use(pack: Pack, root: Path) -> None:
    folder = add(pack, root)
    age(folder, 30)
    (before,) = cache.packs(root)
    start = time.time()
    for _ in range(2):
        cache.touch(folder)
        (after,) = cache.packs(root)
        assert start - 1 <= after.last_used <= time.time() + 1
    assert start - before.last_used > 29.9 * DAY_S
    os.utime(root / "v1" / "used" / folder.name, (0, 7 * DAY_S))
    (old,) = cache.packs(root)
    assert old.last_used == before.last_used  # never before it was added


def test_touch_outside_a_cache_does_nothing(pack: Pack, tmp_path: Path) -> None:
    lonely = tmp_path / "packs" / pack.manifest_sha256
    lonely.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    cache.touch(lonely)
    cache.touch(pack.path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def three(root: Path, tmp_path: Path) -> list[cache.Entry]:
    """Unused for 30, 20 and 10 days."""
    folders = [add(written(tmp_path / f"p{version}", version), root) for version in "123"]
    for folder, days in zip(folders, (30, 20, 10), strict=True):
        age(folder, days)
    return sorted(cache.packs(root), key=lambda entry: entry.last_used)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("unused_days", "spare_bytes", "gone"),
    [
        (None, None, 0),
        (31, None, 0),
        (25, None, 1),
        (15, None, 2),
        (0, None, 3),
        (None, 0, 0),
        (None, -1, 1),
        (25, -1, 1),
        (15, 0, 2),
    ],
)
def test_gc(
    unused_days: float | None,
    spare_bytes: int | None,
    gone: int,
    dry_run: bool,
    root: Path,
    three: list[cache.Entry],
) -> None:
    size = sum(entry.bytes for entry in three)
    limit = None if spare_bytes is None else size + spare_bytes
    removed = cache.gc(root, unused_days=unused_days, max_bytes=limit, dry_run=dry_run)
    assert removed == three[:gone]
    left = sorted(cache.packs(root), key=lambda entry: entry.last_used)
    assert left == (three if dry_run else three[gone:])
    assert temps(root) == []


def test_gc_by_size_removes_the_longest_unused_first(root: Path, three: list[cache.Entry]) -> None:
    cache.touch(three[0].path)
    removed = cache.gc(root, max_bytes=three[0].bytes)
    assert removed == three[1:]


def test_gc_dry_run_leaves_temporary_folders(root: Path, three: list[cache.Entry]) -> None:
    (root / "v1" / "temp" / ("a" * 64 + "-x")).mkdir()
    cache.gc(root, dry_run=True)
    assert len(temps(root)) == 1


@pytest.mark.parametrize("limits", [{"unused_days": -1}, {"max_bytes": -1}])
def test_gc_of_less_than_nothing(limits: dict[str, int], root: Path) -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        cache.gc(root, **limits)  # type: ignore[arg-type]


def test_gc_of_an_absent_cache_makes_none(root: Path) -> None:
    assert cache.gc(root, unused_days=0) == []
    assert not root.exists()


def test_remove_takes_receipt_and_last_use_along(pack: Pack, root: Path, tmp_path: Path) -> None:
    folder, kept = add(pack, root), add(written(tmp_path / "other", "2"), root)
    receipts = root / "v1" / "receipts"
    receipts.mkdir()
    for each in (folder, kept):
        (receipts / f"{each.name}.json").write_text("{}")
        cache.touch(each)
    assert cache.remove(pack.manifest_sha256, root) is True
    assert [entry.path for entry in cache.packs(root)] == [kept]
    assert [file.name for file in receipts.iterdir()] == [f"{kept.name}.json"]
    assert [file.name for file in (root / "v1" / "used").iterdir()] == [kept.name]
    assert temps(root) == []
    assert cache.remove(pack.manifest_sha256, root) is False
    assert contents(add(pack, root)) == contents(pack.path)
