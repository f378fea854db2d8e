"""Writes packs: a document in lines, and the folder that takes the place of an older one.

Called by the generator for packs and source documents, and by `tuning` for the table of this
machine. Everything written is read again by the runtime's own checks before it takes its place, so
no broken pack replaces a good one. Bytes depend on the arguments alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ...errors import of_path
from ..folder import BLOB_NAME, MANIFEST_NAME, Pack
from ..manifest_checks import OFFSET_ALIGN


def add_cubin(blob: bytearray, cubin: bytes | memoryview) -> dict[str, int]:
    """Put a cubin behind the others of a blob; where it is, by the names of a manifest."""
    blob.extend(bytes(-len(blob) % OFFSET_ALIGN))
    place = {"offset": len(blob), "size": len(cubin)}
    blob.extend(cubin)
    return place


def write_folder(out: Path, document: Mapping[str, Any], blob: bytes) -> None:
    """Put the pack of a manifest, but for its entry `blob`, and of its cubins at `out`, replacing a
    pack that is there. Raises PackError where the result is no valid pack, FileExistsError where
    `out` holds anything but a pack."""
    said = {"bytes": len(blob), "sha256": hashlib.sha256(blob).hexdigest()}
    check_target(out)
    with (
        of_path(out),
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch,
    ):
        fresh = Path(scratch) / "fresh"
        fresh.mkdir()
        write(fresh / BLOB_NAME, blob)
        write(fresh / MANIFEST_NAME, in_lines({**document, "blob": said}))
        _sync(fresh)
        Pack.open_verified(fresh).close()
        _swap(fresh, out, Path(scratch) / "replaced")
        _sync(out.parent)


def check_target(out: Path) -> None:
    """See that a pack may be put there, and make the folder above. Nothing but an older pack is
    ever replaced, so a mistyped path deletes nothing. Raises OSError."""
    if out.exists() or out.is_symlink():
        foreign = (
            [out.name]
            if not out.is_dir() or out.is_symlink()
            else sorted({each.name for each in out.iterdir()} - {MANIFEST_NAME, BLOB_NAME})
        )
        if foreign:
            raise FileExistsError(f"{out} is not a pack directory: it has {foreign[0]}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with of_path(out):
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent).cleanup()


def plain(value: Any) -> Any:
    """Dataclasses and named tuples as JSON objects, tuples as arrays. A row without a kernel for
    dependent launch does not mention one, nor one of packed and aligned operands how these lie, nor
    one of a single product how many there are, nor a profile what nobody recorded, nor a document
    without predictors these."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = {k: v for k, v in value._asdict().items() if v is not None or k == "kernel"}
        if value.get("packed", False):
            del value["packed"]
        if value.get("batches") == 1:
            del value["batches"]
        if isinstance(value.get("base"), tuple):
            value["base"] = dict(zip("abc", value["base"], strict=True))
            if {*value["base"].values()} == {16}:
                del value["base"]
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
        if not value.get("predictors", True):
            del value["predictors"]
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    return value


def in_lines(document: Mapping[str, Any]) -> bytes:
    """A document sorted, one field a line, and one kernel, one predictor and one row."""
    lines = []
    for name, value in sorted(document.items()):
        if name in ("kernels", "predictors", "table"):
            rows = ",\n".join(compact(each) for each in value)
            lines.append(f"{compact(name)}:[\n{rows}\n]")
        else:
            lines.append(f"{compact(name)}:{compact(value)}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("ascii")


def compact(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def write(path: Path, data: bytes) -> None:
    """Write a file to the disk itself. Raises OSError."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _swap(fresh: Path, out: Path, aside: Path) -> None:
    """Rename `fresh` to `out`, moving an older pack `aside`, and back again if that fails."""
    replaced = out.exists()
    if replaced:
        out.rename(aside)
    try:
        fresh.rename(out)
    except OSError:
        if replaced:
            aside.rename(out)
        raise


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
