"""A pack: manifest and blob of one directory, verified before anything of it is used.

Opened by `discover`, which leaves kernels and rows unread until they are asked for; verified as a
whole by whoever makes, fetches or passes on a pack. Reads two fixed file names and no other; never
follows a link, never joins a name from a manifest to a path.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import weakref
from collections.abc import Iterable
from pathlib import Path

from ..errors import PackError
from . import manifest_reader
from .manifest import MAX_BLOB_BYTES, MAX_MANIFEST_BYTES, KernelEntry
from .manifest_reader import Manifest

MANIFEST_NAME = "manifest.json"
BLOB_NAME = "kernels.bin"
#: Signatures over the manifest: sigstore's, and one by a key.
BUNDLE_NAME = "manifest.json.sigstore"
SIGNATURE_NAME = "manifest.json.sig"
LICENSE_NAME, REPORT_NAME = "LICENSE", "REPORT.md"
CARD_NAME = "README.md"
#: Every file that a pack may have, wherever it lies.
FILES = (
    *(MANIFEST_NAME, BLOB_NAME, BUNDLE_NAME, SIGNATURE_NAME),
    *(LICENSE_NAME, REPORT_NAME, CARD_NAME),
)

# Of the header of a cubin: magic; class, data, version, ABI; type and machine; flags.
_HEADER = struct.Struct("<4s3BxB7xHH28xI")
#: An ELF of 64 bits as CUDA 13 writes it (ABI 8), linked, for a GPU.
_CUBIN = (b"\x7fELF", 2, 1, 1, 8, 2, 190)


class Pack:
    """An open pack. It keeps the blob's file open and nothing of it in memory.

    The blob is read with pread, not mapped: a file truncated under a mapping kills the process, and
    bytes that were hashed in a mapping may change before the driver reads them.
    """

    #: Whether this machine measured it, for itself (`pack.local`): its rows come before all others.
    local = False

    def __init__(self, path: Path, manifest: Manifest, manifest_sha256: str, blob: int) -> None:
        self.path = path
        self.manifest = manifest
        self.manifest_sha256 = manifest_sha256
        self._blob = blob
        self.close = weakref.finalize(self, os.close, blob)

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Pack:
        """Open a pack directory and check the head of its manifest and the blob's size. Kernels,
        rows and cubins are checked when they are asked for.

        Raises PackError, and no OSError, whatever the directory holds.
        """
        path = Path(directory)
        folder = _open(path, os.O_DIRECTORY, None)
        try:
            data = _read_whole(MANIFEST_NAME, folder, MAX_MANIFEST_BYTES)
            manifest = manifest_reader.parse(data)
            blob = _open_regular(BLOB_NAME, folder)
        finally:
            os.close(folder)
        pack = cls(path, manifest, hashlib.sha256(data).hexdigest(), blob)
        declared, size = manifest.blob.bytes, _facts(blob).st_size
        if size != declared or size > MAX_BLOB_BYTES:
            pack.close()
            raise PackError("blob_size", f"{size} bytes; the manifest declares {declared}")
        return pack

    @classmethod
    def open_verified(cls, directory: str | os.PathLike[str]) -> Pack:
        """Open a pack directory and check all of it. Raises as `open` does."""
        pack = cls.open(directory)
        try:
            pack.verify()
        except BaseException:
            pack.close()
            raise
        return pack

    def verify(self) -> None:
        """Check every kernel and row, all of them against each other, padding and every hash.
        Raises PackError."""
        self.manifest.check()
        manifest = self.manifest
        _check_blob(self._blob, manifest.kernels, manifest.blob.sha256, manifest.arch)

    def image(self, entry: KernelEntry) -> memoryview:
        """The cubin of a kernel of this pack, read and hashed anew: the bytes handed out are the
        bytes that were checked. Raises PackError when the file changed since it was opened."""
        if not self.manifest.holds(entry):
            raise PackError("foreign_kernel", f"{entry.name} is not a kernel of {self.path}")
        return memoryview(_read_image(self._blob, entry, self.manifest.arch))

    def __repr__(self) -> str:
        info = self.manifest.pack
        return f"Pack({info.name} {info.version}, {self.manifest.arch}, {str(self.path)!r})"


def read_file(directory: Path, name: str, limit: int) -> bytes:
    """The bytes of one of a pack's fixed files, unparsed. Raises PackError, as Pack.open does, for
    anything but a regular file of at most `limit` bytes."""
    folder = _open(directory, os.O_DIRECTORY, None)
    try:
        return _read_whole(name, folder, limit)
    finally:
        os.close(folder)


_CODES = {errno.ENOENT: "missing_file", errno.ELOOP: "symlink", errno.ENOTDIR: "not_a_directory"}


def _open(name: str | Path, flags: int, folder: int | None) -> int:
    # O_NONBLOCK: opening a FIFO that nobody writes to must not hang the process.
    flags |= os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(name, flags, dir_fd=folder)
    except (OSError, ValueError) as error:
        code = _CODES.get(getattr(error, "errno", 0) or 0, "unreadable")
        raise PackError(code, f"{name}: {getattr(error, 'strerror', error)}") from None


def _open_regular(name: str, folder: int) -> int:
    handle = _open(name, os.O_NOFOLLOW, folder)
    try:
        if not stat.S_ISREG(_facts(handle).st_mode):
            raise PackError("not_regular_file", f"{name} is not a regular file")
    except BaseException:
        os.close(handle)
        raise
    return handle


def _facts(handle: int) -> os.stat_result:
    try:
        return os.fstat(handle)
    except OSError as error:  # a network file that is gone
        raise PackError("unreadable", str(error)) from None


def _read_whole(name: str, folder: int, limit: int) -> bytes:
    handle = _open_regular(name, folder)
    try:
        size = _facts(handle).st_size
        if size > limit:
            code = "manifest_too_large" if name == MANIFEST_NAME else "file_too_large"
            raise PackError(code, f"{name}: {size} bytes are more than {limit}")
        return _read(handle, 0, size)
    finally:
        os.close(handle)


def _read(handle: int, offset: int, size: int) -> bytes:
    """`size` bytes at `offset`. Raises PackError when the file ends before, or cannot be read."""
    parts = []
    while size:
        try:
            part = os.pread(handle, size, offset)
        except OSError as error:
            raise PackError("unreadable", str(error)) from None
        if not part:
            raise PackError("truncated", f"the file ends at byte {offset}")
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)


def _read_image(blob: int, entry: KernelEntry, arch: str) -> bytes:
    image = _read(blob, entry.offset, entry.size)
    found = hashlib.sha256(image).hexdigest()
    if found != entry.id:
        raise PackError("kernel_hash", f"{entry.name}: sha256 is {found}, but the id is {entry.id}")
    _check_cubin(image, entry.name, arch)
    return image


def _check_cubin(image: bytes, name: str, arch: str) -> None:
    """Code for this architecture and nothing that a driver would compile, as it does with PTX:
    only what was measured runs. The header does not tell sm_90a from sm_90."""
    *kind, flags = _HEADER.unpack_from(image) if len(image) >= _HEADER.size else (b"", 0)
    if tuple(kind) != _CUBIN:
        raise PackError("not_cubin", f"{name} is not a cubin of CUDA 13")
    sm = f"sm_{flags >> 8 & 0xFF}"
    if sm != arch.rstrip("af"):
        raise PackError("cubin_arch", f"{name} has code for {sm}, the pack is for {arch}")


def _check_blob(blob: int, kernels: Iterable[KernelEntry], sha256: str, arch: str) -> None:
    """Padding, every cubin against its id, the whole against its hash; one cubin in memory at a
    time."""
    whole, end = hashlib.sha256(), 0
    for entry in kernels:
        padding = _read(blob, end, entry.offset - end)
        if padding.strip(b"\0"):
            raise PackError("blob_padding", f"bytes before {entry.name} are not zero")
        whole.update(padding)
        whole.update(_read_image(blob, entry, arch))
        end = entry.offset + entry.size
    if whole.hexdigest() != sha256:
        raise PackError("blob_hash", f"sha256 is {whole.hexdigest()}, not {sha256}")
