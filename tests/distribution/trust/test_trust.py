"""Who may vouch for a pack, each refusal by itself, and that nothing is parsed before.

sigstore's own verifier runs, offline, against the root of trust of `sigstore_world`; only that root
is put in place of the public one. What is not tested is signing through the public service.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.distribution import signatures, trust
from hgemm_packs.distribution.trust import Key, Pin, Receipt, Signer, TrustPolicy
from hgemm_packs.errors import PackError, TrustError
from tests import packs
from tests.distribution.trust.signed_folder import SIGNER, refused
from tests.distribution.trust.sigstore_world import (
    IDENTITY,
    ISSUER,
    SIGNED_AT,
    World,
    world,
    write_key,
)

pytestmark = pytest.mark.usefixtures("clean_process", "own_root")
BY_SIGNER = TrustPolicy(signers=(SIGNER,))
REVISION = "c" * 40


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()


def pin_of(folder: Path, **changes: Any) -> Pin:
    return dataclasses.replace(Pin("test", "owner/repo", REVISION, digest(folder)), **changes)


def bundle(folder: Path, by: World | None = None, data: bytes | None = None, **how: Any) -> None:
    """Put a bundle beside the manifest, of the manifest unless `data` is given."""
    signed = (by or world()).sign(data or (folder / "manifest.json").read_bytes(), **how)
    (folder / signatures.BUNDLE_NAME).write_text(json.dumps(signed))


def change_bundle(folder: Path, change: Callable[[Any], None]) -> None:
    path = folder / signatures.BUNDLE_NAME
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_pinned_pack(folder: Path) -> None:
    pin = pin_of(folder)
    receipt = trust.verify(folder, pin=pin)
    blob = hashlib.sha256((folder / "kernels.bin").read_bytes()).hexdigest()
    assert receipt == Receipt(
        digest(folder), blob, "owner/repo", REVISION, "registry", None, receipt.when
    )


def test_a_pin_of_another_manifest(folder: Path) -> None:
    """Whatever else the user trusts: a pinned name means the pinned bytes."""
    pin = pin_of(folder, manifest_sha256="d" * 64)
    allowed = TrustPolicy(frozenset({digest(folder)}))
    assert refused(folder, pin=pin, policy=allowed) == "wrong_manifest"


def test_a_pin_with_a_signer_needs_the_signature(folder: Path) -> None:
    pin = pin_of(folder, signer=SIGNER)
    assert refused(folder, pin=pin) == "no_signature"
    bundle(folder, identity=IDENTITY.replace("v1", "v2"))
    assert refused(folder, pin=pin) == "bad_signature"
    bundle(folder)
    assert trust.verify(folder, pin=pin).signer == str(SIGNER)


def test_nobody_vouches(folder: Path) -> None:
    assert refused(folder) == "no_authority"
    bundle(folder)  # a signature by somebody of whom the user never heard changes nothing
    assert refused(folder) == "no_authority"


def test_an_allowed_hash(folder: Path) -> None:
    receipt = trust.verify(
        folder, allow={f"sha256:{digest(folder)}"}, repo="owner/repo", revision=REVISION
    )
    assert (receipt.authority, receipt.repo, receipt.revision) == ("sha256", "owner/repo", REVISION)


def test_another_hash_is_allowed(folder: Path) -> None:
    assert refused(folder, allow={"sha256:" + "e" * 64}) == "no_authority"


def test_the_policy_file_counts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(f'sha256 = ["{digest(folder)}"]\n')
    file.chmod(0o644)
    monkeypatch.setenv("HGEMM_PACKS_POLICY", str(file))
    assert trust.verify(folder).authority == "sha256"


def test_a_sigstore_signature(folder: Path) -> None:
    bundle(folder)
    receipt = trust.verify(folder, policy=BY_SIGNER)
    assert (receipt.authority, receipt.signer) == ("sigstore", f"sigstore:{ISSUER} {IDENTITY}")


def test_a_signer_named_in_the_call(folder: Path) -> None:
    bundle(folder)
    assert trust.verify(folder, allow={f"sigstore:{IDENTITY}"}).authority == "sigstore"


def test_the_second_signer_of_a_policy(folder: Path) -> None:
    bundle(folder)
    other = Signer(ISSUER, "https://github.com/other/packs/w.yml@refs/tags/v1")
    assert trust.verify(folder, policy=TrustPolicy(signers=(other, SIGNER))).signer == str(SIGNER)


@pytest.mark.parametrize(
    "how",
    [
        {"identity": IDENTITY.replace("owner", "0wner")},
        {"identity": IDENTITY + "0"},
        {"issuer": "https://accounts.example"},
        {"data": b"another manifest"},
        {"by": World()},
        {"logged_at": SIGNED_AT + timedelta(minutes=11)},
        {"logged_at": SIGNED_AT - timedelta(minutes=1)},
    ],
    ids=[
        "another workflow",
        "another ref",
        "another issuer",
        "another manifest",
        "another sigstore",
        "expired certificate",
        "certificate not yet valid",
    ],
)
def test_a_bundle_that_does_not_vouch(folder: Path, how: dict[str, Any]) -> None:
    bundle(folder, **how)
    assert refused(folder, policy=BY_SIGNER) == "bad_signature"


def test_a_replaced_signature(folder: Path) -> None:
    """Log entry and certificate are the right ones; the signature is that of other bytes."""
    bundle(folder)
    other = world().sign(b"other")

    def replace(document: Any) -> None:
        document["messageSignature"]["signature"] = other["messageSignature"]["signature"]

    change_bundle(folder, replace)
    assert refused(folder, policy=BY_SIGNER) == "bad_signature"


def test_a_log_entry_of_another_signature(folder: Path) -> None:
    bundle(folder)
    other = world().sign(b"other")

    def replace(document: Any) -> None:
        entries = other["verificationMaterial"]["tlogEntries"]
        document["verificationMaterial"]["tlogEntries"] = entries

    change_bundle(folder, replace)
    assert refused(folder, policy=BY_SIGNER) == "bad_signature"


def test_a_signature_that_no_log_saw(folder: Path) -> None:
    bundle(folder)
    change_bundle(folder, lambda bundle: bundle["verificationMaterial"].update(tlogEntries=[]))
    assert refused(folder, policy=BY_SIGNER) == "bad_signature"


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[" * 100_000, b"x" * (2 << 20)])
def test_a_bundle_that_is_none(folder: Path, content: bytes) -> None:
    (folder / signatures.BUNDLE_NAME).write_bytes(content)
    assert refused(folder, policy=BY_SIGNER) == "bad_signature"


def test_a_bundle_that_is_a_link(folder: Path, tmp_path: Path) -> None:
    bundle(folder)
    path = folder / signatures.BUNDLE_NAME
    path.symlink_to(path.rename(tmp_path / "elsewhere"))
    assert refused(folder, policy=BY_SIGNER) == "bad_signature"


def test_no_issuer_is_not_any_issuer(folder: Path) -> None:
    bundle(folder)
    with pytest.raises(TrustError, match="names no issuer"):
        signatures.verify_sigstore(
            (folder / "manifest.json").read_bytes(), folder / signatures.BUNDLE_NAME, IDENTITY, ""
        )


@pytest.mark.parametrize(
    ("module", "file"),
    [("sigstore.models", signatures.BUNDLE_NAME), ("model_signing.hashing", "manifest.json.sig")],
)
def test_without_the_extra_a_signature_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, file: str
) -> None:
    _, public = write_key(tmp_path, "mine")
    (folder / file).write_bytes(b"{}")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TrustError, match=r"need pip install 'hgemm-packs\[verify\]'") as error:
        trust.verify(folder, policy=TrustPolicy(signers=(SIGNER,), keys=(Key.read(public),)))
    assert error.value.code == "missing_extra"


def test_nothing_is_parsed_before_somebody_vouches(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "manifest.json").write_bytes(b"{ not JSON")
    bundle(folder, data=b"something else")
    opened = trust.Pack.open

    def forbidden(path: Path) -> Any:
        raise AssertionError("the manifest was read")

    monkeypatch.setattr(trust.Pack, "open", forbidden)
    assert refused(folder, pin=pin_of(folder, manifest_sha256="d" * 64)) == "wrong_manifest"
    assert refused(folder) == "no_authority"
    assert refused(folder, policy=BY_SIGNER) == "bad_signature"
    monkeypatch.setattr(trust.Pack, "open", opened)
    with pytest.raises(PackError, match="not_json"):
        trust.verify(folder, pin=pin_of(folder))


def test_kernels_that_the_manifest_does_not_describe(folder: Path) -> None:
    blob = folder / "kernels.bin"
    data = bytearray(blob.read_bytes())
    data[300] ^= 1
    blob.write_bytes(data)
    with pytest.raises(PackError) as error:
        trust.verify(folder, pin=pin_of(folder))
    assert error.value.code == "kernel_hash"


def test_a_manifest_exchanged_while_it_is_checked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = packs.PackInfo("other", "1", "Apache-2.0", "2026-11-20T00:00:00Z")
    other = packs.write_good(tmp_path / "other", pack=info).path
    opened = trust.Pack.open
    monkeypatch.setattr(trust.Pack, "open", lambda _: opened(other))
    assert refused(folder, pin=pin_of(folder)) == "changed"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="missing_file"):
        trust.verify(tmp_path / "none")


def test_a_manifest_that_is_too_large(folder: Path) -> None:
    with (folder / "manifest.json").open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(PackError, match="manifest_too_large"):
        trust.verify(folder)


def test_the_public_root_of_trust_is_that_of_the_wheel(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seam that the other tests replace. It knows the public logs, and not ours; no file of the
    user's is read or written."""
    monkeypatch.undo()
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    trusted = signatures._verifier()._trusted_root._inner
    assert "https://rekor.sigstore.dev" in [log.base_url for log in trusted.tlogs]
    bundle(folder)
    assert refused(folder, policy=BY_SIGNER) == "bad_signature"
    assert not (tmp_path / "home").exists()


def test_sign_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from hgemm_packs.cli.app import app
    from hgemm_packs.cli.console import UserError

    private, public = write_key(tmp_path, "mine")
    done = CliRunner().invoke(app, ["sign", str(folder), "--key", str(private)])
    assert done.exit_code == 0 and f"manifest sha256:{digest(folder)}" in done.stdout
    assert trust.verify(folder, allow={f"key:{public}"}).authority == "key"

    (folder / "kernels.bin").write_bytes(b"")
    broken = CliRunner().invoke(app, ["sign", str(folder), "--key", str(private)])
    assert isinstance(broken.exception, UserError), "a pack that does not hold is not signed"
