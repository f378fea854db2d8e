"""What names a pack on the Hub: a branch that cannot go back, a name of the registry, a spec."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hgemm_packs.distribution import cache, hub, packs, signatures, trust
from hgemm_packs.distribution.trust import Pin
from hgemm_packs.errors import TrustError
from hgemm_packs.pack.manifest import PackInfo
from tests.distribution.hub import faults
from tests.distribution.trust.sigstore_world import write_key
from tests.distribution.world import BLOB, MANIFEST, REPO, World, read, sha_of, tree
from tests.packs import write_good


def signed(place: Path, key: Path, created: str, name: str = "test-pack") -> dict[str, bytes]:
    """The files of a pack that was made and signed at some time."""
    made = write_good(place, pack=PackInfo(name, "2.0.0", "Apache-2.0", created))
    signatures.sign_key(made.path, key)
    return read(made.path)


def test_a_server_cannot_go_back_to_a_pack_that_its_signer_has_replaced(
    world: World, tmp_path: Path
) -> None:
    old, first = world.commit, world.fetch()
    files = signed(tmp_path / "new", world.private_key, "2026-12-01T00:00:00Z")
    world.repo.commit(files)
    newest = world.fetch()
    assert newest.name == sha_of(files)
    world.repo.branches["main"] = old
    before = tree(world.root)
    words = "1.0.0 of 2026-11-20T00:00:00Z is older than 2.0.0 of 2026-12-01T00:00:00Z"
    with pytest.raises(TrustError, match=words):
        world.fetch()
    assert tree(world.root) == before
    world.spec = f"{REPO}@{old}"  # the user names it, and it is here
    assert world.fetch() == first
    cache.remove(first.name)
    for world.spec in (REPO, f"{REPO}@{old}"):  # only the server says that it is this
        with pytest.raises(TrustError, match="older_pack"):
            world.fetch()
    world.allow.append(f"sha256:{sha_of(world.files)}")
    assert world.fetch() == first and newest.exists()


@pytest.mark.parametrize("differs", ["name", "signer", "time"])
def test_what_is_no_step_back(differs: str, world: World, tmp_path: Path) -> None:
    key = world.private_key
    if differs == "signer":
        key, public = write_key(tmp_path, "bob")
        world.allow.append(f"key:{public}")
    created = "2026-11-20T00:00:00Z" if differs == "time" else "2026-12-01T00:00:00Z"
    name = "another-pack" if differs == "name" else "test-pack"
    good = world.commit
    world.repo.commit(signed(tmp_path / "new", key, created, name))
    world.fetch()
    world.repo.branches["main"] = good
    assert world.fetch().name == sha_of(world.files)


def test_name_of_the_registry_is_its_commit_and_its_bytes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = Pin("official", REPO, world.commit, sha_of(world.files))
    monkeypatch.setattr(trust, "registry", lambda: {"official": pin})
    world.spec, world.allow = "official", []
    world.change(manifest=world.other[MANIFEST], blob=world.other[BLOB])
    path = world.fetch()  # the branch has moved, the pin has not
    assert path.name == pin.manifest_sha256
    receipt = trust.read_receipt(world.root, path.name)
    assert receipt is not None and receipt.authority == "registry"
    assert packs.use("official").path == path

    cache.remove(path.name)
    moved = dataclasses.replace(pin, revision=world.commit)
    monkeypatch.setattr(trust, "registry", lambda: {"official": moved})
    with pytest.raises(TrustError, match="pins official to sha256"):
        world.fetch()
    monkeypatch.setattr(trust, "registry", lambda: {"official": pin})
    world.spec = f"official@{world.commit}"  # a commit that the pin does not vouch for
    with pytest.raises(TrustError, match="nobody you trust"):
        world.fetch()


def test_defect_07_a_name_of_the_registry_is_used_by_its_bytes_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Hub that answered another pack for the pinned commit, which the user's key vouched for: it
    is in the cache under that commit, and is not the official pack."""
    path = world.fetch()
    pin = Pin("official", REPO, world.commit, sha_of(world.other))
    monkeypatch.setattr(trust, "registry", lambda: {"official": pin})
    assert packs.use(f"{REPO}@{world.commit}").path == path
    for spec in ("official", f"official@{world.commit}"):
        with pytest.raises(ValueError, match="is not in the cache"):
            packs.use(spec)


def test_only_fixed_names_are_asked_for(world: World) -> None:
    faults.paths_outside(world)
    world.fetch()
    asked = {path.rpartition("/")[2] for method, path in world.server.asked if "resolve" in path}
    assert asked == {MANIFEST, BLOB, signatures.SIGNATURE_NAME}


@pytest.mark.parametrize(
    "spec",
    [
        "../x",
        "a/b/c",
        "a/../b",
        "a/b@../../x",
        "a/b@x/y",
        "a//b",
        "a/b@",
        "@main",
        "",
        "a/b?x=1",
        "a b/c",
        "https://example.org/a/b",
        "a/b@main\n",
        "-a/b",
        "a/b@" + "x" * 100,
    ],
)
def test_spec_that_is_none_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="is not NAME or OWNER/REPO"):
        hub.resolve(spec)


def test_specs() -> None:
    commit = "a1" * 20
    assert hub.resolve("a/b") == hub.HubSource("a/b", "main", None)
    assert hub.resolve(f"a/b@{commit}").commit == commit
    assert hub.resolve("a/b@v1.0").commit is None
    with pytest.raises(ValueError, match="no pack of the registry"):
        hub.resolve("nothing-of-this-name")
