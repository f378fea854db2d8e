"""Packs from a Hugging Face Hub: what a spec means, and how its pack gets into the cache.

Called by `packs`, `lockfile` and the CLI, never by `matmul` or an import. Asks for files of fixed
names at one commit and no others, and hands all that came to `trust` before it enters the cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import PackError, TrustError
from ..pack import manifest_reader
from ..pack.cache_folders import base_of, hold_lock, make_all, make_private
from ..pack.folder import BLOB_NAME, MANIFEST_NAME
from ..pack.receipts import HUB_NAME, has_receipt
from . import cache, trust
from .remote import COMMIT, LIMITS, Remote
from .transfer import Tick

_SPEC = re.compile(rf"(?P<pack>{HUB_NAME}(?:/{HUB_NAME})?)(?:@(?P<revision>{HUB_NAME}))?")


@dataclass(frozen=True, slots=True)
class HubSource:
    """Where a pack comes from: a commit or branch of a repository, perhaps pinned."""

    repo: str
    revision: str
    pin: trust.Pin | None

    @property
    def commit(self) -> str | None:
        """The revision where it is a commit, which cannot move."""
        return self.revision if COMMIT.fullmatch(self.revision) else None


def resolve(spec: str) -> HubSource:
    """What NAME (of the registry) or OWNER/REPO means, either with @COMMIT or @BRANCH; a repository
    without is its branch main. Raises ValueError for anything else. No network."""
    match = _SPEC.fullmatch(spec)
    if match is None or ".." in spec:
        raise ValueError(f"{spec[:200]!a} is not NAME or OWNER/REPO, with @COMMIT or @BRANCH")
    name, revision = match["pack"], match["revision"]
    if "/" in name:
        return HubSource(name, revision or "main", None)
    pin = trust.registry().get(name)
    if pin is None:
        known = ", ".join(sorted(trust.registry())) or "none yet"
        raise ValueError(f"{name} is no pack of the registry ({known}); a repository is OWNER/REPO")
    if revision in (None, pin.revision):
        return HubSource(pin.repo, pin.revision, pin)
    return HubSource(pin.repo, str(revision), None)  # the pin vouches for its own commit alone


def fetch(
    spec: str,
    *,
    allow: Collection[str] = (),
    token: str | None = None,
    endpoint: str | None = None,
    tick: Tick | None = None,
) -> Path:
    """Download the pack that `spec` names, unless the cache has it, and return its folder there.

    `allow` names who may vouch for the pack besides the registry and the policy file, in the words
    of `TrustPolicy.extend`. By default, `endpoint` is HF_ENDPOINT and `token` is that of
    `hf auth login` or HF_TOKEN. `tick` is told of the bytes of the blob. A commit that is in the
    cache needs no network. An interrupted download is continued.

    Raises ValueError for a bad spec, HubError where the Hub cannot be reached or answers wrongly,
    TrustError where nobody vouches, PackError where the repository is not a pack, CacheError for an
    unsafe cache, OSError from the disk. An error leaves the cache as it was.

    Example:

        path = packs.fetch("owner/repo", allow=["sha256:" + digest])
        packs.use(path)
    """
    policy = trust.TrustPolicy.load().extend(allow)
    return fetch_from(resolve(spec), policy, token=token, endpoint=endpoint, tick=tick)


def fetch_from(
    source: HubSource,
    policy: trust.TrustPolicy,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    tick: Tick | None = None,
) -> Path:
    """As `fetch`, with this policy and no other."""
    job = _Job(source, policy, cache.root())
    if source.commit is not None and (known := job.find_cached(source.commit)):
        return known
    remote = Remote.at(endpoint, token)
    commit, names = remote.look(source.repo, source.revision)
    if known := job.find_cached(commit):  # before the lock, which a read-only cache has not
        return known
    base = base_of(job.root)
    make_all(base)
    key = hashlib.sha256(f"{remote.endpoint}\n{source.repo}\n{commit}".encode()).hexdigest()
    with hold_lock(base, key):  # of processes that want one commit, one downloads
        known = job.find_cached(commit)
        return known or job.download(remote, commit, names, base / "downloads" / key, tick)


@dataclass(frozen=True, slots=True)
class _Job:
    """One fetch: what is wanted, whom to believe, where it goes."""

    source: HubSource
    policy: trust.TrustPolicy
    root: Path

    def find_cached(self, commit: str) -> Path | None:
        """The pack of this commit in the cache, if its receipt says so and it is vouched for now.
        What a receipt says of yesterday's policy does not count."""
        wanted = (self.source.repo, commit)
        for entry in cache.packs(self.root):
            try:
                receipt = trust.read_receipt(self.root, entry.manifest_sha256)
                if receipt is None or (receipt.repo, receipt.revision) != wanted:
                    continue
                self.verify(entry.path, commit, known=True)
            except PackError:
                continue
            cache.touch(entry.path)
            return entry.path
        return None

    def verify(self, folder: Path, commit: str, known: bool = False) -> trust.Receipt:
        # Who asks for a commit gets it from the cache, however old. What a server says is at a
        # commit or a branch must be no step back.
        asked = known and self.source.commit is not None
        return trust.verify(
            folder,
            pin=self.source.pin,
            policy=self.policy,
            repo=self.source.repo,
            revision=commit,
            root=None if asked else self.root,
        )

    def download(
        self, remote: Remote, commit: str, names: frozenset[str], staged: Path, tick: Tick | None
    ) -> Path:
        """Fetch the small files, then the blob unless the cache has the pack from elsewhere."""
        repo = self.source.repo
        if not {MANIFEST_NAME, BLOB_NAME} <= names:
            raise PackError("missing_file", f"{repo} at {commit} is not a pack")
        small = {
            name: remote.read(repo, commit, name, limit)
            for name, limit in LIMITS.items()
            if name in names
        }

        receipt = None

        def fill(temp: Path) -> None:
            nonlocal receipt
            _write_folder(small, temp)
            size = self.vouched_blob_bytes(temp, small[MANIFEST_NAME], commit)
            receipt = self.fill_blob(remote, commit, size, staged, temp, tick)
            # Before the pack can be seen: a pack without its receipt is refused.
            trust.write_receipt(self.root, receipt)

        sha = hashlib.sha256(small[MANIFEST_NAME]).hexdigest()
        path = cache.add(sha, fill, self.root)
        if receipt is None:  # it was there already, perhaps by another authority
            with tempfile.TemporaryDirectory() as own:
                self.vouched_blob_bytes(
                    _write_folder(small, Path(own)), small[MANIFEST_NAME], commit
                )
            if not has_receipt(self.root, sha):
                trust.write_receipt(self.root, self.verify(path, commit))
        shutil.rmtree(staged, ignore_errors=True)
        cache.touch(path)
        return path

    def vouched_blob_bytes(self, folder: Path, manifest: bytes, commit: str) -> int:
        """The size of the blob, by a manifest that is vouched for: who it is decides before anyone
        parses it, and before the bytes of a blob are paid for."""
        try:
            self.verify(folder, commit)
        except PackError as error:
            if isinstance(error, TrustError) or error.code != "missing_file":
                raise
        return manifest_reader.parse(manifest).blob.bytes

    def fill_blob(
        self, remote: Remote, commit: str, size: int, staged: Path, temp: Path, tick: Tick | None
    ) -> trust.Receipt:
        """Put the blob into `temp` and verify the whole. Bytes that a download left behind wait in
        `staged`; if they do not make the right blob, all of it is fetched anew, once."""
        for folder in (staged.parent, staged):
            make_private(folder)
        blob = staged / BLOB_NAME
        while True:
            resumed = blob.exists()
            remote.save(self.source.repo, commit, blob, size, tick)
            os.replace(blob, temp / BLOB_NAME)
            try:
                return self.verify(temp, commit)
            except PackError:
                if not resumed:
                    raise


def _write_folder(files: Mapping[str, bytes], folder: Path) -> Path:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder
