"""A source document as a folder of small files: what a pack is, its kernels, a table for each
layout and type, rows of grouped products and predictors, where there are any.

Called by `pack_writer`, which checks the document as a whole; nothing is checked here but that
each file has its form. `pack.json` has all other fields. A file of records says once, as
`constants`, what all of them share, at any depth; each record has a line with the rest.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hgemm_packs.errors import PackError
from hgemm_packs.pack.manifest import MAX_MANIFEST_BYTES
from hgemm_packs.pack.strict_json import read_json

PACK, KERNELS, TABLE = "pack.json", "kernels.json", "table-{}-{}.json"
GROUPED, PREDICTORS = "grouped.json", "predictors.json"

#: Fields that have files of their own.
LISTED = ("kernels", "predictors", "table", "grouped")

Record = Mapping[str, Any]


def is_folder(path: Path) -> bool:
    """Whether a source document of this path is a folder: one file ends in .json."""
    return path.suffix != ".json"


def is_source(path: Path) -> bool:
    """Whether a path names a source document, and not a run folder or an export."""
    return not is_folder(path) or (path / PACK).is_file()


def split(document: Record) -> dict[str, bytes]:
    """The files of a document whose kernels and rows are sorted."""
    rest = {name: each for name, each in document.items() if name not in LISTED}
    grouped = {GROUPED: _records(document["grouped"])} if "grouped" in document else {}
    tables: dict[str, list[Record]] = {}
    for row in document["table"]:
        tables.setdefault(TABLE.format(row["layout"], row["dtype"]), []).append(row)
    return {
        PACK: (json.dumps(rest, indent=1, sort_keys=True) + "\n").encode("ascii"),
        KERNELS: _records(document["kernels"]),
        **grouped,
        **{name: _records(rows) for name, rows in sorted(tables.items())},
    } | ({PREDICTORS: _records(document["predictors"])} if "predictors" in document else {})


def join(folder: Path) -> dict[str, Any]:
    """The document of such a folder, its rows table by table. Raises PackError, OSError."""
    names = sorted(each.name for each in folder.iterdir())
    foreign = [name for name in names if not _ours(name)]
    if foreign:
        raise PackError("foreign_file", f"{foreign[0]!a} in a source document")
    document = _object(folder / PACK)
    for name in LISTED:
        if name in document:
            raise PackError("unknown_field", f"{PACK} has {name}", name)
    tables = [name for name in names if name not in (PACK, KERNELS, GROUPED, PREDICTORS)]
    if GROUPED in names:
        document["grouped"] = _read(folder / GROUPED)
    document["kernels"] = _read(folder / KERNELS)
    if PREDICTORS in names:
        document["predictors"] = _read(folder / PREDICTORS)
    document["table"] = [row for name in tables for row in _read(folder / name)]
    return document


def write(folder: Path, files: Mapping[str, bytes], put: Callable[[Path, bytes], None]) -> None:
    """Put the files where the folder is to be, by `put`; an older document there goes. Raises
    FileExistsError for a folder that has anything else."""
    if folder.exists():
        foreign = sorted(each.name for each in folder.iterdir() if not _ours(each.name))
        if foreign:
            raise FileExistsError(f"{folder} is no source document: it has {foreign[0]}")
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "fresh"
        fresh.mkdir()
        for name, data in files.items():
            put(fresh / name, data)
        if folder.exists():
            folder.rename(Path(scratch) / "replaced")
        os.rename(fresh, folder)


def _ours(name: str) -> bool:
    return name in (PACK, KERNELS, GROUPED, PREDICTORS) or (
        name.startswith("table-") and name.endswith(".json")
    )


def _records(records: Sequence[Record]) -> bytes:
    shared = _find_shared(records)
    rows = ",\n".join(_compact(_less(each, shared)) for each in records)
    return f'{{\n"constants":{_compact(shared)},\n"records":[\n{rows}\n]\n}}\n'.encode("ascii")


def _read(path: Path) -> list[Any]:
    found = _object(path)
    constants, records = found.get("constants"), found.get("records")
    if found.keys() != {"constants", "records"} or not isinstance(records, list):
        raise PackError("wrong_type", "no constants and records", path.name)
    if not isinstance(constants, dict) or not all(isinstance(each, dict) for each in records):
        raise PackError("wrong_type", "constants or a record are not an object", path.name)
    return [_add_shared(each, constants, path.name) for each in records]


def _object(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        data = file.read(MAX_MANIFEST_BYTES + 1)
    if len(data) > MAX_MANIFEST_BYTES:
        raise PackError("manifest_too_large", f"more than {MAX_MANIFEST_BYTES} bytes", path.name)
    found = read_json(data)
    if not isinstance(found, dict):
        raise PackError("wrong_type", "the document is not an object", path.name)
    return found


def _find_shared(records: Sequence[Record]) -> dict[str, Any]:
    """What all records have, with one value of one type."""
    if len(records) < 2:
        return {}
    shared: dict[str, Any] = {}
    for name, value in records[0].items():
        if not all(name in each for each in records):
            continue
        values = [each[name] for each in records]
        if all(isinstance(each, Mapping) for each in values):
            inside = _find_shared(values)
            if inside:
                shared[name] = inside
        elif len({_compact(each) for each in values}) == 1:
            shared[name] = value
    return shared


def _less(record: Record, shared: Record) -> dict[str, Any]:
    found = {}
    for name, value in record.items():
        if name not in shared:
            found[name] = value
        elif isinstance(value, Mapping):
            rest = _less(value, shared[name])
            if rest:
                found[name] = rest
    return found


def _add_shared(record: Record, shared: Record, place: str) -> dict[str, Any]:
    """A record with the constants. Raises PackError for one that says a constant again."""
    found = dict(record)
    for name, value in shared.items():
        if name not in found:
            found[name] = value
        elif isinstance(value, Mapping) and isinstance(found[name], Mapping):
            found[name] = _add_shared(found[name], value, place)
        else:
            raise PackError("duplicate_key", f"{name!a} is a constant and in a record", place)
    return found


def _compact(value: Any) -> str:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
