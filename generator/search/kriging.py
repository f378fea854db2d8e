"""What a few measured choices say of their neighbours on the same problem: a Gaussian process over
genes, on top of whatever mean is believed.

Used by the cost model and the portfolio. It knows rows and times only.
"""

from __future__ import annotations

import math

import numpy as np

from hgemm_packs.generator.search.analytic.features import Array

REACH = 4.0  # genes that differ, over which a surprise fades to 1/e
NOISE = 0.03  # of a screened time, in doublings
NEAR = 0.35  # share above the fastest time at which a time counts half


def closeness(log_us: Array) -> Array:
    """How much each time says of the front, 0 to 1: the fastest 1, far ones next to nothing."""
    near: Array = 1 / (1 + ((np.exp2(log_us - log_us.min()) - 1) / NEAR) ** 2)
    return near


def alike(hot: Array, others: Array) -> Array:
    """Correlation of rows with others, by how many genes differ."""
    genes, theirs = hot.sum(axis=1), others.sum(axis=1)
    correlation: Array = np.exp((hot @ others.T - (genes[:, None] + theirs) / 2) / REACH)
    return correlation


class Kriging:
    """`mean` and `sd` of log2 of us for rows, given times of other rows.

    `believed` is the mean before any of the problem's times; it may be off by a constant, and by
    `off` doublings from row to row.
    """

    def __init__(self, hot: Array, believed: Array, off: float) -> None:
        self.mean = believed
        self._hot = hot
        self._off = off
        self._variance: Array = np.full(len(hot), off**2)
        self._explained: Array = np.empty((0, len(hot)))

    def learn(self, hot: Array, believed: Array, log_us: Array) -> None:
        """Take in measured rows; to be called at most once, and first."""
        noise = NOISE**2 / closeness(log_us)
        lower = np.linalg.cholesky(alike(hot, hot) * self._off**2 + np.diag(noise))
        across = alike(hot, self._hot) * self._off**2
        right = np.column_stack([np.ones(len(hot)), log_us - believed, across])
        solved = np.linalg.solve(lower, right)
        one, surprise = solved[:, 0], solved[:, 1]
        level = (one @ surprise) / (one @ one)
        self._explained = solved[:, 2:]
        self.mean = self.mean + level + (surprise - level * one) @ self._explained
        self._variance = self._off**2 - (self._explained**2).sum(axis=0)

    @property
    def sd(self) -> Array:
        deviation: Array = np.sqrt(np.maximum(self._variance, 1e-12))
        return deviation

    def believe(self, row: int) -> None:
        """Be less in doubt of what is like `row`, which is about to be measured."""
        shared: Array = alike(self._hot, self._hot[row : row + 1])[:, 0] * self._off**2
        shared -= self._explained[:, row] @ self._explained
        news = shared / math.sqrt(max(self._variance[row], 0.0) + NOISE**2)
        self._explained = np.vstack([self._explained, news])
        self._variance = self._variance - news**2
