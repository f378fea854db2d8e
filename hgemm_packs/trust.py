"""Decides whether a pack may be used at all, before a byte of it is parsed.

Called by whatever brings a pack into the cache. The authority is the shipped registry, a hash, a
sigstore identity or a public key that the user named; without one of them a pack is refused. It
never asks the network by itself and has no way to be switched off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import TrustError as TrustError
from .policy import Policy as Policy
from .policy import Signer as Signer
from .receipts import Receipt as Receipt
from .receipts import read_receipt as read_receipt
from .receipts import write_receipt as write_receipt


@dataclass(frozen=True, slots=True)
class Pin:
    """An official pack: the commit (40 hex digits) and the sha256 of its manifest. Where `signer`
    is given its signature is needed too."""

    name: str
    repo: str
    revision: str
    manifest_sha256: str
    signer: Signer | None = None


def registry() -> Mapping[str, Pin]:
    """The official packs by name, from the registry.json of this very wheel."""
    raise NotImplementedError


def verify(
    folder: Path,
    *,
    pin: Pin | None = None,
    policy: Policy | None = None,
    allow: Collection[str] = (),
    repo: str | None = None,
    revision: str | None = None,
    offline: bool = True,
) -> Receipt:
    """Check the pack in `folder`: first who vouches for the raw bytes of its manifest, and only
    then what these bytes say, down to the hash of every kernel.

    With `pin` nothing but the pinned bytes pass. Else the manifest's hash must be in `policy`
    (default: Policy.load()) or `allow` (words as of Policy.allowing), or a signature beside it must
    be by one of their signers or keys. `repo` and `revision` go on the receipt where there is no
    pin. `offline=False` lets sigstore refresh its root of trust.

    Raises TrustError when nobody vouches for the manifest, PackError when the pack is not what its
    manifest says. The receipt is returned, not written.
    """
    raise NotImplementedError
