"""Records as lines of JSON: whole ones count, gzipped or not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from hgemm_packs.generator.store.lines import Record, read_records

RECORDS: list[Record] = [{"error": 1e-4}, {"error": 2e-4}, {"error": float("inf")}]


def write(path: Path, *records: Record, tail: str = "") -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + tail)
    return path


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    torn = json.dumps({"error": 1.0})
    for cut in (1, 5, len(torn) - 1):
        path = write(tmp_path / "a.jsonl", *RECORDS[:2], tail=torn[:cut])
        assert read_records([path]) == RECORDS[:2]


def test_records_are_read_from_several_files_gzipped_or_not(tmp_path: Path) -> None:
    plain = write(tmp_path / "b.jsonl", RECORDS[0])
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(write(tmp_path / "c", *RECORDS[1:]).read_bytes()))
    assert read_records([packed, plain]) == [*RECORDS[1:], RECORDS[0]]
    assert read_records([]) == []
