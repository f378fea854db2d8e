"""The cache of packs: whose folder it takes, which packs it takes and refuses, how it mends."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.distribution import cache
from hgemm_packs.errors import CacheError, PackError
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import MAX_MANIFEST_BYTES
from tests.distribution.cache import cache_steps
from tests.distribution.cache.cached import add, contents, flip, no_fill, temps

pytestmark = pytest.mark.usefixtures("clean_process")


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
