"""A Hub and who asks it: which commit a revision is, and the files of that commit.

Used by `hub` alone, through `transfer`, whose limits hold for every answer. huggingface_hub gives
the endpoint, the token and the session, and is imported by the first use.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import PackError, of_path
from ..pack.folder import (
    BLOB_NAME,
    BUNDLE_NAME,
    LICENSE_NAME,
    MANIFEST_NAME,
    REPORT_NAME,
    SIGNATURE_NAME,
)
from ..pack.manifest import MAX_MANIFEST_BYTES
from ..pack.strict_json import read_json
from .transfer import HubError, Patience, Request, Tick, receive

#: What is asked for, with the most bytes each may have. The card is for readers of the Hub.
LIMITS = {
    MANIFEST_NAME: MAX_MANIFEST_BYTES,
    BUNDLE_NAME: 1 << 20,
    SIGNATURE_NAME: 1 << 20,
    LICENSE_NAME: 1 << 20,
    REPORT_NAME: 4 << 20,
}
MAX_INFO_BYTES = 8 << 20
PATIENCE = Patience()
COMMIT = re.compile(r"[0-9a-f]{40}")


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
            info = read_json(sink.getvalue())
            commit = str(info["sha"])
            names = frozenset(str(each["rfilename"]) for each in info["siblings"])
        except (PackError, LookupError, TypeError):
            raise HubError(
                "bad_answer", f"{what}: the answer does not describe a revision"
            ) from None
        if COMMIT.fullmatch(commit) is None:
            raise HubError("bad_answer", f"{what}: {commit[:60]!a} is not a commit")
        if COMMIT.fullmatch(revision) and commit != revision:
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
        with of_path(path), os.fdopen(os.open(path, flags, 0o600), "r+b") as sink:
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
