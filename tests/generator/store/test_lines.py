"""Records as lines of JSON: whole ones count, gzipped, packed or not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from hgemm_packs.generator.store import shards
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


def test_a_folder_is_read_in_the_order_of_its_files(tmp_path: Path) -> None:
    """A later line of a task counts, so 10 must not come before 2: names are padded."""
    (tmp_path / "02.jsonl.zip").write_bytes(shards.pack(RECORDS[1:]))
    write(tmp_path / "01.jsonl", RECORDS[0])
    (tmp_path / "03-logs").mkdir()
    assert read_records([tmp_path]) == RECORDS


def test_a_folder_with_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "01.json").write_text("{}")
    with pytest.raises(ValueError, match=r"01\.json is no file of lines"):
        read_records([tmp_path])
