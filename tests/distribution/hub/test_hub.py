"""Packs that travel: pushed by one account, fetched by another, used; with the real client.

What must not happen is in test_hub_faults.py.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from hgemm_packs import select
from hgemm_packs.distribution import hub, packs, publish, remote, signatures, trust
from hgemm_packs.distribution.packs import HubError
from hgemm_packs.errors import PackError, TrustError
from hgemm_packs.settings import settings
from tests.distribution.hub import faults
from tests.distribution.hub.server import Fault, serving
from tests.distribution.world import ALICE, BLOB, BOB, MANIFEST, REPO, World, read, sha_of, tree
from tests.packs import H200, WIN


@pytest.fixture
def folder(world: World) -> Path:
    """The good pack as its maker has it."""
    return world.private_key.parent / "good"


def test_push_from_one_account_fetch_from_another_use(world: World, folder: Path) -> None:
    url = world.server.url
    (folder / "LICENSE").write_text("Apache-2.0\n")
    (folder / "secret.txt").write_text("not a file of a pack")
    commit = packs.push(folder, "alice/new", token=ALICE, endpoint=url)
    pushed = world.server.repos["alice/new"].head()
    assert sorted(pushed) == sorted({*world.files, "LICENSE", "README.md", ".gitattributes"})
    assert b"library_name: hgemm_packs" in pushed["README.md"]
    assert packs.list_published("alice", token=BOB, endpoint=url) == [
        packs.Listed("alice/new", commit)
    ]

    path = packs.fetch("alice/new", allow=world.allow, token=BOB, endpoint=url)
    assert read(path) == world.files | {"LICENSE": b"Apache-2.0\n"}
    receipt = trust.read_receipt(world.root, sha_of(world.files))
    assert receipt is not None
    assert (receipt.repo, receipt.revision, receipt.authority) == ("alice/new", commit, "key")

    used = packs.use("alice/new")
    assert used.path == path
    choice = select.resolve(WIN, 0, H200)
    assert choice.pack is used and choice.code == "kernel"


def test_a_picture_lies_beside_its_card_and_no_other(world: World, folder: Path) -> None:
    url, png = world.server.url, b"\x89PNG and the rest"
    packs.push(folder, "alice/new", token=ALICE, endpoint=url, picture=png)
    pushed = world.server.repos["alice/new"].head()
    assert pushed["speedups.png"] == png and b"](speedups.png)" in pushed["README.md"]
    path = packs.fetch("alice/new", allow=world.allow, token=BOB, endpoint=url)
    assert read(path) == world.files  # nobody fetches it
    packs.push(folder, "alice/new", token=ALICE, endpoint=url)
    pushed = world.server.repos["alice/new"].head()
    assert "speedups.png" not in pushed and b"speedups.png" not in pushed["README.md"]


def test_a_second_push_replaces_the_pack_and_leaves_no_old_signature(
    world: World, folder: Path
) -> None:
    url = world.server.url
    (folder / signatures.BUNDLE_NAME).write_text("{}")
    packs.push(folder, "alice/new", token=ALICE, endpoint=url)
    (folder / signatures.BUNDLE_NAME).unlink()
    commit = packs.push(folder, "alice/new", token=ALICE, endpoint=url, message="again")
    repo = world.server.repos["alice/new"]
    assert repo.branches["main"] == commit
    assert signatures.BUNDLE_NAME not in repo.head()
    assert signatures.SIGNATURE_NAME in repo.head()


def test_private_repository_opens_to_its_owner_alone(world: World, folder: Path) -> None:
    url = world.server.url
    packs.push(folder, "alice/new", token=ALICE, endpoint=url, private=True)
    with pytest.raises(HubError, match="private one that the token cannot see"):
        packs.fetch("alice/new", allow=world.allow, token=BOB, endpoint=url)
    assert packs.list_published(token=BOB, endpoint=url) == []
    path = packs.fetch("alice/new", allow=world.allow, token=ALICE, endpoint=url)
    assert read(path) == world.files


def test_push_refuses_what_nobody_could_trust(world: World, folder: Path) -> None:
    url = world.server.url
    with pytest.raises(HubError, match="the Hub refuses: not your namespace"):
        packs.push(folder, "alice/new", token=BOB, endpoint=url)
    for repo in ("new", "alice/../bob", "alice/new@main"):
        with pytest.raises(ValueError, match="is not OWNER/NAME"):
            packs.push(folder, repo, token=ALICE, endpoint=url)
    (folder / signatures.SIGNATURE_NAME).unlink()
    with pytest.raises(PackError, match="unsigned"):
        packs.push(folder, "alice/new", token=ALICE, endpoint=url)
    (folder / BLOB).write_bytes(faults.flipped(world.files[BLOB]))
    with pytest.raises(PackError, match="kernel_hash"):
        packs.push(folder, "alice/new", token=ALICE, endpoint=url)
    assert "alice/new" not in world.server.repos


def test_hash_is_enough_where_the_user_names_it(world: World) -> None:
    world.allow = [f"sha256:{sha_of(world.files)}"]
    receipt = trust.read_receipt(world.root, world.fetch().name)
    assert receipt is not None and receipt.authority == "sha256"


def test_pack_in_the_cache_by_hash_is_believed_by_a_signature_later(
    world: World, folder: Path
) -> None:
    signature = (folder / signatures.SIGNATURE_NAME).read_bytes()
    world.change(signature=None)
    key, world.allow = world.allow, [f"sha256:{sha_of(world.files)}"]
    path = world.fetch()
    world.allow = key
    with pytest.raises(TrustError, match="nobody you trust"):
        world.fetch()
    world.change(signature=signature)
    assert world.fetch() == path
    assert world.server.gets(BLOB) == 1


def test_full_disk_is_an_error_of_its_own_and_the_download_goes_on_later(world: World) -> None:
    before = tree(world.root)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2500, limits[1]))
        with pytest.raises(OSError) as caught:
            world.fetch()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert tree(world.root) == before
    assert read(world.fetch()) == world.files


def test_receipt_that_was_damaged_is_written_anew(world: World) -> None:
    path = world.fetch()
    receipt = world.root / "v1" / "receipts" / f"{path.name}.json"
    whole = json.loads(receipt.read_bytes())
    receipt.write_bytes(b"{")
    assert world.fetch() == path
    assert json.loads(receipt.read_bytes()) == whole | {
        "when": json.loads(receipt.read_bytes())["when"]
    }
    assert world.server.gets(BLOB) == 1


def test_download_goes_on_where_it_ended(world: World) -> None:
    world.fault(BLOB, faults.cut)
    with pytest.raises(HubError, match="given up after 2 attempts"):
        world.fetch()
    size = len(world.files[BLOB])
    assert (world.staged / BLOB).stat().st_size == size // 2
    world.server.faults.clear()
    ticks: list[tuple[int, int]] = []
    sent = world.server.sent_bytes
    path = hub.fetch(
        REPO, allow=world.allow, endpoint=world.server.url, tick=lambda *now: ticks.append(now)
    )
    assert read(path) == world.files
    small = sum(len(data) for name, data in world.files.items() if name != BLOB)
    assert world.server.sent_bytes - sent - small - (size - size // 2) in range(0, 1000)
    assert ticks[-1] == (size, size)
    assert not world.staged.exists()


def test_defect_18_a_server_without_ranges_sends_a_file_a_few_times_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer begins with the first byte and is cut a little later than the one before: all of
    them together are as long as the file times half the number of steps."""
    patience = dataclasses.replace(remote.PATIENCE, progress_bytes=10)
    monkeypatch.setattr(remote, "PATIENCE", patience)
    lengths = itertools.count(500, 20)

    def longer(handler: faults.Handler, content: bytes) -> bool:
        handler.head(200, len(content))
        handler.send(content[: min(next(lengths), len(content) - 1)])
        handler.drop()
        return True

    world.fault(BLOB, longer)
    before = world.server.sent_bytes
    with pytest.raises(HubError, match="given up after 2 attempts"):
        world.fetch()
    assert world.server.gets(BLOB) == patience.attempts + 1  # the first had nothing to go on from
    sent = world.server.sent_bytes - before
    assert sent < (patience.attempts + 1) * len(world.files[BLOB]) + 20_000


def test_commit_in_the_cache_needs_no_network(world: World) -> None:
    path = world.fetch()
    world.spec = f"{REPO}@{world.commit}"
    world.server.url = "http://127.0.0.1:9"
    assert world.fetch() == path
    world.spec = REPO  # a branch has to be asked for
    with pytest.raises(HubError, match="ConnectError"):
        world.fetch()
    # What is in the cache is believed by today's policy, not by that of the day it came.
    world.spec, world.allow = f"{REPO}@{world.commit}", []
    with pytest.raises(HubError, match="ConnectError"):
        world.fetch()


def test_moved_branch_brings_the_new_commit_and_keeps_the_old(world: World) -> None:
    first, old = world.fetch(), world.commit
    assert world.server.gets(BLOB) == 1
    world.repo.commit(world.files | {"notes.txt": b"more"})
    assert world.fetch() == first  # another commit, the same pack: no second download
    assert world.server.gets(BLOB) == 1
    world.change(manifest=world.other[MANIFEST], blob=world.other[BLOB])
    world.allow = [f"sha256:{sha_of(world.other)}"]
    second = world.fetch()
    assert second.name == sha_of(world.other) and first.is_dir()
    assert packs.find(f"{REPO}@{world.commit}").pack.path == second
    assert packs.find(f"{REPO}@{old}").pack.path == first


def test_token_stays_with_the_hub_when_bytes_come_from_elsewhere(world: World) -> None:
    seen: list[str | None] = []

    def watch(handler: faults.Handler, content: bytes) -> bool:
        seen.append(handler.headers.get("Authorization"))
        handler.whole(200, world.files[BLOB])
        return True

    with serving() as elsewhere:
        elsewhere.faults.append(Fault("/blob", watch))
        # Another host by name is another origin, as a store behind the Hub is.
        target = elsewhere.url.replace("127.0.0.1", "localhost") + "/blob"
        world.fault(BLOB, faults.send(302, Location=target))
        world.token = BOB
        assert read(world.fetch()) == world.files
    assert seen == [None]


def test_offline_switch_of_huggingface_hub_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        world.fetch()
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        packs.list_published(endpoint=world.server.url)
    assert sum(world.server.asked.values()) == 0


def test_endpoint_is_that_of_the_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", world.server.url)
    assert hub.fetch(REPO, allow=world.allow).name == sha_of(world.files)
    with pytest.raises(ValueError, match="not an http address"):
        hub.fetch("a/b", allow=world.allow, endpoint="file:///etc")


def test_missing_extra_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HubError, match=r"pip install 'hgemm-packs\[hub\]'"):
        world.fetch()


def test_use_goes_ahead_of_the_search_order(
    world: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.private_key.parent / "other"
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(other))
    settings.cache_clear()
    first = select.resolve(WIN, 0, H200)
    assert first.pack is not None and first.pack.path == other
    used = packs.use(folder)
    assert select.resolve(WIN, 0, H200).pack is used
    packs.use(other)
    assert [each.path for each in select.find_packs().packs][:2] == [other, folder]
    with pytest.raises(ValueError, match="is not in the cache"):
        packs.use("alice/never-fetched")
    with pytest.raises(PackError):
        packs.use(world.root)


def test_installed_names_only_packs_with_a_receipt(world: World) -> None:
    path = world.fetch()
    names = {each.pack.manifest.pack.version: each.receipt.repo for each in packs.list_installed()}
    assert names == {"0.9.0": None, "1.0.0": REPO}
    (world.root / "v1" / "receipts" / f"{path.name}.json").unlink()
    assert [each.pack.manifest.pack.version for each in packs.list_installed()] == ["0.9.0"]
    with pytest.raises(ValueError, match="is not in the cache"):
        packs.use(REPO)
    with pytest.raises(PackError, match="no_receipt"):
        packs.use(path)


def test_python_api_imports_nothing_of_the_network() -> None:
    program = (
        "import sys, hgemm_packs\n"
        "assert 'hgemm_packs.distribution.packs' not in sys.modules\n"
        "hgemm_packs.packs.fetch, hgemm_packs.packs.use\n"
        "import hgemm_packs.distribution.lockfile\n"
        "print([n for n in ('huggingface_hub', 'httpx2', 'sigstore', 'ssl', 'http.client')"
        " if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_listed_says_nothing_of_what_carries_no_tag(world: World) -> None:
    world.repo.commit(world.files | {"README.md": b"a model"})
    assert publish.list_published(endpoint=world.server.url) == []
