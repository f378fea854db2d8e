"""Records as files of lines: one JSON object a line, appended as measured, packed when it is over.

Read by all who judge measurements; nothing writes or judges records here. A folder is all that was
measured for one purpose: its files in the order of their names, which is that of measurement.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hgemm_packs.generator.store import shards

Record = dict[str, Any]

#: As appended, gzipped, packed.
SUFFIXES = (".jsonl", ".jsonl.gz", f".jsonl{shards.SUFFIX}")


def files(paths: Iterable[Path]) -> list[Path]:
    """Record files, and those of folders in order. Raises ValueError for a folder that has anything
    else but folders: what a file is nobody should have to guess."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(each for each in path.iterdir() if not each.is_dir())
        for each in inside:
            if not each.name.endswith(SUFFIXES):
                raise ValueError(f"{each} is no file of lines")
        found += inside
    return found


def read_records(paths: Iterable[Path]) -> list[Record]:
    """All whole lines of record files and of folders of such; the torn last line of a killed run is
    dropped. Raises OSError, ValueError for a folder of other files or a damaged packed one."""
    records: list[Record] = []
    for path in files(paths):
        data = path.read_bytes()
        if path.suffix == shards.SUFFIX:
            records += shards.unpack(data)
            continue
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        for line in text.splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return records
