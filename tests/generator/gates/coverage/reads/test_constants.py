"""Each load from an array in constant memory reads all that it can reach, in problems on a card.

The story: lanes together read all of a table, and another load took the entry of M / 512 from it.
The table counted as read, and of that load no problem had more than two entries.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate

pytestmark = pytest.mark.usefixtures("kept")

TABLED = next(each for each in corpus.load() if each.name == "constant_table").candidate
ENTRY = "kOrder[i ^ (k & 3)]"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("kOrder[i & 2 | (i ^ m) & 1]", ""),  # each load reaches a half, and reads it
        (
            f"{ENTRY} + (kOrder[m >> 9 & 3] >> 10)",
            "table: 8 of 16 bytes of kOrder are read by any problem in 'ld.const.u32",
        ),
    ],
)
def test_a_load_by_sizes_reads_all_that_it_can_reach(entry: str, told: str) -> None:
    assert TABLED is not None and TABLED.source.count(ENTRY) == 1
    source = TABLED.source.replace(ENTRY, entry)
    detail = evaluate.build_gates(replace(TABLED, source=source))[0][-1].detail
    assert told in detail if told else detail == ""
