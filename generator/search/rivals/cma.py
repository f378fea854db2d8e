"""CMA-ES by the `cma` package: a rival for the comparison of searches.

One evolution strategy a problem and family, over the places of the family's genes scaled to 0..1.
Never used to make a table.
"""

from __future__ import annotations

import math

import cma
import numpy as np
from numpy.typing import NDArray

from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.search.rivals.by_problem import ByProblem
from hgemm_packs.generator.search.rivals.lattice import Lattice

#: The best at 32 measurements on the recorded problems, of populations of 6, 8 and 12, steps of
#: 0.15 to 0.3, full and diagonal matrices, and starts from the centre or from random choices.
POPULATION, STEP = 8, 0.3
#: Points that one ask may draw next to choices that were measured already. They are told again, so
#: that the distribution moves on, at the price of no measurement.
REVISITS = 40
#: A failure counts as this much slower, in log time, than the slowest kernel that worked.
FAILED = math.log(2.0)

Point = NDArray[np.float64]


class _Walk:
    """The evolution strategy of one family."""

    def __init__(self, lattice: Lattice, name: str, rng: np.random.Generator) -> None:
        grid = lattice.grids[name]
        self.name = name
        self.numbers = range(grid.first, grid.first + len(grid.places))
        self.batch: list[tuple[Point, int]] = []
        self._drawn: list[Point] = []
        self._lengths = [len(axis.values) - 1 for axis in grid.axes]
        options = {
            "bounds": [0, 1],
            "popsize": POPULATION,
            "verbose": -9,
            # Its own generator: cma would seed and use the one that the whole process shares.
            "randn": lambda *shape: rng.standard_normal(shape),
            "seed": math.nan,
        }
        centre = [0.5] * max(2, len(grid.axes))  # cma has no use for a line
        self._strategy = cma.CMAEvolutionStrategy(centre, STEP, options)

    def draw(self) -> tuple[Point, list[float]]:
        """A point, and where in the grid it is."""
        if not self._drawn:
            self._drawn = self._strategy.ask()
        point = self._drawn.pop()
        return point, [x * length for x, length in zip(point, self._lengths, strict=False)]

    def learn(self, known: dict[int, float]) -> None:
        """Take a step once every point of the batch, and enough of them, has a value."""
        enough = len(self.batch) >= max(3, self._strategy.sp.weights.mu)
        if enough and all(number in known for _, number in self.batch):
            values = [known[number] for _, number in self.batch]
            self._strategy.tell([point for point, _ in self.batch], values)
            self.batch, self._drawn = [], []


class _Walks:
    """One problem: a walk a family, and the values of the choices by number."""

    def __init__(self, lattice: Lattice, rng: np.random.Generator) -> None:
        self.lattice = lattice
        self.free = np.ones(len(lattice.choices), dtype=bool)
        self.everything = np.ones(len(lattice.choices), dtype=bool)
        self.rng = rng
        self.walks = [_Walk(lattice, name, self.rng) for name in lattice.grids]
        self.known: dict[int, float] = {}
        self.failed: set[int] = set()

    def ask(self, n: int) -> list[Choice]:
        """New choices of the family with the best so far, of an untried one first."""
        found: list[int] = []
        for walk in sorted(self.walks, key=self._promise):
            revisits = REVISITS
            while len(found) < n and self.free[walk.numbers].any():
                point, place = walk.draw()
                among = self.everything if revisits else self.free
                number = self.lattice.nearest(walk.name, place, among, self.rng)
                assert number is not None  # the family has a free choice
                walk.batch.append((point, number))
                if self.free[number]:
                    self.free[number] = False
                    found.append(number)
                else:
                    revisits -= 1
        return [self.lattice.choices[number] for number in found]

    def _promise(self, walk: _Walk) -> float:
        return min((self.known[i] for i in walk.numbers if i in self.known), default=-math.inf)

    def tell(self, choice: Choice, log_us: float | None) -> None:
        """The value of a choice, None for a failure."""
        number = self.lattice.number.get(choice)
        if number is None:
            return
        self.free[number] = False
        if log_us is None:
            self.failed.add(number)
        else:
            self.known[number] = log_us

    def learn(self) -> None:
        """Step the walks whose batches are complete."""
        worst = max(self.known.values(), default=0.0) + FAILED
        values = self.known | dict.fromkeys(self.failed, worst)
        for walk in self.walks:
            walk.learn(values)


def make(seed: int) -> ByProblem:
    """A search by CMA-ES; the same seed and the same answers give the same proposals. Told points
    keep their place, only values are snapped."""
    return ByProblem("cma", seed, _Walks)
