"""Receipts: written whole or not at all, and refused when torn, altered or somebody else's."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from hgemm_packs.distribution.trust import Receipt, read_receipt, write_receipt
from hgemm_packs.errors import PackError

RECEIPT = Receipt(
    "a" * 64, "b" * 64, "owner/repo", "c" * 40, "sha256", None, "2026-11-20T00:00:00Z"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of RECEIPT in a cache at tmp_path."""
    return write_receipt(tmp_path, RECEIPT)


def code(root: Path, sha: str = "a" * 64) -> str:
    with pytest.raises(PackError) as error:
        read_receipt(root, sha)
    return error.value.code


@pytest.mark.parametrize(
    "receipt",
    [
        RECEIPT,
        Receipt("a" * 64, "b" * 64, None, None, "sha256", None, "2026-11-20T00:00:00Z"),
        dataclasses.replace(RECEIPT, authority="sigstore", signer="sigstore:https://i me@x.org"),
    ],
)
def test_what_is_written_is_read(tmp_path: Path, receipt: Receipt) -> None:
    path = write_receipt(tmp_path, receipt)
    assert path == tmp_path / "v1" / "receipts" / f"{'a' * 64}.json"
    assert read_receipt(tmp_path, "a" * 64) == receipt
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_no_receipt(tmp_path: Path, path: Path) -> None:
    assert read_receipt(tmp_path, "d" * 64) is None
    assert read_receipt(tmp_path / "elsewhere", "a" * 64) is None


def test_the_bytes_are_the_same_whoever_writes(tmp_path: Path, path: Path) -> None:
    assert path.read_bytes() == (
        b'{"authority":"sha256","blob_sha256":"' + b"b" * 64 + b'","manifest_sha256":"' + b"a" * 64
        + b'","repo":"owner/repo","revision":"' + b"c" * 40
        + b'","signer":null,"when":"2026-11-20T00:00:00Z"}\n'
    )  # fmt: skip


def test_a_torn_receipt(tmp_path: Path, path: Path) -> None:
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert code(tmp_path) == "bad_receipt"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"sha256"', b'"everything"'),
        (b'"sha256"', b"true"),
        (b"owner/repo", b"../repo"),
        (b"c" * 40, b"main"),
        (b"b" * 64, b"b" * 63),
        (b'"signer":null', b'"signer": null'),
        (b'"signer":null', b'"signer":null,"signer":null'),
        (b'"signer":null', b'"checked":true,"signer":null'),
        (b'"signer":null,', b""),
        (b"}\n", b"}"),
        (b"}\n", b"}\n" + b" " * 9000),
    ],
)
def test_an_altered_receipt(tmp_path: Path, path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))
    assert code(tmp_path) == "bad_receipt"


def test_the_receipt_of_another_pack(tmp_path: Path, path: Path) -> None:
    path.with_name("d" * 64 + ".json").write_bytes(path.read_bytes())
    assert code(tmp_path, "d" * 64) == "bad_receipt"


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_receipt_that_others_can_write(tmp_path: Path, path: Path, mode: int) -> None:
    path.chmod(mode)
    assert code(tmp_path) == "bad_receipt"


def test_receipts_in_a_folder_that_others_can_write(tmp_path: Path, path: Path) -> None:
    path.parent.chmod(0o777)
    assert code(tmp_path) == "bad_receipt"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_receipt_of_somebody_else(tmp_path: Path, path: Path) -> None:
    os.chown(path, 65534, -1)
    assert code(tmp_path) == "bad_receipt"


def test_a_receipt_that_is_a_link(tmp_path: Path, path: Path) -> None:
    path.symlink_to(path.rename(tmp_path / "elsewhere"))
    assert code(tmp_path) == "bad_receipt"


def test_a_receipt_that_is_a_fifo(tmp_path: Path, path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)
    assert code(tmp_path) == "bad_receipt"


def test_a_receipt_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(PackError):
        write_receipt(tmp_path, dataclasses.replace(RECEIPT, authority="myself"))
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_receipt(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_receipt(tmp_path, dataclasses.replace(RECEIPT, authority="key"))
    assert read_receipt(tmp_path, "a" * 64) == RECEIPT
    assert list(path.parent.iterdir()) == [path]
