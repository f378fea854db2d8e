"""A lock file brings the very packs that were locked, or says what is different."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.distribution import cache, lockfile, packs, trust
from hgemm_packs.distribution.packs import HubError
from hgemm_packs.errors import PackError
from tests.distribution.hub import faults
from tests.distribution.world import BLOB, MANIFEST, REPO, World, read, sha_of


@pytest.fixture
def locked(world: World, tmp_path: Path) -> Path:
    """The lock file of the good pack, which is in the cache no more."""
    world.fetch()
    path = tmp_path / lockfile.FILE_NAME
    path.write_text(lockfile.lock([REPO]))
    cache.remove(sha_of(world.files))
    return path


def test_lock_says_where_from_and_what(world: World, locked: Path) -> None:
    document = json.loads(locked.read_text())
    assert document["schema"] == "hgemm-packs-lock/1"
    (only,) = document["packs"]
    manifest = json.loads(world.files[MANIFEST])
    assert only == {
        "name": "test-pack",
        "version": "1.0.0",
        "arch": "sm_90a",
        "repo": REPO,
        "revision": world.commit,
        "manifest_sha256": sha_of(world.files),
        "blob_sha256": manifest["blob"]["sha256"],
    }


def test_sync_brings_the_locked_commit_and_then_needs_no_network(
    world: World, locked: Path
) -> None:
    with pytest.raises(PackError, match="not_synced") as caught:
        lockfile.check(locked)
    assert f"{REPO}@{world.commit}" in str(caught.value)
    world.repo.commit(world.files | {BLOB: b"moved on"})
    done = lockfile.sync(locked, endpoint=world.server.url)
    sha = sha_of(world.files)
    assert list(done) == [sha] and read(done[sha]) == world.files
    assert lockfile.sync(locked, endpoint="http://127.0.0.1:9") == done == lockfile.check(locked)
    assert lockfile.lock([REPO]) == locked.read_text()


def test_all_packs_of_the_cache_are_locked_without_names(world: World) -> None:
    world.fetch()
    versions = [each["version"] for each in json.loads(lockfile.lock())["packs"]]
    assert versions == ["0.9.0", "1.0.0"]
    with pytest.raises(ValueError, match="is not in the cache"):
        lockfile.lock(["alice/never"])


def test_damaged_pack_is_brought_again(world: World, locked: Path) -> None:
    (path,) = lockfile.sync(locked, endpoint=world.server.url).values()
    (path / BLOB).write_bytes(faults.flipped(world.files[BLOB]))
    with pytest.raises(PackError, match="kernel_hash"):
        lockfile.check(locked)
    lockfile.sync(locked, endpoint=world.server.url)
    assert read(path) == world.files


def test_commit_with_other_bytes_is_refused(
    world: World, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even with bytes that the policy trusts: the lock is narrower."""
    policy = trust.TrustPolicy(sha256=frozenset({sha_of(world.other)}))
    monkeypatch.setattr(trust.TrustPolicy, "load", lambda: policy)
    world.repo.commits[world.commit] = world.files | {
        MANIFEST: world.other[MANIFEST],
        BLOB: world.other[BLOB],
    }
    with pytest.raises(PackError, match=r"lock_mismatch.*is not what was locked"):
        lockfile.sync(locked, endpoint=world.server.url)
    assert not (world.root / "v1" / "packs" / sha_of(world.other)).exists()


def test_commit_that_is_gone_is_refused(world: World, locked: Path) -> None:
    del world.repo.commits[world.commit]
    with pytest.raises(HubError, match="no such revision"):
        lockfile.sync(locked, endpoint=world.server.url)


@pytest.mark.parametrize(
    ("field", "value"),
    [("blob_sha256", "0" * 64), ("version", "2.0.0"), ("name", "other"), ("arch", "sm_80")],
)
def test_field_that_differs_from_the_pack_is_refused(
    world: World, locked: Path, field: str, value: str
) -> None:
    document = json.loads(locked.read_text())
    document["packs"][0][field] = value
    locked.write_text(json.dumps(document))
    with pytest.raises(PackError, match=f"lock_mismatch.*{field} is .*, the lock file says"):
        lockfile.sync(locked, endpoint=world.server.url)


def test_pack_of_no_hub_is_only_checked(world: World, tmp_path: Path) -> None:
    path = tmp_path / lockfile.FILE_NAME
    resident = packs.find("test-pack").pack
    path.write_text(lockfile.lock([resident.manifest_sha256]))
    assert list(lockfile.check(path)) == [resident.manifest_sha256]
    cache.remove(resident.manifest_sha256)
    with pytest.raises(PackError, match=r"not_synced.*never on a Hub"):
        lockfile.sync(path, endpoint=world.server.url)


def edit(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def edited(data: bytes) -> bytes:
        document = json.loads(data)
        change(document)
        return json.dumps(document).encode()

    return edited


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda data: data[:-10], "not_json"),
        (lambda data: b" " * (lockfile.MAX_LOCK_BYTES + 1), "lock_too_large"),
        (edit(lambda d: d.update(schema="hgemm-packs-lock/2")), "bad_value"),
        (edit(lambda d: d.update(more=1)), "unknown_field"),
        (edit(lambda d: d["packs"].append(d["packs"][0])), "duplicate_pack"),
        (edit(lambda d: d["packs"][0].update(revision="main")), "bad_text"),
        (edit(lambda d: d["packs"][0].update(revision=None)), "bad_source"),
        (edit(lambda d: d["packs"][0].update(repo="../../etc")), "bad_repo"),
        (edit(lambda d: d["packs"][0].update(manifest_sha256="../" + "0" * 61)), "bad_text"),
    ],
)
def test_file_that_is_no_lock_file_is_refused(
    locked: Path, change: Callable[[bytes], bytes], code: str
) -> None:
    locked.write_bytes(change(locked.read_bytes()))
    with pytest.raises(PackError) as caught:
        lockfile.sync(locked)
    assert caught.value.code == code


def test_receipt_of_another_authority_is_no_matter(world: World, locked: Path) -> None:
    """The same bytes from another repository are the same pack."""
    world.server.repos["bob/copy"] = world.repo
    world.spec = "bob/copy"
    world.fetch()
    receipt = trust.read_receipt(world.root, sha_of(world.files))
    assert receipt is not None and receipt.repo == "bob/copy"
    assert list(lockfile.check(locked)) == [sha_of(world.files)]
