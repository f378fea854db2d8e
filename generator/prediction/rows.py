"""Measured times as rows for trees: what C sees of a problem and a kernel, and how long it took."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hgemm_packs import launcher
from hgemm_packs.generator.prediction.times import Times
from hgemm_packs.generator.prediction.trees import Array
from hgemm_packs.pack.features import NUMBERS, OF_PROBLEM
from hgemm_packs.pack.manifest import DeviceProfile, DimRange
from hgemm_packs.pack.predictor import Candidate, Dims, Model, Predictor
from hgemm_packs.problem import DTYPES, LARGEST_DIM, LAYOUTS, Problem

#: A model of nothing: C wants three.
_NOTHING = Model(0.0, (0,), (-1,), (0.0,), (0,))
#: How fast the weight of a kernel falls with its time over the best: what loses clearly teaches
#: little.
FALLING = 4.0
#: Sorts of measurements that trees tell apart: the model that is left is of the first.
DRAWN, FINALS, ALONE = 0.0, 1.0, 2.0


#: A kernel of each layout and type that takes every problem: by it a problem alone is seen.
_EVERY = Dims(*(DimRange(1, LARGEST_DIM, 1) for _ in range(3)))
_TAKING = {
    kind: Candidate("", *kind, _EVERY, (0, *(1 for _ in NUMBERS[1:])))
    for kind in itertools.product(LAYOUTS, DTYPES)
}


class Eye:
    """What C sees of kernels on problems of one device."""

    def __init__(
        self, kernels: Sequence[Candidate], families: tuple[str, ...], device: DeviceProfile
    ) -> None:
        every = (_NOTHING, _NOTHING, _NOTHING)
        seen = Predictor(device.name, families, 1.0, (*kernels, *_TAKING.values()), *every)
        self._ready = launcher.predictor(seen, device)
        self.kernels = kernels

    def see(self, problem: Problem, places: Sequence[int]) -> Array:
        """A row for each of these kernels. Raises ValueError for one that does not take the
        problem."""
        rows = []
        for place in places:
            row = launcher.features(self._ready, place, problem)
            if row is None:
                raise ValueError(f"candidate {place} does not take {problem}")
            rows.append(row)
        return np.array(rows)

    def see_alone(self, problem: Problem) -> Array:
        """The part of a row that is the problem's."""
        place = len(self.kernels) + [*_TAKING].index((problem.layout, problem.dtype))
        row: Array = self.see(problem, [place])[0, : len(OF_PROBLEM)]
        return row

    def floor_us(self, problem: Problem) -> float:
        return launcher.floor_us(self._ready, problem)

    def taking(self, problem: Problem) -> dict[int, tuple[float, ...]]:
        """Rows of the kernels that take a problem, by place: those that C would choose among."""
        kind = problem.layout, problem.dtype
        listed = (i for i, each in enumerate(self.kernels) if (each.layout, each.dtype) == kind)
        seen = ((place, launcher.features(self._ready, place, problem)) for place in listed)
        return {place: row for place, row in seen if row is not None}


@dataclass(frozen=True)
class Alone:
    """Problems that torch alone was timed on: a row of what is seen and a logarithm of torch's time
    over the floor each."""

    problems: tuple[Problem, ...]
    values: Array
    torch: Array

    def part(self, wanted: NDArray[np.bool_]) -> Alone:
        """Those for which `wanted` is true."""
        kept = tuple(itertools.compress(self.problems, wanted))
        return Alone(kept, self.values[wanted], self.torch[wanted])


@dataclass(frozen=True)
class Rows:
    """`values` are a row a kernel on a problem, `logs` the logarithm of its time over the floor,
    `of` the problem by its place in `problems`, `kernels` the kernel by its place in what the rows
    were made of; `torch` has a logarithm a problem, and `finals`
    says of which problems kernels were chosen by their times. `alone` are other problems."""

    problems: tuple[Problem, ...]
    torch: Array
    finals: NDArray[np.bool_]
    of: NDArray[np.int64]
    kernels: NDArray[np.int64]
    values: Array
    logs: Array
    weights: Array
    alone: Alone

    def part(self, wanted: NDArray[np.bool_]) -> Rows:
        """The rows of the problems for which `wanted` is true; the problems keep their places."""
        return self.where(wanted[self.of])

    def where(self, inside: NDArray[np.bool_]) -> Rows:
        """The rows for which `inside` is true; the problems keep their places."""
        return replace(
            self,
            of=self.of[inside],
            kernels=self.kernels[inside],
            values=self.values[inside],
            logs=self.logs[inside],
            weights=self.weights[inside],
        )

    def sorts(self) -> Array:
        """DRAWN or FINALS of each problem."""
        return np.where(self.finals, FINALS, DRAWN)

    def of_problems(self) -> tuple[NDArray[np.int64], Array]:
        """Places of the problems that have rows, and what is seen of each alone."""
        places, first = np.unique(self.of, return_index=True)
        return places, self.values[first][:, : len(OF_PROBLEM)]


def make_rows(
    eye: Eye,
    names: Sequence[str],
    drawn: Mapping[Problem, Times],
    finals: Mapping[Problem, Times],
    alone: Mapping[Problem, float],
) -> Rows:
    """Rows of all times; `names` of the eye's kernels, in its order, and `alone` torch's time."""
    place_of = {name: place for place, name in enumerate(names)}
    problems = (*drawn, *finals)
    of, which, values, logs, weights, torch = [], [], [], [], [], []
    for index, (problem, each) in enumerate([*drawn.items(), *finals.items()]):
        floor = eye.floor_us(problem)
        us = np.array(list(each.kernels.values()))
        torch.append(np.log(each.torch / floor))
        of.append(np.full(len(us), index))
        places = [place_of[name] for name in each.kernels]
        which.append(np.array(places))
        values.append(eye.see(problem, places))
        logs.append(np.log(us / floor))
        near = 1.0 / (1.0 + FALLING * (us / us.min() - 1.0))
        weights.append(near / np.sqrt(near.sum()))
    whole = np.concatenate(weights)
    return Rows(
        problems,
        np.array(torch),
        np.arange(len(problems)) >= len(drawn),
        np.concatenate(of),
        np.concatenate(which),
        np.concatenate(values),
        np.concatenate(logs),
        whole / whole.mean(),
        Alone(
            tuple(alone),
            np.array([eye.see_alone(p) for p in alone]).reshape(-1, len(OF_PROBLEM)),
            np.log([us / eye.floor_us(p) for p, us in alone.items()]),
        ),
    )
