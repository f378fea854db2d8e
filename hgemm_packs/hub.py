"""Packs from and to a Hugging Face Hub: resolve, fetch, push, list.

Called by `packs`, `lockfile` and the CLI, never by `matmul` or an import. Asks for files of fixed
names at one commit and no others, and hands all that came to `trust` before it enters the cache.
huggingface_hub is imported by the calls that need it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from . import cache, manifest_checks, trust
from .cache_folders import base_of, locked, make_all, make_private
from .errors import PackError, TrustError
from .manifest import MAX_MANIFEST_BYTES
from .pack import BLOB_NAME, MANIFEST_NAME
from .signatures import BUNDLE_NAME, SIGNATURE_NAME
from .transfer import HubError, Patience, Request, Tick, receive

#: What is asked for, with the most bytes each may have. The card is for readers of the Hub.
LIMITS = {
    MANIFEST_NAME: MAX_MANIFEST_BYTES,
    BUNDLE_NAME: 1 << 20,
    SIGNATURE_NAME: 1 << 20,
    "LICENSE": 1 << 20,
    "REPORT.md": 4 << 20,
}
MAX_INFO_BYTES = 8 << 20
PATIENCE = Patience()

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}"
_SPEC = re.compile(rf"(?P<pack>{_NAME}(?:/{_NAME})?)(?:@(?P<revision>{_NAME}))?")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a pack comes from: a commit or branch of a repository, perhaps pinned."""

    repo: str
    revision: str
    pin: trust.Pin | None

    @property
    def commit(self) -> str | None:
        """The revision where it is a commit, which cannot move."""
        return self.revision if _COMMIT.fullmatch(self.revision) else None


def resolve(spec: str) -> Source:
    """What NAME (of the registry) or OWNER/REPO means, either with @COMMIT or @BRANCH; a repository
    without is its branch main. Raises ValueError for anything else. No network."""
    match = _SPEC.fullmatch(spec)
    if match is None or ".." in spec:
        raise ValueError(f"{spec[:200]!a} is not NAME or OWNER/REPO, with @COMMIT or @BRANCH")
    name, revision = match["pack"], match["revision"]
    if "/" in name:
        return Source(name, revision or "main", None)
    pin = trust.registry().get(name)
    if pin is None:
        known = ", ".join(sorted(trust.registry())) or "none yet"
        raise ValueError(f"{name} is no pack of the registry ({known}); a repository is OWNER/REPO")
    if revision in (None, pin.revision):
        return Source(pin.repo, pin.revision, pin)
    return Source(pin.repo, str(revision), None)  # the pin vouches for its own commit alone


def fetch(
    spec: str,
    *,
    allow: Collection[str] = (),
    token: str | None = None,
    endpoint: str | None = None,
    tick: Tick | None = None,
) -> Path:
    """The folder in the cache of the pack that `spec` names, downloaded if it is not there.

    `allow` names who may vouch for it beside the registry and the policy file, in the words of
    `Policy.allowing`. The endpoint is HF_ENDPOINT's and the token the one of `hf auth login` or
    HF_TOKEN unless they are given. `tick` hears of the blob's bytes. A commit that is in the cache
    needs no network; a download that ended early goes on where it was.

    Raises ValueError for a bad spec, HubError, TrustError, PackError, CacheError, OSError; whatever
    it raises, the cache is as before.
    """
    policy = trust.Policy.load().allowing(allow)
    return fetch_from(resolve(spec), policy, token=token, endpoint=endpoint, tick=tick)


def fetch_from(
    source: Source,
    policy: trust.Policy,
    *,
    token: str | None = None,
    endpoint: str | None = None,
    tick: Tick | None = None,
) -> Path:
    """As `fetch`, with this policy and no other."""
    job = _Job(source, policy, cache.root())
    if source.commit is not None and (known := job.known(source.commit)):
        return known
    remote = Remote.at(endpoint, token)
    commit, names = remote.look(source.repo, source.revision)
    if known := job.known(commit):  # before the lock, which a read-only cache has not
        return known
    base = base_of(job.root)
    make_all(base)
    key = hashlib.sha256(f"{remote.endpoint}\n{source.repo}\n{commit}".encode()).hexdigest()
    with locked(base, key):  # of processes that want one commit, one downloads
        known = job.known(commit)
        return known or job.download(remote, commit, names, base / "downloads" / key, tick)


@dataclass(frozen=True, slots=True)
class _Job:
    """One fetch: what is wanted, whom to believe, where it goes."""

    source: Source
    policy: trust.Policy
    root: Path

    def known(self, commit: str) -> Path | None:
        """The pack of this commit in the cache, if its receipt says so and it is vouched for now.
        What a receipt says of yesterday's policy does not count."""
        for entry in cache.packs(self.root):
            try:
                receipt = trust.read_receipt(self.root, entry.manifest_sha256)
                if receipt is None or (receipt.repo, receipt.revision) != (
                    self.source.repo,
                    commit,
                ):
                    continue
                self.verify(entry.path, commit)
            except PackError:
                continue
            cache.touch(entry.path)
            return entry.path
        return None

    def verify(self, folder: Path, commit: str) -> trust.Receipt:
        return trust.verify(
            folder,
            pin=self.source.pin,
            policy=self.policy,
            repo=self.source.repo,
            revision=commit,
        )

    def download(
        self, remote: Remote, commit: str, names: frozenset[str], staged: Path, tick: Tick | None
    ) -> Path:
        """Fetch the small files, then the blob unless the cache has the pack from elsewhere."""
        repo = self.source.repo
        if not {MANIFEST_NAME, BLOB_NAME} <= names:
            raise PackError("missing_file", f"{repo} at {commit} is no pack")
        small = {
            name: remote.read(repo, commit, name, limit)
            for name, limit in LIMITS.items()
            if name in names
        }

        def fill(temp: Path) -> None:
            for name, data in small.items():
                (temp / name).write_bytes(data)
            size = self.vouched_blob_bytes(temp, small[MANIFEST_NAME], commit)
            receipt = self.fill_blob(remote, commit, size, staged, temp, tick)
            # Before the pack can be seen: a pack without its receipt is refused.
            trust.write_receipt(self.root, receipt)

        sha = hashlib.sha256(small[MANIFEST_NAME]).hexdigest()
        path = cache.add(sha, fill, self.root)
        receipt = self.verify(path, commit)  # it may have been there already, by another authority
        try:
            missing = trust.read_receipt(self.root, sha) is None
        except PackError:
            missing = True
        if missing:
            trust.write_receipt(self.root, receipt)
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
        return manifest_checks.parse(manifest).blob.bytes

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


@dataclass(frozen=True, slots=True)
class Remote:
    """A Hub and who asks it."""

    endpoint: str
    headers: Mapping[str, str]

    @classmethod
    def at(cls, endpoint: str | None, token: str | None) -> Remote:
        """The Hub at `endpoint` or HF_ENDPOINT. Raises HubError where huggingface_hub is missing
        and ValueError for an endpoint that is no http address."""
        hub = library()
        place = (endpoint or hub.constants.ENDPOINT).rstrip("/")
        if not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9._/-]*)?", place):
            raise ValueError(f"the endpoint {place[:200]!a} is not an http address")
        version = metadata.version("hgemm-packs")
        headers = hub.utils.build_hf_headers(
            token=token, library_name="hgemm_packs", library_version=version
        )
        return cls(place, headers)

    def look(self, repo: str, revision: str) -> tuple[str, frozenset[str]]:
        """The commit that a revision is at, and the names of its files. Raises HubError."""
        url = f"{self.endpoint}/api/models/{repo}/revision/{quote(revision, safe='')}"
        what = f"{repo}@{revision}"
        sink = io.BytesIO()
        receive(Request(url, what, MAX_INFO_BYTES, self.headers), sink, PATIENCE)
        try:
            info = json.loads(sink.getvalue())
            commit = str(info["sha"])
            names = frozenset(str(each["rfilename"]) for each in info["siblings"])
        except (ValueError, RecursionError, LookupError, TypeError):
            raise HubError("bad_answer", f"{what}: not what a Hub says of a revision") from None
        if _COMMIT.fullmatch(commit) is None:
            raise HubError("bad_answer", f"{what}: {commit[:60]!a} is not a commit")
        if _COMMIT.fullmatch(revision) and commit != revision:
            raise HubError("moved", f"{what}: the server answers with commit {commit}")
        return commit, names

    def read(self, repo: str, commit: str, name: str, limit: int) -> bytes:
        """A small file of a commit. Raises HubError."""
        sink = io.BytesIO()
        receive(self._request(repo, commit, name, limit), sink, PATIENCE)
        return sink.getvalue()

    def save(self, repo: str, commit: str, path: Path, size: int, tick: Tick | None) -> None:
        """The blob of a commit, going on behind what is in `path`. Raises HubError, OSError."""
        request = self._request(repo, commit, BLOB_NAME, size, size)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o600), "r+b") as sink:
            receive(request, sink, PATIENCE, tick)

    def _request(
        self, repo: str, commit: str, name: str, limit: int, size: int | None = None
    ) -> Request:
        url = f"{self.endpoint}/{repo}/resolve/{commit}/{name}"
        return Request(url, f"{name} of {repo}", limit, self.headers, size, commit)


def library() -> Any:
    """huggingface_hub. Raises HubError naming the extra where it is missing."""
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ModuleNotFoundError:
        text = "huggingface_hub is missing: pip install 'hgemm-packs[hub]'"
        raise HubError("no_extra", text) from None
    return huggingface_hub
