"""The figures of another card's table, beside the first card's: benchmarks/results/CARD.json.

    python -m benchmarks.cards.figures

For each card that has results of its own. `grid.fp16.nn` is of `matmul` over the grid's problems,
where torch runs those without a kernel: `plain` by calls of public `matmul` (`generate measure
public`), `cold` by the confirmations, which chose nothing either. `layers.upto256` is the same of
the layers that were measured so far, with as many tokens or fewer. `mixed_vs_h200` compares calls
between other products of their regime on the rows that have a kernel on both cards. Nothing is
measured here, and what was not measured is left out; so are calls that something disturbed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks import folders
from benchmarks.cards.plan import LAYER_ROWS
from benchmarks.publish.summary import CALLED, MANIFEST
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source
from hgemm_packs.generator.store.lines import Record
from hgemm_packs.generator.tables import published, speedups
from hgemm_packs.pack.manifest import Row

Lines = Mapping[tuple[Any, ...], published.Line]


def document(
    source: SourceManifest, first: SourceManifest, lines: Sequence[Record], firsts: Sequence[Record]
) -> dict[str, Any]:
    """The figures of a card's table by lines of its calls; `first` and `firsts` are of the card
    whose rows were measured again."""
    rows = published.select_products(source.table)
    called, there = published.of_rows(source, lines), published.of_rows(first, firsts)
    grid = speedups.shapes("grid")
    on_grid = speedups.select_set_rows(rows, "grid", "fp16", "nn")
    layers = [row for row in rows if row[:3] not in grid and row.m <= LAYER_ROWS]
    served = [row for row in rows if row[:5] in called]
    mixed = [
        [
            published.over_torch(of[row[:5]], published.MIXED[0])
            for row in served
            if row[:5] in there
        ]
        for of in (called, there)
    ]
    least = [published.find_least(line) for line in called.values()]
    found = {
        "grid.fp16.nn.plain": _mean(_plain(row, called) for row in on_grid),
        "grid.fp16.nn.cold": _mean(_cold(row) for row in on_grid),
        "grid.fp16.nn.problems": _count(_plain(row, called) for row in on_grid),
        "layers.upto256": _mean(_plain(row, called) for row in layers),
        "layers.upto256.problems": _count(_plain(row, called) for row in layers),
        "mixed": _mean(mixed[0]),
        "mixed_vs_h200": _ratio(*map(_mean, mixed)),
        "mixed.problems": len(mixed[0]),
        "worst": round(min([*least, *map(_cold, rows)]), 4) if least else None,
        "rows": len(rows),
        "rows_of_the_first_card": len(published.select_products(first.table)),
        "with_a_kernel": sum(row.kernel is not None for row in rows),
        "kernels": len(source.kernels),
        "device": source.device_profiles[0].name,
        "driver": source.baseline.driver,
        "torch": source.baseline.torch,
        "cublas": source.baseline.cublas,
    }
    return {name: value for name, value in found.items() if value is not None}


def _plain(row: Row, called: Lines) -> float | None:
    """`matmul` over torch on a row; None where it has a kernel that nobody called."""
    if row.kernel is None:
        return 1.0
    line = called.get(row[:5])
    return None if line is None else published.over_torch(line, published.PLAIN)


def _cold(row: Row) -> float:
    return 1.0 if row.kernel is None else row.cold.speedup


def _mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of the known; None where none is."""
    known = [value for value in values if value is not None]
    return round(geometric_mean(known), 4) if known else None


def _count(values: Iterable[float | None]) -> int:
    return sum(value is not None for value in values)


def _ratio(here: float | None, there: float | None) -> float | None:
    return None if here is None or there is None else round(here / there, 4)


def text(card: str, results: Path = folders.RESULTS) -> str:
    """The bytes that the file of a card must have."""
    first, source = read_source(MANIFEST), read_source(MANIFEST.with_name(card))
    lines, firsts = (
        campaign.answers(folders.list_files(CALLED, results=place))
        for place in (results / card, results)
    )
    return json.dumps(document(source, first, lines, firsts), indent=1) + "\n"


def main() -> int:
    for card in folders.cards():
        place = folders.RESULTS / f"{card}.json"
        write_atomically(place, text(card).encode())
        print(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
