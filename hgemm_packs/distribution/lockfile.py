"""hgemm-packs.lock: the exact packs of a deployment, by commit and hash.

Written by `lock` from what the cache holds, obeyed by `sync`, which brings exactly those packs or
refuses. The file is the user's own word for hashes, so it is an authority like `allow`; it never
says more than they do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import PackError
from ..pack.cache_folders import root_of
from ..pack.folder import MANIFEST_NAME, Pack
from ..pack.manifest_fields import COMMIT, NAME, SHA256
from ..pack.receipts import REPO
from ..pack.strict_json import listing, nullable, one_of, read_json, record
from . import cache, hub, packs, trust
from .transfer import Tick

FILE_NAME = "hgemm-packs.lock"
SCHEMA = "hgemm-packs-lock/1"
MAX_LOCK_BYTES = 1 << 20
MAX_PACKS = 1000


@dataclass(frozen=True, slots=True)
class LockedPack:
    """One pack. `repo` and `revision` are None for one that was never on a Hub."""

    name: str
    version: str
    arch: str
    repo: str | None
    revision: str | None
    manifest_sha256: str
    blob_sha256: str


_LOCKED = record(
    LockedPack,
    name=NAME,
    version=NAME,
    arch=NAME,
    repo=nullable(REPO),
    revision=nullable(COMMIT),
    manifest_sha256=SHA256,
    blob_sha256=SHA256,
)
_LOCK = record(
    lambda schema, packs: packs, schema=one_of(SCHEMA), packs=listing(_LOCKED, 0, MAX_PACKS)
)


def lock(specs: Iterable[str] = ()) -> str:
    """The text of a lock file for these packs of the cache (default: all), as `packs.find` finds
    them. The same packs give the same bytes. Raises ValueError where one is not there."""
    named = [packs.find(spec) for spec in specs] or packs.list_installed()
    chosen = {_lock_entry(each.pack, each.receipt) for each in named}
    if not chosen:
        raise ValueError("the cache has no pack to lock: hgemm-packs fetch one first")
    rows = sorted(chosen, key=lambda each: (each.name, each.version, each.manifest_sha256))
    document = {"schema": SCHEMA, "packs": [asdict(row) for row in rows]}
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _lock_entry(pack: Pack, receipt: trust.Receipt) -> LockedPack:
    manifest = pack.manifest
    return LockedPack(
        name=manifest.pack.name,
        version=manifest.pack.version,
        arch=manifest.arch,
        repo=receipt.repo,
        revision=receipt.revision,
        manifest_sha256=pack.manifest_sha256,
        blob_sha256=manifest.blob.sha256,
    )


def read(path: str | os.PathLike[str]) -> tuple[LockedPack, ...]:
    """The packs of a lock file. Raises PackError for one that is none or contradicts itself, and
    OSError."""
    with open(path, "rb") as file:
        data = file.read(MAX_LOCK_BYTES + 1)
    if len(data) > MAX_LOCK_BYTES:
        raise PackError("lock_too_large", f"more than {MAX_LOCK_BYTES} bytes")
    try:
        found: tuple[LockedPack, ...] = _LOCK(read_json(data))
    except PackError as error:
        raise PackError(error.code, error.detail, f"{path} {error.where}".rstrip()) from None
    seen: set[str] = set()
    for index, each in enumerate(found):
        if each.manifest_sha256 in seen:
            detail = f"{each.manifest_sha256} stands twice"
            raise PackError("duplicate_pack", detail, f"packs[{index}]")
        if (each.repo is None) != (each.revision is None):
            detail = "a repository and its revision go together"
            raise PackError("bad_source", detail, f"packs[{index}]")
        seen.add(each.manifest_sha256)
    return found


def check(path: str | os.PathLike[str]) -> Mapping[str, Path]:
    """The folders in the cache of a lock file's packs, by the sha256 of their manifests, every hash
    verified again. No network.

    Raises PackError: "not_synced" where one is absent, "lock_mismatch" where one differs.
    """
    return {each.manifest_sha256: _check(each) for each in read(path)}


def sync(
    path: str | os.PathLike[str],
    *,
    token: str | None = None,
    endpoint: str | None = None,
    tick: Tick | None = None,
) -> Mapping[str, Path]:
    """As `check`, after fetching what is absent, at its commit and with its hash and no other.

    Raises PackError, HubError, TrustError, CacheError, OSError.
    """
    wanted = read(path)
    for each in wanted:
        try:
            _check(each)
        except PackError as error:
            if error.code == "lock_mismatch" or each.repo is None or each.revision is None:
                raise
            _bring(hub.HubSource(each.repo, each.revision, None), each, token, endpoint, tick)
    return {each.manifest_sha256: _check(each) for each in wanted}


def _bring(
    source: hub.HubSource,
    each: LockedPack,
    token: str | None,
    endpoint: str | None,
    tick: Tick | None,
) -> None:
    """Fetch it; nothing but the locked hash may vouch for it, whatever the policy file says."""
    policy = trust.TrustPolicy(sha256=frozenset({each.manifest_sha256}))
    try:
        hub.fetch_from(source, policy, token=token, endpoint=endpoint, tick=tick)
    except trust.TrustError as error:
        text = f"{each.name}: {each.repo}@{each.revision} is not what was locked ({error.detail})"
        raise PackError("lock_mismatch", text) from None


def _check(each: LockedPack) -> Path:
    """The pack's folder, if the pack there is the locked one to the last field."""
    place = root_of(None)
    folder = place / "v1" / "packs" / each.manifest_sha256
    receipt = trust.read_receipt(place, each.manifest_sha256)
    if receipt is None or not (folder / MANIFEST_NAME).is_file():
        source = f"{each.repo}@{each.revision}" if each.repo else "never on a Hub"
        text = f"{each.name} {each.version} ({source}) is not in the cache"
        raise PackError("not_synced", text)
    pack = Pack.open_verified(folder)
    pack.close()
    found = asdict(_lock_entry(pack, receipt)) | {"repo": each.repo, "revision": each.revision}
    for name, value in asdict(each).items():
        if found[name] != value:
            text = f"{each.name}: {name} is {found[name]}, the lock file says {value}"
            raise PackError("lock_mismatch", text)
    cache.touch(folder)
    return folder
