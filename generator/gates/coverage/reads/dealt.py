"""Whether the CTAs of a persistent grid, however many of them a card runs, together store each
element of C once.

A watcher beside `bounds`, and the launches of its run, made by `trial`. Elsewhere some CTAs of a
grid are followed, and a step that leaves tiles out for an odd number of CTAs leaves none out for
those of the card that a run is on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

import numpy as np

from hgemm_packs.generator.gates.coverage import lists
from hgemm_packs.generator.gates.coverage.bounds import Bounds
from hgemm_packs.generator.gates.coverage.exceptions import GROUPS, declared
from hgemm_packs.generator.gates.coverage.launches import Launch, Sizes, columns_of, grid, ranks
from hgemm_packs.generator.gates.coverage.problems import make, ring_of
from hgemm_packs.generator.gates.coverage.program.arithmetic import Array
from hgemm_packs.generator.gates.coverage.program.registers import Threads
from hgemm_packs.generator.gates.dataflow.values import C
from hgemm_packs.pack.manifest import OF_BATCH

FEW: Final = (1, 2, 3, 5, 7)  # clusters that run at once
MANY: Final = (114, 132)  # CTAs: cards have as many SMs
SIDES: Final = 3, 4  # clusters along M and N of a problem for a few
BATCHES: Final = 2
#: Primes up to as many clusters as cards run at once: a step or a first tile that leaves tiles out
#: for a multiple of one does so for that one.
PRIMES: Final = tuple(n for n in range(11, 144) if all(n % by for by in range(2, n)))
TOLD: Final = "dealt: {} CTAs store element ({}, {}) of {} {} times"


def launches(fields: Mapping[str, Any]) -> list[Launch]:
    """Grids of which all CTAs are followed: fewer than there are tiles, and as many."""
    return _laid(fields, _asked(fields))


def _laid(fields: Mapping[str, Any], asked: Iterable[tuple[Sizes, int]]) -> list[Launch]:
    return [
        Launch(sizes, (x, y), [(i, j) for i in range(x) for j in range(y)])
        for sizes, clusters in asked
        for x, y in [grid(fields, sizes, clusters * ranks(fields))]
    ]


def of_primes(fields: Mapping[str, Any]) -> list[Launch]:
    """The same of many more numbers of clusters, with some tiles more than these; none of groups,
    whose lists are their own."""
    if GROUPS in declared(fields):
        return []
    problems = ((each, n) for n in PRIMES for each in _of(fields, 2, n // 2 + 2))
    return _laid(fields, problems)


def _asked(fields: Mapping[str, Any]) -> Iterator[tuple[Sizes, int]]:
    """Problems, each with how many clusters run at once."""
    if GROUPS in declared(fields):
        for clusters in FEW:
            yield from ((each, clusters) for each in lists.few(fields))
        return
    for clusters in FEW:
        yield from ((each, clusters) for each in _of(fields, *SIDES))
    for clusters in (ctas // ranks(fields) for ctas in MANY):
        down = int(clusters**0.5)
        yield from ((each, clusters) for each in _of(fields, down, clusters // down + 2))


def _of(fields: Mapping[str, Any], down: int, across: int) -> Iterator[Sizes]:
    """A problem of so many clusters along M and N, the last ones in part."""
    shape, cluster = fields["grid"], fields["cluster"]
    rows = down * int(shape["tile_m"]) * int(cluster[0]) - 3
    columns = across * int(shape["tile_n"]) * int(cluster[1]) - 8
    for each in make(fields, [(rows, columns, ring_of(fields)[0])]):
        of_batch = fields["param_layout"] in OF_BATCH.values()
        yield each._replace(batches=BATCHES) if of_batch else each


class Dealt(Bounds):
    """The watcher of a run of these launches."""

    def __init__(
        self, fields: Mapping[str, Any], launches: Sequence[Launch], threads: Threads
    ) -> None:
        super().__init__(fields, launches, threads)
        #: Of each store: the launch, from which row and column on, and to which.
        self._stores: list[tuple[Array, ...]] = [(np.zeros(0, np.int64),) * 5]
        self.warps: set[int] = set()  # of a CTA, those that store the first element of a tile

    def _note(self, who: Array, row: Array, column: Array, rows: Any, columns: Any) -> None:
        of = self.threads.launch[who]
        self._stores.append((of, row, column, row + rows, column + columns))
        first = (row % self._tile[0] == 0) & (column % self._tile[1] == 0)
        self.warps.update(np.unique(self.threads.specials["%tid.x"][who[first]] >> 5).tolist())

    @property
    def _tile(self) -> tuple[int, int]:
        """Of C."""
        shape = self.fields["grid"]
        return int(shape["tile_m"]), columns_of(self.fields, int(shape["tile_n"]))

    def fault(self) -> str:
        """Words for an element that is not stored once, the first such; empty where all are."""
        of, *spans = (np.concatenate(each) for each in zip(*self._stores, strict=True))
        for i, each in enumerate(self.launches):
            lines, length = (int(side) for side in self._lines[C][i])
            wanted = max(each.sizes.ends, default=lines)  # the rows behind are of no group
            own = [span[of == i] for span in spans]
            if is_whole(lines, wanted, length, own):
                continue
            counts = times(lines, length, own)
            wrong = counts != (np.arange(lines) < wanted)[:, None]
            row, column = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            count = int(counts[row, column])
            return TOLD.format(len(each.ctas), row, column, each.sizes.text, count)
        return ""


class Firsts(Dealt):
    """The watcher of a run in which the first element of each tile counts alone, so that few warps
    of a CTA need be followed."""

    def fault(self) -> str:
        """Words for the first element of a tile that is not stored once."""
        of, top, left = (np.concatenate(each) for each in list(zip(*self._stores, strict=True))[:3])
        rows, columns = self._tile
        for i, each in enumerate(self.launches):
            lines, length = (int(side) for side in self._lines[C][i])
            own = of == i
            product, row = np.divmod(top[own], each.sizes.m)
            kept = (row % rows == 0) & (left[own] % columns == 0)
            down, across = -(-each.sizes.m // rows), -(-length // columns)
            tile = (product * down + row // rows) * across + left[own] // columns
            counts = np.bincount(tile[kept], minlength=lines // each.sizes.m * down * across)
            if (counts == 1).all():
                continue
            first = int(np.argmax(counts != 1))
            line, place = divmod(first, across)
            at = line // down * each.sizes.m + line % down * rows, place * columns
            return TOLD.format(len(each.ctas), *at, each.sizes.text, counts[first])
        return ""


def of_warps(threads: Threads, warps: Set[int]) -> Threads:
    """Some warps of each CTA alone."""
    kept = np.isin(threads.specials["%tid.x"] >> 5, list(warps))

    def few(values: Mapping[str, Array]) -> dict[str, Array]:
        return {n: each[kept] if each.size == kept.size else each for n, each in values.items()}

    return threads._replace(
        total=int(kept.sum()),
        specials=few(threads.specials),
        params=few(threads.params),
        launch=threads.launch[kept],
        cta=threads.cta[kept],
    )


def is_whole(lines: int, wanted: int, length: int, spans: Sequence[Array]) -> bool:
    """Whether stores hold each element of the wanted first lines once: an element weighs the
    product of a random number of its row and one of its column, and all that is stored weighs as
    much. To count each element takes ten times as long."""
    top, left, bottom, right = spans
    rng = np.random.default_rng(0)
    rows, columns = (
        np.append(0, rng.integers(1 << 64, size=side, dtype=np.uint64)).cumsum(dtype=np.uint64)
        for side in (lines, length)
    )
    weight = ((rows[bottom] - rows[top]) * (columns[right] - columns[left])).sum()
    return bool(weight == rows[wanted : wanted + 1] * columns[-1:])


def times(lines: int, length: int, spans: Sequence[Array]) -> Array:
    """How often each element of C is stored: each store adds one at a corner and takes it back
    behind its last row and its last column."""
    top, left, bottom, right = spans
    counts = np.zeros((lines + 1, length + 1), np.int64)
    for row, first, last in ((top, left, right), (bottom, right, left)):
        np.add.at(counts, (row, first), 1)
        np.subtract.at(counts, (row, last), 1)
    found: Array = counts.cumsum(0).cumsum(1)[:-1, :-1]
    return found
