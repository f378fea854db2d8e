"""A space as points, for searches that know numbers and not genomes: one axis a gene that varies,
one row a choice.

Used by the rival strategies to propose points and to snap them to choices that exist and were not
taken yet. It holds no results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import family
from hgemm_packs.problem import Problem


@dataclass(frozen=True, slots=True)
class Axis:
    """A gene and its values in the space; `ordered` when a step between values has a size."""

    gene: str
    values: tuple[int | str | bool, ...]
    ordered: bool


@dataclass(frozen=True, slots=True)
class Grid:
    """One family's choices. `places` says, per choice and axis, which value it has; `first` is the
    number of its first choice in the lattice."""

    family: str
    first: int
    axes: tuple[Axis, ...]
    places: NDArray[np.int64]

    def distances(self, place: Sequence[float]) -> NDArray[np.float64]:
        """From each choice to a point given in places: along an ordered axis the share of its
        length, along any other 1 unless it rounds to the same value."""
        ordered = np.array([axis.ordered for axis in self.axes], dtype=bool)
        length = np.array([len(axis.values) - 1 for axis in self.axes])
        at = np.asarray(place, dtype=float)
        steps = np.abs(self.places - at) / length
        other = self.places != np.rint(at)
        sums: NDArray[np.float64] = np.where(ordered, steps, other).sum(axis=1)
        return sums


class Lattice:
    """All families of a space; a choice is known by its number in `Space.core`'s families."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        by_family: dict[str, list[Choice]] = {}
        for choice in choices:
            by_family.setdefault(choice.family, []).append(choice)
        self.grids: dict[str, Grid] = {}
        self.choices: list[Choice] = []
        for name, members in by_family.items():
            self.grids[name] = _grid(name, len(self.choices), members)
            self.choices += members
        self.number = {choice: i for i, choice in enumerate(self.choices)}

    def nearest(
        self, name: str, place: Sequence[float], free: NDArray[np.bool_], rng: np.random.Generator
    ) -> int | None:
        """The number of a free choice of a family closest to a point, by chance among equals; None
        when the family has none free. `free` has one entry a choice of the lattice."""
        grid = self.grids[name]
        there = np.flatnonzero(free[grid.first : grid.first + len(grid.places)])
        if not len(there):
            return None
        distances = grid.distances(place)[there]
        equals = there[distances <= distances.min() + 1e-9]
        return grid.first + int(rng.choice(equals))


def _grid(name: str, first: int, members: Sequence[Choice]) -> Grid:
    genomes = [choice.genome for choice in members]
    axes = []
    for gene, values in family(name).genes.items():
        present = {genome[gene] for genome in genomes}
        if len(present) > 1:
            kept = tuple(value for value in values if value in present)
            axes.append(Axis(gene, kept, type(kept[0]) is int))
    places = [[axis.values.index(genome[axis.gene]) for axis in axes] for genome in genomes]
    return Grid(
        name, first, tuple(axes), np.array(places, dtype=np.int64).reshape(len(genomes), len(axes))
    )


def generator(seed: int, problem: Problem) -> np.random.Generator:
    """Randomness of its own for each problem of a search."""
    return np.random.default_rng([seed, crc32(str(problem).encode())])


_lattices: WeakKeyDictionary[Space, Lattice] = WeakKeyDictionary()


def lattice_of(space: Space) -> Lattice:
    """The lattice of a space's core, made once a space."""
    if space not in _lattices:
        _lattices[space] = Lattice(space.core)
    return _lattices[space]
