"""Writes a wheel so that its bytes follow from its files alone: no clock, no umask, no order.

Used by `data_wheel`, which makes wheels from nothing, and by `core_wheel`, which writes anew what
setuptools and auditwheel have made. It never decides what is in a wheel.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

#: The first moment that a zip can name. Installers do not keep the time, and one that everybody
#: uses cannot differ; so SOURCE_DATE_EPOCH has nothing to say here.
WHEN = (1980, 1, 1, 0, 0, 0)
FILE_MODE = 0o100644
LIBRARY_MODE = 0o100755


def write(path: Path, files: Mapping[str, bytes], dist_info: str) -> None:
    """Write a wheel of `files` (archive name -> content), its RECORD added, the `dist_info` folder
    last as the format recommends. What was at `path` is replaced at once or not at all."""
    files = {name: data for name, data in files.items() if name != f"{dist_info}/RECORD"}
    names = sorted(files, key=lambda name: (name.startswith(f"{dist_info}/"), name))
    record = [f"{name},sha256={_digest(files[name])},{len(files[name])}" for name in names]
    record.append(f"{dist_info}/RECORD,,")
    part = path.with_name(path.name + ".part")
    with zipfile.ZipFile(part, "w") as archive:
        for name in names:
            _add(archive, name, files[name])
        _add(archive, f"{dist_info}/RECORD", ("\n".join(record) + "\n").encode())
    os.replace(part, path)


def rewrite(path: Path) -> None:
    """Write an existing wheel anew, its files unchanged. Raises ValueError for what is no wheel."""
    with zipfile.ZipFile(path) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist() if info.filename}
    files = {name: data for name, data in files.items() if not name.endswith("/")}
    records = [name for name in files if name.endswith(".dist-info/RECORD")]
    if len(records) != 1:
        raise ValueError(f"{path.name}: {len(records)} files called RECORD, not one")
    write(path, files, records[0].partition("/")[0])


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, WHEN)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # Unix: the mode below is one of its
    info.external_attr = (LIBRARY_MODE if name.endswith(".so") else FILE_MODE) << 16
    archive.writestr(info, data, compresslevel=9)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        rewrite(Path(argument))
