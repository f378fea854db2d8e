"""A signature by key: what vouches for a pack, and what does not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hgemm_packs.distribution import signatures, trust
from hgemm_packs.distribution.trust import Key, TrustPolicy
from hgemm_packs.errors import TrustError
from tests import packs
from tests.distribution.trust.signed_folder import SIGNER, refused
from tests.distribution.trust.sigstore_world import (
    write_key,
)

pytestmark = pytest.mark.usefixtures("clean_process", "own_root")


def test_a_signature_by_key(folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path, "mine")
    assert signatures.sign_key(folder, private) == folder / "manifest.json.sig"
    receipt = trust.verify(folder, allow={f"key:{public}"})
    name = hashlib.sha256(public.read_bytes()).hexdigest()
    assert (receipt.authority, receipt.signer) == ("key", f"key:{name}")


def test_a_signature_by_another_key(folder: Path, tmp_path: Path) -> None:
    private, _ = write_key(tmp_path, "theirs")
    signatures.sign_key(folder, private)
    _, public = write_key(tmp_path, "mine")
    assert refused(folder, policy=TrustPolicy(keys=(Key.read(public),))) == "bad_signature"


def test_a_key_signature_of_another_manifest(folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path, "mine")
    info = packs.PackInfo("other", "1", "Apache-2.0", "2026-11-20T00:00:00Z")
    other = packs.write_good(tmp_path / "other", pack=info).path
    signatures.sign_key(other, private)
    (other / "manifest.json.sig").rename(folder / "manifest.json.sig")
    assert refused(folder, policy=TrustPolicy(keys=(Key.read(public),))) == "bad_signature"


def test_a_key_signature_that_leaves_the_manifest_out(folder: Path, tmp_path: Path) -> None:
    """model-signing lets a signature say which files it ignores. One that its owner made of an
    empty folder, ignoring everything, must not vouch for a manifest that he never saw."""
    from model_signing import hashing, signing

    private, public = write_key(tmp_path, "mine")
    empty = tmp_path / "empty"
    empty.mkdir()
    hashed = hashing.Config().set_ignored_paths(paths=["."])
    config = signing.Config().use_elliptic_key_signer(private_key=private)
    config.set_hashing_config(hashed).sign(empty, folder / "manifest.json.sig")
    assert refused(folder, policy=TrustPolicy(keys=(Key.read(public),))) == "bad_signature"


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[]"])
def test_a_key_signature_that_is_none(folder: Path, tmp_path: Path, content: bytes) -> None:
    _, public = write_key(tmp_path, "mine")
    (folder / "manifest.json.sig").write_bytes(content)
    assert refused(folder, policy=TrustPolicy(keys=(Key.read(public),))) == "bad_signature"


def test_a_key_that_is_none(folder: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path, "mine")
    signatures.sign_key(folder, private)
    public.write_text("no key")
    assert refused(folder, policy=TrustPolicy(keys=(Key.read(public),))) == "bad_key"
    with pytest.raises(TrustError, match="bad_key"):
        signatures.sign_key(folder, public)


def test_defect_08_a_key_is_read_once(folder: Path, tmp_path: Path) -> None:
    """What was checked vouches, not what lies under the name when a signature is looked at."""
    private, public = write_key(tmp_path, "mine")
    other, theirs = write_key(tmp_path, "theirs")
    policy = TrustPolicy().extend([f"key:{public}"])
    name = hashlib.sha256(public.read_bytes()).hexdigest()
    theirs.replace(public)
    signatures.sign_key(folder, other)
    assert refused(folder, policy=policy) == "bad_signature"
    signatures.sign_key(folder, private)
    assert trust.verify(folder, policy=policy).signer == f"key:{name}"


def test_a_valid_key_signature_beside_a_bad_bundle(folder: Path, tmp_path: Path) -> None:
    """One authority is enough, and a broken one beside it takes nothing away."""
    private, public = write_key(tmp_path, "mine")
    signatures.sign_key(folder, private)
    (folder / signatures.BUNDLE_NAME).write_bytes(b"{}")
    policy = TrustPolicy(signers=(SIGNER,), keys=(Key.read(public),))
    assert trust.verify(folder, policy=policy).authority == "key"
