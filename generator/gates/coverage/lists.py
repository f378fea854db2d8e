"""Problems of groups: lists of where they end.

Called for a family whose tiles follow from such a list: by `groups` for what the list decides, by
`counts` for what CTAs do with the tiles, and by the numeric gate.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from hgemm_packs.generator.gates.coverage.launches import Sizes
from hgemm_packs.generator.gates.coverage.problems import handed_on, make, ring_of
from hgemm_packs.pack.manifest import MAX_GROUPS

ROW: Final = 7  # tiles in a row
DEPTHS: Final = 24
FAR: Final = 1600  # tiles along each side: together more than 2^20


def problems(fields: Mapping[str, Any]) -> list[Sizes]:
    """Problems with groups of one row and of many, of none, more than a CTA has threads, and ends
    that fall, or lie outside the tokens; N and K as `counts` has them."""
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    step, _ = ring_of(fields)
    lists: list[tuple[int, Sequence[int]]] = [
        (0, [rows]),
        (5, [1, 0, rows, rows + 1, 2 * rows - 1, 0, 3 * rows, 2]),
        (2, [0, 0, 0]),
        (0, [*range(1, rows + 1)]),
        (1, [1] * 300),
        (0, [0] * 40 + [4 * rows]),
        (7, [i % 3 * (i % 2) for i in range(MAX_GROUPS)]),
    ]
    widths = _widths(fields)
    depths = ((columns + 8, i * step + 8 * (i // 2 % 2)) for i in range(1, DEPTHS))
    found = few(fields)
    for past, sizes in lists:
        found += _of(fields, past, [*itertools.accumulate(sizes)], widths)
    found += _of(fields, 3, [rows, 2 * rows + 3, 2 * rows + 3], depths)
    many = [(i * 37 % 11 - 3) * rows + i % 5 for i in range(MAX_GROUPS)]
    found += _of(fields, 3, many, widths[:2])
    return found


def few(fields: Mapping[str, Any]) -> list[Sizes]:
    """Those of a few groups, some of them empty, of which one CTA may take all tiles."""
    rows = int(fields["grid"]["tile_m"])
    lists = [[1], [0, 0, 2 * rows + 3, 0], [1, 0, rows, rows + 1, 0, 2 * rows], [rows, 2]]
    return [
        each
        for sizes, shape in zip(lists, _widths(fields), strict=True)
        for each in _of(fields, 3, [*itertools.accumulate(sizes)], [shape])
    ]


def _widths(fields: Mapping[str, Any]) -> list[tuple[int, int]]:
    """N and K."""
    columns = int(fields["grid"]["tile_n"])
    step, ring = ring_of(fields)
    return [
        (8, 8),
        (columns, 2 * ring),
        (columns + 8, step + 8),
        (ROW * columns, handed_on(fields)),
    ]


def far(fields: Mapping[str, Any]) -> list[Sizes]:
    """More than 2^20 tiles."""
    rows, columns = int(fields["grid"]["tile_m"]), int(fields["grid"]["tile_n"])
    return [*_of(fields, 0, [FAR * rows - 1, FAR * rows + 3], [(FAR * columns, 8)])]


def _of(
    fields: Mapping[str, Any], past: int, ends: Sequence[int], shapes: Iterable[tuple[int, int]]
) -> Iterator[Sizes]:
    """Problems of tokens that end `past` the last group."""
    tokens = max(ends[-1] + past, 1)
    for one in make(fields, [(tokens, n, k) for n, k in shapes]):
        yield one._replace(batches=len(ends), ends=tuple(ends))
