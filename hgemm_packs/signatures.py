"""Signatures over the raw bytes of a manifest: sigstore's, and those by a key of one's own.

Called by `trust` and the CLI. sigstore and model-signing do all the cryptography and are imported
by the call that needs them; what a manifest says is never read here.
"""

from __future__ import annotations

from pathlib import Path

BUNDLE_NAME = "manifest.json.sigstore"
SIGNATURE_NAME = "manifest.json.sig"
#: What pip needs to hear where sigstore or model-signing is missing.
EXTRA = "hgemm-packs[verify]"


def sign_sigstore(manifest: Path) -> Path:
    """Sign with the ambient identity (a CI job's) or, without one, that of a login in the browser;
    returns the bundle beside the manifest. Needs the network, and enters the public log."""
    raise NotImplementedError


def verify_sigstore(
    manifest: bytes, bundle: Path, identity: str, issuer: str, *, offline: bool = True
) -> None:
    """Raises TrustError unless the bundle is a signature of these bytes by this identity."""
    raise NotImplementedError


def sign_key(folder: Path, private_key: Path) -> Path:
    """Sign folder/manifest.json with a PEM private key (elliptic curve, no password); returns the
    signature beside it."""
    raise NotImplementedError


def verify_key(folder: Path, public_key: Path, manifest: bytes | None = None) -> None:
    """Raises TrustError unless folder/manifest.json.sig is a signature by this key of `manifest`
    (default: the bytes of folder/manifest.json)."""
    raise NotImplementedError
