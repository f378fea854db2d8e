"""Packed lines: what comes back is what was measured, to the last digit."""

from __future__ import annotations

import io
import json
import random
import zipfile
from typing import Any

import pytest

from hgemm_packs.generator.store import shards


def lines() -> list[dict[str, Any]]:
    """Times as events give them, rounded in both ways that results are, and what else lines have:
    clocks, short lists, lists of whole numbers, nothing at all."""
    rng = random.Random(7)
    found: list[dict[str, Any]] = [{"header": {"settings": {"calls": 16}, "name": "é"}}]
    for size in (1, 90, 4000):
        calls = rng.randint(1, 300)
        times = [rng.randint(50 * size, 60 * size) * 0.032 / calls for _ in range(11)]
        found.append(
            {
                "z": 1,
                "conditions": {"hot": {"calls": calls, "sm_mhz": [1980.0] * 11}},
                "hot": {"torch": [round(each, 4) for each in times]},
                "cold": {"torch": [float(f"{each:.6g}") for each in times]},
                "between": [[64, 64, 64], [1, 2]],
                "readings": [
                    [0.1, -3.5],
                    [1e-7, 1e22, 5.0],
                    [],
                    [-0.0, 0.0, 1.0],
                    [float("inf")] * 3,
                ],
                "odd": [1, 2.0, None],
                "whole": [3.0, -4.0, 2.0**53],
            }
        )
    return found


def text(records: list[Any]) -> str:
    return "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in records)


def test_lines_come_back_in_every_value_and_in_their_order() -> None:
    before = lines()
    packed = shards.pack(before)
    assert text(shards.unpack(packed)) == text(before)
    assert shards.pack(before) == packed
    assert shards.unpack(shards.pack([])) == []


def test_numbers_of_any_kind_come_back() -> None:
    rng = random.Random(3)
    for _ in range(200):
        scale, digits = 10.0 ** rng.randint(-6, 12), rng.randint(0, 12)
        values = [round(rng.uniform(-scale, scale), digits) for _ in range(rng.randint(3, 8))]
        record = {"calls": rng.randint(1, 1000), "values": values}
        assert text(shards.unpack(shards.pack([record]))) == text([record])


def test_samples_leave_the_lines() -> None:
    with zipfile.ZipFile(io.BytesIO(shards.pack(lines()))) as file:
        kept = file.read("lines").decode()
    assert '"torch":{"":11}' in kept and '"between":[[64,64,64],[1,2]]' in kept


def test_a_line_that_would_not_come_back_is_refused() -> None:
    with pytest.raises(ValueError, match="empty key"):
        shards.pack([{"": 3}])


def test_a_file_with_too_few_numbers_is_refused() -> None:
    with zipfile.ZipFile(io.BytesIO(shards.pack(lines()))) as file:
        members = {name: file.read(name) for name in file.namelist()}
    members["lines"] += b'{"":4}\n'
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    with pytest.raises(ValueError, match="do not fill"):
        shards.unpack(made.getvalue())
