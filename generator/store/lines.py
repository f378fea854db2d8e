"""The records of the first sweep and of recordings: one JSON object a line, appended as measured.

Read by the benchmarks; nothing writes or judges records here.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read_records(paths: Iterable[Path]) -> list[Record]:
    """All whole lines of the record files, gzipped or not; the torn last line of a killed run is
    dropped."""
    records = []
    for path in paths:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        for line in text.splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return records
