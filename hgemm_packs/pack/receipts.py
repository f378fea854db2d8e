"""Receipts: what was checked about a pack before it entered the cache, one small file a pack.

Written through `trust` by whoever fills the cache, read by `discover` at every start. A receipt
says what was decided and by which authority; it is no secret and no signature of its own.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import PackError
from .manifest_fields import COMMIT, MOMENT, SHA256
from .strict_json import nullable, one_of, read_json, record, text

#: What may have vouched for a pack.
AUTHORITIES = ("registry", "sha256", "sigstore", "key")
MAX_RECEIPT_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Receipt:
    """One decision. `repo` and `revision` (40 hex digits) say where the bytes came from, `signer`
    whose signature was verified, `when` is UTC as in 2026-11-20T00:00:00Z."""

    manifest_sha256: str
    blob_sha256: str
    repo: str | None
    revision: str | None
    authority: str
    signer: str | None
    when: str

    @property
    def vouched(self) -> str:
        """Who vouches for the pack, in the words that --allow takes where there are such."""
        if self.authority == "sha256":
            return f"sha256:{self.manifest_sha256}"
        if self.signer is None:
            return self.authority
        own = self.signer.startswith(f"{self.authority}:")
        return self.signer if own else f"{self.authority}, {self.signer}"


#: An account, a repository or a branch of the Hub: what is put into an address or a receipt leads
#: nowhere else.
HUB_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}"
#: OWNER/NAME, a repository.
REPO = text(rf"{HUB_NAME}/{HUB_NAME}", "bad_repo")

_SIGNER = text(r"[ -~]{1,1100}")  # longer than any issuer and identity of a policy

_RECEIPT = record(
    Receipt,
    manifest_sha256=SHA256,
    blob_sha256=SHA256,
    repo=nullable(REPO),
    revision=nullable(COMMIT),
    authority=one_of(*AUTHORITIES),
    signer=nullable(_SIGNER),
    when=MOMENT,
)


def write_receipt(root: Path, receipt: Receipt) -> Path:
    """Write v1/receipts/<manifest sha256>.json below the cache `root`, whole or not at all. It
    comes before its pack: a pack that is seen without one is refused.

    Raises PackError for a receipt that could not be read back, OSError when the disk says no.
    """
    data = _bytes(receipt)
    _parse(data)
    path = root / "v1" / "receipts" / f"{receipt.manifest_sha256}.json"
    write_whole(path, data)
    return path


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file of the cache, owner-only, so that a reader sees all of it or the old one.

    Raises OSError.
    """
    for folder in (path.parents[2], path.parents[1], path.parent):  # one by one, for the mode
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)  # made with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def read_own(path: Path, limit: int, code: str) -> bytes:
    """The first `limit` bytes of a regular file that only this user can have written, in a folder
    of the same kind.

    Raises PackError(code) for any other, OSError for one that cannot be read.
    """
    _check_own(os.lstat(path.parent), path.parent, code)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise PackError(code, f"{path.name} is not a regular file")
        _check_own(facts, path, code)
        return file.read(limit)


def read_receipt(root: Path, manifest_sha256: str) -> Receipt | None:
    """The receipt of a pack below the cache `root`, or None where there is none.

    Raises PackError("bad_receipt") for one that is torn, altered, of another pack, or in a place
    where another user could have written it.
    """
    path = root / "v1" / "receipts" / f"{manifest_sha256}.json"
    try:
        data = read_own(path, MAX_RECEIPT_BYTES, "bad_receipt")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PackError("bad_receipt", str(error)) from None
    try:
        receipt = _parse(data)
    except PackError as error:
        raise PackError("bad_receipt", f"{path.name}: {error}") from None
    if _bytes(receipt) != data:
        raise PackError("bad_receipt", f"{path.name} was changed after it was written")
    if receipt.manifest_sha256 != manifest_sha256:
        raise PackError("bad_receipt", f"{path.name} is a receipt of {receipt.manifest_sha256}")
    return receipt


def has_receipt(root: Path, manifest_sha256: str) -> bool:
    """Whether there is one that can be read."""
    try:
        return read_receipt(root, manifest_sha256) is not None
    except PackError:
        return False


def _bytes(receipt: Receipt) -> bytes:
    return (json.dumps(asdict(receipt), sort_keys=True, separators=(",", ":")) + "\n").encode()


def _parse(data: bytes) -> Receipt:
    receipt: Receipt = _RECEIPT(read_json(data))
    return receipt


def _check_own(facts: os.stat_result, path: Path, code: str) -> None:
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise PackError(code, f"others can write to {path}")
