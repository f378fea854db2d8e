"""Where the tables of this machine are: `v1/local/` in the cache, a folder for each GPU model.

Read by `discover`, written by `tuning`. A folder has packs, each named by the sha256 of its
manifest, and a pointer to the one that counts, which also says under what conditions the pack was
measured. A table is replaced by a new pack and a new pointer: a reader has the old one or the new
one. What is damaged is renamed to *.bad, so that one process says so and no other.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import CacheError, PackError
from ..cache_folders import check_private, make_private
from ..folder import Pack
from ..manifest_fields import SHA256
from ..receipts import read_own, write_whole
from ..strict_json import one_of, read_json, record
from .conditions import FIELDS, Conditions, changes, here

SCHEMA = "hgemm-packs/local-1"
POINTER = "current.json"
MAX_POINTER_BYTES = 4096
#: Of what is not damaged but not for this process, or not to be read just now.
_SOUND = frozenset({"stale", "launcher_abi", "unknown_schema", "unreadable"})


class Pointer(NamedTuple):
    """The pack that counts, and the conditions of its rows."""

    manifest_sha256: str
    conditions: Conditions


def _pointer(schema: str, manifest_sha256: str, **conditions: Any) -> Pointer:
    return Pointer(manifest_sha256, Conditions(**conditions))


_POINTER = record(_pointer, schema=one_of(SCHEMA), manifest_sha256=SHA256, **FIELDS)


def base_of(root: Path) -> Path:
    """The folder of all tables below the root of the cache."""
    return root / "v1" / "local"


def folder_of(root: Path, profile: str, sm_count: int) -> Path:
    """The folder of a GPU model."""
    words = re.sub(r"[^a-z0-9]+", "-", profile.lower()).strip("-")[:48]
    exact = hashlib.sha256(f"{profile} {sm_count}".encode()).hexdigest()
    return base_of(root) / f"{words}-{exact[:8]}"


def make_folder(root: Path, profile: str, sm_count: int) -> Path:
    """The same, made where it is missing. Raises CacheError, OSError."""
    folder = folder_of(root, profile, sm_count)
    for each in (root, root / "v1", base_of(root), folder):
        make_private(each)
    return folder


def find_folders(root: Path) -> list[Path]:
    """Folders with a pointer; of a cache that is not private none, as whoever looks for its packs
    says. Raises CacheError where others could write to the tables alone, OSError."""
    base = base_of(root)
    try:
        try:
            check_private(root)
            check_private(root / "v1")
        except CacheError:
            return []
        check_private(base)
        return [each for each in sorted(base.iterdir()) if (each / POINTER).exists()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_pointer(folder: Path) -> Pointer:
    """Raises PackError."""
    try:
        found: Pointer = _POINTER(
            read_json(read_own(folder / POINTER, MAX_POINTER_BYTES, "bad_pointer"))
        )
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise PackError("missing_file" if missing else "unreadable", str(error)) from None
    except PackError as error:
        raise PackError("bad_pointer", f"{POINTER}: {error}") from None
    return found


def open_table(folder: Path) -> Pack:
    """The table of a folder, if it holds under the conditions of this process; one that is damaged
    is put away. Raises PackError, with the code "stale" where it does not hold."""
    for last in (False, True):
        try:
            pointer = read_pointer(folder)
        except PackError as error:
            put_away(folder / "none", error)
            raise
        changed = changes(pointer.conditions, here())
        if changed:
            detail = f"{'; '.join(changed)}: `hgemm-packs tune` measures its rows again"
            raise PackError("stale", detail)
        try:
            return open_whole(folder, pointer)
        except PackError as error:
            if last or error.code != "missing_file":  # replaced twice since the pointer was read
                put_away(folder / pointer.manifest_sha256, error)
                raise
    raise AssertionError("unreachable")


def open_whole(folder: Path, pointer: Pointer) -> Pack:
    """The pack that a pointer names, whether it holds or not. Raises PackError."""
    pack = Pack.open(folder / pointer.manifest_sha256)
    pack.local = True
    if pack.manifest_sha256 != pointer.manifest_sha256:
        raise PackError("cache_name", f"the manifest of the pack has sha256 {pack.manifest_sha256}")
    return pack


def point(folder: Path, pointer: Pointer) -> None:
    """Let a pack of the folder count from now on, and delete those that no reader can be about to
    open. Raises OSError."""
    with suppress(PackError):
        before = read_pointer(folder).manifest_sha256
        keep = {pointer.manifest_sha256, before}
        for each in folder.iterdir():
            if re.fullmatch("[0-9a-f]{64}", each.name) and each.name not in keep:
                shutil.rmtree(each, ignore_errors=True)
    said = {"schema": SCHEMA, "manifest_sha256": pointer.manifest_sha256}
    said |= {name: getattr(pointer.conditions, name) for name in Conditions._fields}
    data = json.dumps(said, sort_keys=True, separators=(",", ":")) + "\n"
    write_whole(folder / POINTER, data.encode("ascii"))


def put_away(pack: Path, error: PackError) -> None:
    """Rename a damaged pack and its pointer to *.bad, but where the error says that it is sound, or
    another pack counts by now."""
    folder = pack.parent
    if error.code in _SOUND:
        return
    with suppress(OSError):
        try:
            if read_pointer(folder).manifest_sha256 != pack.name:
                return
        except PackError as damage:
            if damage.code == "missing_file":
                return  # another process has done it
        move_away(folder / POINTER)
        move_away(pack)


def move_away(path: Path) -> Path:
    """Rename a file or folder to *.bad, in the place of an older one. Raises OSError."""
    bad = path.with_name(f"{path.name}.bad")
    if bad.is_dir() and not bad.is_symlink():
        shutil.rmtree(bad)
    os.replace(path, bad)
    return bad
