"""The readers of bytes that others wrote, each as a function of one byte string.

Called by the hypothesis tests here and by benchmarks/gates/fuzz.py. A target returns for an input
that it accepts; any exception but PackError, and any read outside a file, is a finding. Never
mutates.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hgemm_packs import launcher, profiles
from hgemm_packs.distribution import lockfile, policy
from hgemm_packs.errors import PackError
from hgemm_packs.pack import folder as pack
from hgemm_packs.pack import manifest_reader, receipts, strict_json
from hgemm_packs.problem import Problem
from tests import cards

#: Between manifest and blob in an input of the pack target.
SEPARATOR = b"\n--blob--\n"
#: What a row of the good manifest is about.
ASKED = "NVIDIA H200", Problem(256, 512, 1024, "nn", "f16").key
#: A refusal is shown in a log line, whatever stands in the pack.
LONGEST_MESSAGE = 600


class OutsideRead(AssertionError):
    """A read that is not within its file, or a file that is none of a pack's two."""


class LongMessage(AssertionError):
    """A refusal whose text an attacker can make as long as he likes, or that is not printable."""


class WatchedOs:
    """The os module as `pack` sees it, with every read held against the size of its file."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def pread(handle: int, size: int, offset: int) -> bytes:
        if offset < 0 or size < 0 or offset + size > os.fstat(handle).st_size:
            raise OutsideRead(f"{size} bytes at {offset} of {os.fstat(handle).st_size}")
        return os.pread(handle, size, offset)

    @staticmethod
    def open(name: Any, flags: int, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None and name not in (pack.MANIFEST_NAME, pack.BLOB_NAME):
            raise OutsideRead(f"{name!r} is no file of a pack")
        return os.open(name, flags, dir_fd=dir_fd)


def accepted(read: Callable[[bytes], None], data: bytes) -> bool:
    """Whether `read` takes `data`; False is a PackError with a text fit for a log."""
    try:
        read(data)
    except PackError as error:
        said = str(error)
        if len(said) > LONGEST_MESSAGE or not said.isprintable():
            raise LongMessage(said[:2000]) from error
        return False
    return True


def read_json(data: bytes) -> None:
    """Any JSON document."""
    strict_json.read_json(data)


def read_manifest(data: bytes) -> None:
    """A manifest, by one problem and as a whole. What is accepted as a whole is accepted row by row
    and kernel by kernel, and says the same; it is the document that any reader of JSON sees."""
    alone, whole = manifest_reader.parse(data), manifest_reader.parse(data)
    refused = None
    try:
        alone.row(*ASKED)
        alone.predictor(ASKED[0])
    except PackError as error:
        refused = error
    whole.check()
    assert refused is None, refused
    document = json.loads(data)
    assert [row["m"] for row in document["table"]] == [row.m for row in whole.table]
    assert [kernel["id"] for kernel in document["kernels"]] == list(whole.by_id)
    for row in whole.table:
        assert alone.row(row.profile, row.key) == row == whole.rows[row.profile, row.key]
    for entry in whole.kernels:
        assert alone.kernel(entry.id) == entry
    assert len(document.get("predictors", [])) == len(whole.predictors)
    known = {each.name: each for each in whole.device_profiles}
    for mine in whole.device_profiles:  # a device is what a profile says, and any is compared
        there = profiles.as_device(mine, whole.arch, whole.min_driver)
        assert profiles.find_profile(whole, there) is mine
    profiles.find_profile(whole, cards.H200)
    for each in whole.predictors:
        assert alone.predictor(each.profile) == each
        if launcher._C is not None:  # C takes all that is accepted
            launcher.predictor(each, known[each.profile])


class PackReader:
    """Opens pack directories made of the two halves of an input, reads the kernel of one problem,
    and then all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = [
            os.open(folder / name, os.O_RDWR | os.O_CREAT)
            for name in (pack.MANIFEST_NAME, pack.BLOB_NAME)
        ]

    def close(self) -> None:
        for handle in self._files:
            os.close(handle)

    def __call__(self, data: bytes) -> None:
        manifest, _, blob = data.partition(SEPARATOR)
        for handle, half in zip(self._files, (manifest, blob), strict=True):
            os.ftruncate(handle, 0)
            os.pwrite(handle, half, 0)
        opened = pack.Pack.open(self._folder)
        try:
            row = opened.manifest.row(*ASKED)
            if row is not None and row.kernel is not None:
                opened.image(opened.manifest.kernel(row.kernel))
            opened.verify()
            for entry in opened.manifest.kernels:
                image = opened.image(entry)
                assert bytes(image) == blob[entry.offset : entry.offset + entry.size]
                assert hashlib.sha256(image).hexdigest() == entry.id
        finally:
            opened.close()


class ReceiptReader:
    """Reads an input as the receipt of the pack that it names, or of another one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / "v1" / "receipts"
        self._folder.mkdir(mode=0o700, parents=True)
        self._file = os.open(self._folder / f"{'a' * 64}.json", os.O_RDWR | os.O_CREAT, 0o600)

    def close(self) -> None:
        os.close(self._file)

    def __call__(self, data: bytes) -> None:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, 0)
        receipt = receipts.read_receipt(self._root, "a" * 64)
        assert receipt is not None
        assert receipt.manifest_sha256 == "a" * 64


class LockReader:
    """Reads an input as a lock file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / lockfile.FILE_NAME
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT)

    def close(self) -> None:
        os.close(self._file)

    def __call__(self, data: bytes) -> None:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, 0)
        read = lockfile.read(self._path)
        assert len({each.manifest_sha256 for each in read}) == len(read)


class PolicyReader:
    """Reads an input as the user's policy file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "policy.toml"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        (folder / "key.pem").write_bytes(b"")

    def close(self) -> None:
        os.close(self._file)

    def __call__(self, data: bytes) -> None:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, 0)
        try:
            with mock.patch.object(policy, "settings", lambda: SimpleNamespace(policy=self._path)):
                read = policy.TrustPolicy.load()
        except PackError as error:
            # It names files, as long as the user's own names for them are.
            raise PackError(error.code, "") from None
        assert all(len(each) == 64 for each in read.sha256)


@contextmanager
def targets() -> Iterator[dict[str, Callable[[bytes], None]]]:
    """All targets by name, while their files exist."""
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    watched = mock.patch.object(pack, "os", WatchedOs())
    with tempfile.TemporaryDirectory(dir=fast) as folder, watched:
        opened = PackReader(Path(folder))
        receipt = ReceiptReader(Path(folder))
        policies = PolicyReader(Path(folder))
        locks = LockReader(Path(folder))
        try:
            yield {
                "json": read_json,
                "lock": locks,
                "manifest": read_manifest,
                "pack": opened,
                "policy": policies,
                "receipt": receipt,
            }
        finally:
            for each in (opened, receipt, policies, locks):
                each.close()
