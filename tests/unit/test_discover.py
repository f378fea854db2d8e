"""Where packs are looked for, in which order, and what an unsafe place costs."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hgemm_packs import settings
from hgemm_packs.errors import PackError
from hgemm_packs.pack import discover, receipts
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.receipts import Receipt
from tests import packs

pytestmark = pytest.mark.usefixtures("clean_process")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty, private cache."""
    root = tmp_path / "cache"
    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(root))
    for part in (root, root / "v1", root / "v1" / "packs"):
        part.mkdir(mode=0o700)
    return root


def into_cache(cache: Path, version: str) -> Path:
    """A pack of its own version, under the name that it has in a cache."""
    info = packs.source([], []).pack
    pack = packs.write_good(
        cache.parent / "new", pack=type(info)(info.name, version, info.license, info.created)
    )
    receipts.write_receipt(cache, receipt_of(pack))
    return pack.path.rename(cache / "v1" / "packs" / pack.manifest_sha256)


def receipt_of(pack: Pack) -> Receipt:
    """What a user's own build gets."""
    sums = (pack.manifest_sha256, pack.manifest.blob.sha256)
    return Receipt(*sums, None, None, "sha256", None, "2026-11-20T00:00:00Z")


def provide(folder: Path, monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    """Install entry points as a wheel does; their module is folder/provider.py."""
    dist = folder / "provider-1.0.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: provider\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {target}" for name, target in points.items())
    (dist / "entry_points.txt").write_text(f"[hgemm_packs.providers]\n{lines}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "provider", raising=False)


def paths(found: list[Pack]) -> list[Path]:
    return [pack.path for pack in found]


def codes() -> list[str]:
    return [refused.error.code for refused in discover.find().refused]


def test_nothing_anywhere() -> None:
    assert discover.find() == discover.Found((), ())


def test_path_then_providers_then_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = "2026-11-20T00:00:00Z"

    def write(name: str) -> Path:
        info = packs.PackInfo(name, "1", "Apache-2.0", created)
        return packs.write_good(tmp_path / name, pack=info).path

    first, second, third, fourth = (write(f"p{i}") for i in range(4))
    cached = into_cache(cache, "9")
    (tmp_path / "provider.py").write_text(
        f"FOLDER = {str(third)!r}\n\ndef folder():\n    return {str(fourth)!r}\n"
    )
    provide(tmp_path, monkeypatch, b="provider:FOLDER", c="provider:folder")
    monkeypatch.setenv("HGEMM_PACKS_PATH", f"{second}{os.pathsep}{os.pathsep}{first}")
    found = discover.packs()
    assert paths(found) == [second, first, third, fourth, cached]
    assert codes() == []
    assert [discover.origin(each) for each in found] == [
        *("HGEMM_PACKS_PATH", "HGEMM_PACKS_PATH", "wheel provider 1.0", "wheel provider 1.0"),
        "cache, vouched for by its sha256",
    ]
    elsewhere = Pack.open(third.rename(tmp_path / "elsewhere"))
    assert discover.origin(elsewhere) == "this process", "as packs.use opens it"


def test_the_origin_of_a_cached_pack_is_its_receipt(cache: Path, tmp_path: Path) -> None:
    path = into_cache(cache, "9")
    (pack,) = discover.packs()
    signed = dataclasses.replace(
        receipt_of(pack), repo="alice/new", revision="a" * 40, authority="registry"
    )
    receipts.write_receipt(cache, signed)
    assert discover.origin(pack) == "cache of alice/new, vouched for by registry"
    (cache / "v1" / "receipts" / f"{path.name}.json").unlink()
    with pytest.raises(PackError, match="no receipt of its check"):
        discover.origin(pack)


def test_the_same_pack_in_two_places_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = packs.write_good(tmp_path / "one").path, packs.write_good(tmp_path / "two").path
    monkeypatch.setenv("HGEMM_PACKS_PATH", f"{two}{os.pathsep}{one}")
    assert paths(discover.packs()) == [two]


@pytest.mark.parametrize(
    "body",
    ["raise ImportError('broken')", "FOLDER = 3", "def FOLDER(): raise SystemError('broken')"],
)
def test_a_broken_provider_costs_one_warning(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good = packs.write_good(tmp_path / "good").path
    (tmp_path / "provider.py").write_text(body + "\n")
    provide(tmp_path, monkeypatch, a="provider:FOLDER")
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(good))
    with caplog.at_level(logging.WARNING, logger="hgemm_packs"):
        assert paths(discover.packs()) == [good]
        assert paths(discover.packs()) == [good]
    assert codes() == ["provider_failed"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit(3)",
        "class Own(BaseException): pass\ndef FOLDER(): raise Own('broken')",
        "def FOLDER(): raise GeneratorExit",
    ],
)
def test_defect_17_a_provider_that_would_end_the_process(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = packs.write_good(tmp_path / "good").path
    (tmp_path / "provider.py").write_text(f"{body}\n\nGOOD = {str(good)!r}\n")
    provide(tmp_path, monkeypatch, a="provider:FOLDER")
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(good))
    assert paths(discover.packs()) == [good]
    (refused,) = discover.find().refused
    assert (refused.place, refused.error.code) == ("provider:FOLDER", "provider_failed")


def test_a_user_who_interrupts_a_provider_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "provider.py").write_text("raise KeyboardInterrupt\n")
    provide(tmp_path, monkeypatch, a="provider:FOLDER")
    with pytest.raises(KeyboardInterrupt):
        discover.find()


def test_defect_17_a_distribution_that_cannot_be_read_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = packs.write_good(tmp_path / "good").path
    (tmp_path / "provider.py").write_text(f"FOLDER = {str(good)!r}\n")
    provide(tmp_path, monkeypatch, a="provider:FOLDER")
    later = tmp_path / "later"
    points = {"provider": b"old = provider:OLD", "foreign": b"x = \xff\xfe"}
    for name, line in points.items():  # an older provider is shadowed, as it always was
        dist = later / f"{name}-0.9.dist-info"
        dist.mkdir(parents=True)
        (dist / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9\n")
        (dist / "entry_points.txt").write_bytes(b"[hgemm_packs.providers]\n" + line + b"\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(later)])
    assert paths(discover.packs()) == [good]
    (refused,) = discover.find().refused
    assert (refused.place, refused.error.code) == ("foreign", "provider_failed")


@pytest.mark.parametrize("part", [".", "v1", "v1/packs"])
def test_a_cache_that_others_can_write_to_is_not_used(cache: Path, part: str) -> None:
    pack = into_cache(cache, "1")
    assert paths(discover.packs()) == [pack]
    (cache / part).chmod(0o777)
    assert discover.packs() == []
    assert codes() == ["cache_unsafe"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_somebody_else_is_not_used(cache: Path) -> None:
    into_cache(cache, "1")
    os.chown(cache, 65534, -1)
    assert discover.packs() == []
    assert codes() == ["cache_unsafe"]


def test_a_symlinked_cache_is_not_used(cache: Path) -> None:
    into_cache(cache, "1")
    moved = cache.rename(cache.parent / "moved")
    cache.symlink_to(moved)
    assert discover.packs() == []
    (refused,) = discover.find().refused
    assert str(refused.error).startswith(f"cache_unsafe: {cache} is a symbolic link")


def test_a_pack_in_the_cache_must_have_its_hash_as_name(cache: Path) -> None:
    pack = into_cache(cache, "1")
    other = into_cache(cache, "2")
    receipt = dataclasses.replace(receipt_of(Pack.open(pack)), manifest_sha256="a" * 64)
    receipts.write_receipt(cache, receipt)
    pack.rename(pack.with_name("a" * 64))
    assert paths(discover.packs()) == [other]
    assert codes() == ["cache_name"]


def test_a_pack_in_the_cache_must_have_a_receipt(cache: Path) -> None:
    pack = into_cache(cache, "1")
    other = into_cache(cache, "2")
    (cache / "v1" / "receipts" / f"{pack.name}.json").unlink()
    assert paths(discover.packs()) == [other]
    assert codes() == ["no_receipt"]


def test_the_receipt_of_another_pack_is_none(cache: Path) -> None:
    pack, other = into_cache(cache, "1"), into_cache(cache, "2")
    folder = cache / "v1" / "receipts"
    (folder / f"{pack.name}.json").write_bytes((folder / f"{other.name}.json").read_bytes())
    assert paths(discover.packs()) == [other]
    assert codes() == ["bad_receipt"]


def test_a_receipt_that_names_other_kernels_is_refused(cache: Path) -> None:
    pack = into_cache(cache, "1")
    receipt = dataclasses.replace(receipt_of(Pack.open(pack)), blob_sha256="b" * 64)
    receipts.write_receipt(cache, receipt)
    assert discover.packs() == []
    assert codes() == ["bad_receipt"]


def test_a_manifest_is_not_read_before_its_receipt(cache: Path) -> None:
    pack = into_cache(cache, "1")
    (cache / "v1" / "receipts" / f"{pack.name}.json").unlink()
    (pack / "manifest.json").write_bytes(b"not JSON")
    assert discover.packs() == []
    assert codes() == ["no_receipt"]


def test_packs_outside_the_cache_need_no_receipt(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = packs.write_good(tmp_path / "own").path
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(pack))
    assert paths(discover.packs()) == [pack]


def test_the_default_cache_is_below_xdg_cache_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HGEMM_PACKS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert settings.settings().cache == tmp_path / "hgemm_packs"


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Path.home raises for a user id that no one knows; matmul must not."""

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HGEMM_PACKS_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    assert settings.settings().cache is None
    assert discover.find() == discover.Found((), ())


@pytest.mark.parametrize(("value", "strict"), [("1", True), ("0", False), ("", False)])
def test_strict_is_read_once(value: str, strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HGEMM_PACKS_STRICT", value)
    assert settings.settings().strict is strict
    monkeypatch.setenv("HGEMM_PACKS_STRICT", "0" if strict else "1")
    assert settings.settings().strict is strict


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    monkeypatch.setattr(settings.LOGGER, "handlers", [])
    before = settings.LOGGER.level
    yield settings.LOGGER
    # By the method: a level that is put back as a value leaves what the logger remembers of the
    # other one, and later tests had the reasons of every decision asked of Python.
    settings.LOGGER.setLevel(before)


def test_log_level(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HGEMM_PACKS_LOG", "debug")
    settings.settings()
    logger.debug("a decision")
    assert "hgemm_packs DEBUG: a decision" in capsys.readouterr().err


def test_an_unknown_log_level_is_said_and_ignored(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HGEMM_PACKS_LOG", "loud")
    settings.settings()
    assert "LOUD is not a logging level" in caplog.text
    assert not logger.handlers
