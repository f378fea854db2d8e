"""Signatures over the raw bytes of a manifest: sigstore's, and those by a key of one's own.

Called by `trust` and the CLI. sigstore and model-signing do all the cryptography and are imported
by the call that needs them; what a manifest says is never read here.
"""

from __future__ import annotations

import hashlib
import importlib
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import PackError, TrustError
from ..pack.folder import BUNDLE_NAME, MANIFEST_NAME, SIGNATURE_NAME, read_file
from ..pack.manifest import MAX_MANIFEST_BYTES
from ..pack.strict_json import check_depth
from .policy import Key

if TYPE_CHECKING:
    from sigstore.oidc import IdentityToken
    from sigstore.verify import Verifier

MAX_SIGNATURE_BYTES = 1 << 20
#: Where sigstore's wheel keeps what it knows of the public instance.
PUBLIC_ROOT = "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev"
#: What pip needs to hear where sigstore or model-signing is missing.
EXTRA = "hgemm-packs[verify]"


def sign_sigstore(manifest: Path) -> Path:
    """Sign with the ambient identity (a CI job's) or, without one, that of a login in the browser;
    returns the bundle beside the manifest. Needs the network, and enters the public log."""
    try:
        from sigstore.models import ClientTrustConfig
        from sigstore.sign import SigningContext
    except ModuleNotFoundError as error:
        raise _make_missing_error(error) from None
    data = read_file(manifest.parent, MANIFEST_NAME, MAX_MANIFEST_BYTES)
    config = ClientTrustConfig.production()
    with SigningContext.from_trust_config(config).signer(_identity(config)) as signer:
        bundle = signer.sign_artifact(data)
    path = manifest.with_name(BUNDLE_NAME)
    path.write_text(bundle.to_json(), encoding="utf-8")
    return path


def _identity(config: Any) -> IdentityToken:
    from sigstore.oidc import IdentityToken, Issuer, detect_credential

    ambient = detect_credential()
    if ambient is not None:
        return IdentityToken(ambient)
    return Issuer(config.signing_config.get_oidc_url()).identity_token()


def verify_sigstore(manifest: bytes, bundle: Path, identity: str, issuer: str) -> None:
    """Raises TrustError unless the bundle is a signature of these bytes by this identity. Asks no
    network: the bundle brings the log's proofs along."""
    try:
        from sigstore.models import Bundle
        from sigstore.verify.policy import Identity
    except ModuleNotFoundError as error:
        raise _make_missing_error(error) from None
    data = _signature(bundle.parent, bundle.name)
    if not issuer:  # sigstore would take this for any issuer
        raise TrustError("bad_signature", f"{identity} names no issuer")
    try:
        _verifier().verify_artifact(
            manifest, Bundle.from_json(data), Identity(identity=identity, issuer=issuer)
        )
    except Exception as error:  # what a hostile bundle makes the libraries raise is not theirs only
        raise TrustError(
            "bad_signature", f"{bundle.name} is not a signature by {identity}: {_said(error)}"
        ) from None


def _verifier() -> Verifier:
    """sigstore's verifier with the root of trust that its wheel carries; tests have another.

    `Verifier.production(offline=True)` would take a copy from the user's cache instead, made at its
    first use and not replaced by a newer sigstore.
    """
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier

    root = resources.files("sigstore._store") / PUBLIC_ROOT / "trusted_root.json"
    with resources.as_file(root) as path:
        return Verifier(trusted_root=TrustedRoot.from_file(str(path)))


def sign_key(folder: Path, private_key: Path) -> Path:
    """Sign folder/manifest.json with a PEM private key (P-256, P-384 or P-521, no password);
    returns the signature beside it. Raises TrustError for a key that cannot be used."""
    hashing, signing = _model_signing("hashing"), _model_signing("signing")
    path = folder / SIGNATURE_NAME
    try:
        config = signing.Config().use_elliptic_key_signer(private_key=private_key)
    except (OSError, TypeError, ValueError) as error:
        raise TrustError("bad_key", f"{private_key}: {_said(error)}") from None
    config.set_hashing_config(hashing.Config()).sign(folder / MANIFEST_NAME, path)
    return path


def verify_key(manifest: bytes, signature: Path, key: Key) -> str:
    """Returns the sha256 of the key's PEM text. Raises TrustError unless the file is a signature of
    these bytes by this key."""
    hashing, verifying = _model_signing("hashing"), _model_signing("verifying")
    every_file = hashing.Config()
    # A signature may name files that it leaves out. Here there is one, and it counts.
    every_file.add_ignored_paths = lambda **_: None
    data = _signature(signature.parent, signature.name)
    with tempfile.TemporaryDirectory() as own:  # the library wants files; these nobody exchanges
        signed, by, pem = (Path(own, name) for name in (MANIFEST_NAME, "sig", "key.pem"))
        for path, content in ((signed, manifest), (by, data), (pem, key.pem)):
            path.write_bytes(content)
        try:
            config = verifying.Config().use_elliptic_key_verifier(public_key=pem)
        except Exception as error:
            raise TrustError("bad_key", f"{key.path}: {_said(error)}") from None
        try:
            config.set_hashing_config(every_file).verify(signed, by)
        except Exception as error:  # as above: any file may lie here
            raise TrustError(
                "bad_signature",
                f"{signature.name} is not a signature by {key.path}: {_said(error)}",
            ) from None
    return hashlib.sha256(key.pem).hexdigest()


def _model_signing(name: str) -> Any:
    """One of model-signing's modules; Any, since only half of them are annotated."""
    try:
        return importlib.import_module(f"model_signing.{name}")
    except ModuleNotFoundError as error:
        raise _make_missing_error(error) from None


def _signature(folder: Path, name: str) -> bytes:
    try:
        data = read_file(folder, name, MAX_SIGNATURE_BYTES)
        check_depth(data)  # the libraries decode it
        return data
    except PackError as error:
        code = "no_signature" if error.code == "missing_file" else "bad_signature"
        raise TrustError(code, str(error)) from None


def _make_missing_error(error: ModuleNotFoundError) -> TrustError:
    return TrustError("missing_extra", f"signatures need pip install '{EXTRA}': {error}")


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
