"""What the prior's formulas share: the sizes they see, the terms they give, the machine.

Imported by the models of the families; nothing here is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hgemm_packs.generator.search.analytic.features import Array, Places

SMS = 132
CLOCKS_PER_US = 1700.0
SM_SMEM = 233472
BOTTLENECKS = ("latency", "bandwidth", "tensor", "tail-wave")


class Sizes(Protocol):
    """A problem, or many of one layout: sizes are numbers or arrays, a row each."""

    @property
    def m(self) -> Any: ...
    @property
    def n(self) -> Any: ...
    @property
    def k(self) -> Any: ...
    @property
    def layout(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Swapped:
    """A problem seen from its other side: what is stored as columns is on the rows of a tile."""

    m: Any
    n: Any
    k: Any
    layout: str


def swap_sizes(problem: Sizes) -> Swapped:
    return Swapped(problem.n, problem.m, problem.k, problem.layout)


@dataclass(frozen=True, slots=True)
class Terms:
    """What an estimate is made of, in us, a row a choice. `serial` is what nothing hides, `tail`
    what the last wave wastes; they do not add up to `total`."""

    total: Array
    serial: Array
    math: Array
    load: Array
    dram: Array
    tail: Array

    def bottleneck(self) -> Places:
        """Per choice, the place in BOTTLENECKS of the largest term."""
        parts = (self.serial, np.maximum(self.load, self.dram), self.math, self.tail)
        largest: Places = np.argmax(np.stack(parts), axis=0)
        return largest


def ceil(a: Array | float, b: Array | float) -> Array:
    whole: Array = np.ceil(np.asarray(a) / b)
    return whole


def spilled_share(problem: Sizes, l2_mb: float) -> Array:
    """Share of the operands that L2 cannot keep between calls, 0 to 1."""
    m, n, k = problem.m, problem.n, problem.k
    megabytes = 2e-6 * (m * k + k * n + m * n)
    share: Array = 1 / (1 + np.exp(-np.clip((megabytes - l2_mb) / (0.15 * l2_mb), -50, 50)))
    return share
