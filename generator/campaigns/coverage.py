"""Few genomes of a family in which every two gene values that go together come together.

A covering array of strength two over a space with constraints: a fault that one value or a pair of
values makes is in at least one of its genomes (Kuhn, Kacker, Lei, "Practical Combinatorial
Testing", NIST SP 800-142). The array is greedy as in Cohen, Dalal, Fredman, Patton, "The AETG
System", IEEE TSE 1997: among candidates with a wanted pair, the one with most pairs that are still
wanted. Used by `benchmarks/gates/space_gates.py`; nothing is compiled here.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from hgemm_packs.generator.families.base import Family, Genome, InvalidGenome

Value = int | str | bool
#: gene, value, other gene, its value; genes in the family's order.
Pair = tuple[str, Value, str, Value]
#: A genome as the place of each value among its gene's values.
Point = tuple[int, ...]
#: Genomes as the places of their values among those of all genes.
Rows = npt.NDArray[np.int64]
#: Which pairs, by the places of both values.
Marks = npt.NDArray[np.bool_]

LISTED = 4_000_000  # genomes, valid or not, that are all looked at
STARTS = 64  # valid genomes that a walk through a larger space begins at
STEPS = 300_000  # of the walk
TRIES = 10_000  # for a pair that the walk did not meet
FURTHER = 200  # steps from a genome that has such a pair
CANDIDATES = 4096  # genomes with a wanted pair that are compared


def pairs_of(family: Family, genomes: Iterable[Genome]) -> set[Pair]:
    """Every pair of gene values that one of the genomes has."""
    return {
        (one, genome[one], other, genome[other])
        for genome in genomes
        for one, other in itertools.combinations(family.genes, 2)
    }


def all_pairs(family: Family) -> list[Pair]:
    """Every pair of values of two genes, also of those that no valid genome has."""
    return [
        (one, a, other, b)
        for one, other in itertools.combinations(family.genes, 2)
        for a in family.genes[one]
        for b in family.genes[other]
    ]


def pairwise(family: Family) -> tuple[list[Genome], list[Pair]]:
    """Valid genomes that have every pair a valid genome was found for, always the same ones, and
    the pairs that none was found for."""
    known = Known(family)
    return known.cover(known.pairs), known.not_found


def impossible(family: Family, pairs: Iterable[Pair]) -> set[Pair]:
    """Those of the pairs that no valid genome has."""
    left = set(pairs)
    for part in _parts(family, {}):
        left -= {
            pair
            for pair in left
            if part.get(pair[0], pair[1]) == pair[1] and part.get(pair[2], pair[3]) == pair[3]
        }
    return left


def _parts(family: Family, part: Genome) -> Iterator[Genome]:
    """Genomes from `part` on with only the genes that `check` asks for before it is content: the
    others can have any value. A gene that it lacks is the KeyError that it raises."""
    try:
        family.check(part)
    except KeyError as lacking:
        gene = str(lacking.args[0])
        for value in family.genes[gene]:
            yield from _parts(family, {**part, gene: value})
    except InvalidGenome:
        return
    else:
        yield part


class Known:
    """Valid genomes of a family: all of them where `complete`, else those that walks through the
    space met, and further ones sought for each pair that they did not meet."""

    def __init__(self, family: Family) -> None:
        self._family, self._values = family, list(family.genes.values())
        self._rng = random.Random(f"coverage of {family.name}")
        self._sizes = sizes = [len(values) for values in self._values]
        self.complete = math.prod(sizes) <= LISTED
        self._first = np.cumsum([0, *sizes[:-1]])  # the first value of each gene among all values
        self._one, self._other = np.triu_indices(len(sizes), 1)
        self._met = np.zeros((sum(sizes), sum(sizes)), np.int64)  # genomes that have a pair
        self._rows = self._count_rows(self._list_points() if self.complete else self._walk_points())
        if not self.complete:
            self._rows = np.concatenate([self._rows, *self._seek_pairs()])

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def pairs(self) -> list[Pair]:
        """Those that known genomes have."""
        return [pair for pair in all_pairs(self._family) if self._met[self._place(pair)]]

    @property
    def not_found(self) -> list[Pair]:
        """Those that none has: where `proven`, no valid genome at all."""
        return [pair for pair in all_pairs(self._family) if not self._met[self._place(pair)]]

    @property
    def proven(self) -> bool:
        """Whether a pair that is not found is one that no valid genome has."""
        lacking = self.not_found
        return self.complete or len(impossible(self._family, lacking)) == len(lacking)

    def cover(self, wanted: Collection[Pair]) -> list[Genome]:
        """Genomes that together have every wanted pair that known genomes have. Rare pairs are
        placed first, while there is most to choose from."""
        left, chosen = self._mark(wanted), []
        places = sorted(map(self._place, wanted), key=lambda at: (self._met[at], at))
        for place in places:
            best = self._best(self._rows, place, left) if left[place] else None
            if best is not None:
                left[best[self._one], best[self._other]] = False
                chosen.append(self._genome(best - self._first))
        return chosen

    def replace_refused(
        self, wanted: Iterable[Pair], built: Iterable[Pair], refused: Iterable[Genome]
    ) -> list[Genome]:
        """For each wanted pair a genome that is not `refused` and has as many pairs of `built`
        kernels as can be: where it is refused as well, the pair itself is the likeliest reason.
        Among equals the one least like those that were refused with this pair."""
        rows, good = self._rows, self._mark(built)
        unlike = np.array([self._row(genome) for genome in refused]).reshape(-1, rows.shape[1])
        for row in unlike:
            rows = rows[(rows != row).any(axis=1)]
        found = [self._best(rows, self._place(pair), good, unlike) for pair in wanted]
        points = dict.fromkeys(tuple(x - self._first) for x in found if x is not None)
        return [self._genome(point) for point in points]

    def _mark(self, pairs: Iterable[Pair]) -> Marks:
        marks = np.zeros(self._met.shape, np.bool_)
        for pair in pairs:
            marks[self._place(pair)] = True
        return marks

    def _best(
        self, rows: Rows, place: tuple[int, int], marks: Marks, unlike: Rows | None = None
    ) -> Rows | None:
        """Of the rows with the pair of a place, or some of them, one with most marked pairs; among
        equals one that shares least values with any `unlike` row that has the pair."""
        having = self._select_rows(rows, *place)
        if len(having) > CANDIDATES:
            having = having[self._rng.sample(range(len(having)), CANDIDATES)]
        marked = marks[having[:, self._one], having[:, self._other]].sum(axis=1)
        alike = np.zeros_like(marked)
        for row in () if unlike is None else self._select_rows(unlike, *place):
            alike = np.maximum(alike, (having == row).sum(axis=1))
        return having[np.lexsort((alike, -marked))[0]] if len(having) else None

    def _select_rows(self, rows: Rows, one: int, other: int) -> Rows:
        """The rows with both values."""
        genes = np.searchsorted(self._first, (one, other), "right") - 1
        having: Rows = rows[(rows[:, genes[0]] == one) & (rows[:, genes[1]] == other)]
        return having

    def _place(self, pair: Pair) -> tuple[int, int]:
        return self._number(*pair[:2]), self._number(*pair[2:])

    def _number(self, gene: str, value: Value) -> int:
        """Of a value among those of all genes."""
        place = list(self._family.genes).index(gene)
        return int(self._first[place]) + self._values[place].index(value)

    def _row(self, genome: Genome) -> Rows:
        return np.array([self._number(gene, genome[gene]) for gene in self._family.genes])

    def _genome(self, point: Iterable[int]) -> Genome:
        genes = self._family.genes.items()
        return {gene: values[at] for (gene, values), at in zip(genes, point, strict=True)}

    def _count_rows(self, points: Iterable[Point]) -> Rows:
        """The points as rows, each once, their pairs counted among the `_met`."""
        found = np.array(list(dict.fromkeys(points)), np.int64).reshape(-1, len(self._values))
        rows: Rows = found + self._first
        for i, j in zip(self._one, self._other, strict=True):
            np.add.at(self._met, (rows[:, i], rows[:, j]), 1)
        return rows

    def _is_valid(self, point: Point) -> bool:
        try:
            self._family.check(self._genome(point))
        except InvalidGenome:
            return False
        return True

    def _list_points(self) -> Iterator[Point]:
        return filter(self._is_valid, itertools.product(*map(range, self._sizes)))

    def _walk_points(self) -> Iterator[Point]:
        drawn = (tuple(map(self._rng.randrange, self._sizes)) for _ in range(STEPS))
        for start in itertools.islice(filter(self._is_valid, drawn), STARTS):
            yield from self._walk(start, STEPS // STARTS)

    def _walk(self, point: Point, steps: int, held: Collection[int] = ()) -> Iterator[Point]:
        """Valid points on a random walk whose steps change one to three genes, never one `held`."""
        free = [gene for gene in range(len(self._values)) if gene not in held]
        yield point
        for _ in range(steps):
            there = self._move(point, free, 1, 3)
            if self._is_valid(there):
                point = there
                yield point

    def _seek_pairs(self) -> Iterator[Rows]:
        """Rows with pairs that were not met: given to genomes that have one of the two values, up
        to four other genes with new values."""
        for pair in self.not_found:
            place, genes = self._place(pair), [list(self._family.genes).index(g) for g in pair[::2]]
            values = [at - int(self._first[gene]) for at, gene in zip(place, genes, strict=True)]
            near = self._rows[(self._rows == place[0]).any(1) | (self._rows == place[1]).any(1)]
            free = [gene for gene in range(len(self._values)) if gene not in genes]
            for _ in range(0 if self._met[place] or not len(near) else TRIES):
                start = near[self._rng.randrange(len(near))] - self._first
                start[genes] = values
                point = self._move(start.tolist(), free, 0, 4)
                if self._is_valid(point):
                    yield self._count_rows(self._walk(point, FURTHER, genes))
                    break

    def _move(self, point: Sequence[int], genes: Sequence[int], least: int, most: int) -> Point:
        """The point with random values in `least` to `most` of these genes."""
        made = list(point)
        for gene in self._rng.sample(genes, self._rng.randint(least, min(most, len(genes)))):
            made[gene] = self._rng.randrange(self._sizes[gene])
        return tuple(made)
