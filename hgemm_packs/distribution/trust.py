"""Decides whether a pack may be used at all, before a byte of it is parsed.

Called by whatever brings a pack into the cache. The authority is the shipped registry, a hash, a
sigstore identity or a public key that the user named; without one of them a pack is refused. It
never asks the network and has no way to be switched off.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType

from ..errors import PackError
from ..errors import TrustError as TrustError
from ..pack import manifest_reader
from ..pack.folder import BUNDLE_NAME, MANIFEST_NAME, SIGNATURE_NAME, Pack, read_file
from ..pack.manifest import MAX_MANIFEST_BYTES
from ..pack.manifest_fields import COMMIT, NAME, SHA256
from ..pack.receipts import REPO
from ..pack.receipts import Receipt as Receipt
from ..pack.receipts import read_receipt as read_receipt
from ..pack.receipts import write_receipt as write_receipt
from ..pack.strict_json import listing, nullable, one_of, read_json, record
from . import cache, signatures
from .policy import SIGNER
from .policy import Key as Key
from .policy import Signer as Signer
from .policy import TrustPolicy as TrustPolicy

REGISTRY = Path(__file__).with_name("registry.json")
REGISTRY_SCHEMA = "hgemm-packs-registry/1"
MAX_PINS = 1000


@dataclass(frozen=True, slots=True)
class Pin:
    """An official pack: the commit (40 hex digits) and the sha256 of its manifest. Where `signer`
    is given its signature is needed too."""

    name: str
    repo: str
    revision: str
    manifest_sha256: str
    signer: Signer | None = None


_PIN = record(
    Pin, name=NAME, repo=REPO, revision=COMMIT, manifest_sha256=SHA256, signer=nullable(SIGNER)
)
_REGISTRY = record(
    lambda schema, packs: packs,
    schema=one_of(REGISTRY_SCHEMA),
    packs=listing(_PIN, 0, MAX_PINS),
)


@functools.cache
def registry() -> Mapping[str, Pin]:
    """The official packs by name, from the registry.json of this very wheel.

    Raises TrustError when that file is missing or damaged.
    """
    try:
        pins: tuple[Pin, ...] = _REGISTRY(read_json(REGISTRY.read_bytes()))
    except (OSError, PackError) as error:
        raise TrustError("bad_registry", f"{REGISTRY}: {error}") from None
    by_name = {pin.name: pin for pin in pins}
    if len(by_name) != len(pins):
        raise TrustError("bad_registry", f"{REGISTRY}: a name appears twice")
    return MappingProxyType(by_name)


def verify(
    folder: Path,
    *,
    pin: Pin | None = None,
    policy: TrustPolicy | None = None,
    allow: Collection[str] = (),
    repo: str | None = None,
    revision: str | None = None,
    root: Path | None = None,
) -> Receipt:
    """Check the pack in `folder`: first who vouches for the raw bytes of its manifest, and only
    then what these bytes say, down to the hash of every kernel.

    With `pin`, only the pinned bytes pass. Without it, `policy` (default: TrustPolicy.load()) or
    `allow` (words as of TrustPolicy.extend) must name the hash of the manifest, or the signer or
    the key of the signature beside it. A signature does not vouch for a pack that is older than one
    of its name that the same signer vouched for in the cache `root`. `repo` and `revision` go on
    the receipt where there is no pin. Asks no network.

    Raises TrustError when nobody vouches for the manifest, PackError when the pack is not what its
    manifest says. The receipt is returned, not written.
    """
    data = read_file(folder, MANIFEST_NAME, MAX_MANIFEST_BYTES)
    digest = hashlib.sha256(data).hexdigest()
    if pin is not None:
        authority, signer = "registry", _check_pin(folder, data, digest, pin)
        repo, revision = pin.repo, pin.revision
    else:
        policy = (TrustPolicy.load() if policy is None else policy).extend(allow)
        authority, signer = _find_voucher(folder, data, digest, policy)
        if signer is not None and root is not None:
            _check_newest(data, digest, signer, root)
    pack = Pack.open_verified(folder)
    pack.close()
    if pack.manifest_sha256 != digest:
        raise TrustError("changed", f"{MANIFEST_NAME} changed while it was checked")
    return Receipt(
        manifest_sha256=digest,
        blob_sha256=pack.manifest.blob.sha256,
        repo=repo,
        revision=revision,
        authority=authority,
        signer=signer,
        when=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _check_pin(folder: Path, data: bytes, digest: str, pin: Pin) -> str | None:
    if digest != pin.manifest_sha256:
        raise TrustError(
            "wrong_manifest",
            f"the registry pins {pin.name} to sha256 {pin.manifest_sha256}, this is {digest}",
        )
    if pin.signer is None:
        return None
    _check_sigstore(folder, data, pin.signer)
    return str(pin.signer)


def _find_voucher(
    folder: Path, data: bytes, digest: str, policy: TrustPolicy
) -> tuple[str, str | None]:
    """The first authority of the policy that vouches for these bytes, and the signer if it is one.
    A signature that is there and does not hold is an error of its own only if no other holds."""
    if digest in policy.sha256:
        return "sha256", None
    failed: TrustError | None = None
    for signer in policy.signers if _there(folder, BUNDLE_NAME) else ():
        try:
            _check_sigstore(folder, data, signer)
            return "sigstore", str(signer)
        except TrustError as error:
            failed = error
    for key in policy.keys if _there(folder, SIGNATURE_NAME) else ():
        try:
            return "key", "key:" + signatures.verify_key(data, folder / SIGNATURE_NAME, key)
        except TrustError as error:
            failed = error
    if failed is not None:
        raise failed
    raise TrustError(
        "no_authority",
        f"nobody you trust vouches for the manifest with sha256 {digest}: allow this hash if its "
        "publisher names the same, or name the publisher's signer or key",
    )


def _check_newest(data: bytes, digest: str, signer: str, root: Path) -> None:
    """Raises TrustError for a pack that its signer has replaced, as far as the cache knows. An old
    signature holds as well as a new one: without this a server could bring back old faults."""
    ours = manifest_reader.parse(data)
    for entry in cache.packs(root):
        try:
            receipt = read_receipt(root, entry.manifest_sha256)
            if receipt is None or receipt.signer != signer:
                continue
            other = manifest_reader.parse(read_file(entry.path, MANIFEST_NAME, MAX_MANIFEST_BYTES))
        except PackError:
            continue
        if (other.pack.name, other.arch) != (ours.pack.name, ours.arch):
            continue
        if other.pack.created > ours.pack.created:
            raise TrustError(
                "older_pack",
                f"{ours.pack} of {ours.pack.created} is older than "
                f"{other.pack.version} of {other.pack.created}, which the same signer vouched for: "
                f"allow sha256:{digest} if you want it",
            )


def _there(folder: Path, name: str) -> bool:
    return (folder / name).is_symlink() or (folder / name).exists()


def _check_sigstore(folder: Path, data: bytes, signer: Signer) -> None:
    bundle = folder / BUNDLE_NAME
    signatures.verify_sigstore(data, bundle, signer.identity, signer.issuer)
