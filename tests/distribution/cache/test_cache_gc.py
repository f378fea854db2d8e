"""The cache of packs: what is listed, what counts as a use, what is removed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hgemm_packs.distribution import cache
from hgemm_packs.pack.folder import Pack
from tests.distribution.cache.cached import DAY_S, add, contents, temps, written

pytestmark = pytest.mark.usefixtures("clean_process")


def age(path: Path, days: float) -> None:
    """Let a pack be unused for so long."""
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))
    (path.parents[1] / "used" / path.name).unlink(missing_ok=True)


def test_packs_lists_what_is_there(pack: Pack, root: Path, tmp_path: Path) -> None:
    assert cache.packs(root) == []
    folder = add(pack, root)
    other = add(written(tmp_path / "other", "2"), root)
    (root / "v1" / "packs" / "notes").mkdir()
    os.utime(folder, (0, 1000))
    os.utime(other, (0, 5000))
    entries = {entry.path: entry for entry in cache.packs(root)}
    size = sum(len(data) for data in contents(folder).values())
    assert entries[folder] == cache.CachedPack(folder, pack.manifest_sha256, size, 1000)
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
def three(root: Path, tmp_path: Path) -> list[cache.CachedPack]:
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
    three: list[cache.CachedPack],
) -> None:
    size = sum(entry.bytes for entry in three)
    limit = None if spare_bytes is None else size + spare_bytes
    removed = cache.gc(root, unused_days=unused_days, max_bytes=limit, dry_run=dry_run)
    assert removed == three[:gone]
    left = sorted(cache.packs(root), key=lambda entry: entry.last_used)
    assert left == (three if dry_run else three[gone:])
    assert temps(root) == []


def test_gc_by_size_removes_the_longest_unused_first(
    root: Path, three: list[cache.CachedPack]
) -> None:
    cache.touch(three[0].path)
    removed = cache.gc(root, max_bytes=three[0].bytes)
    assert removed == three[1:]


def test_gc_dry_run_leaves_temporary_folders(root: Path, three: list[cache.CachedPack]) -> None:
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
