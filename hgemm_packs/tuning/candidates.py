"""Which kernels of the packs take a problem, those first that won on what is like it.

Asked by `session`. Nothing is timed here: a row of any GPU model says which kernels are worth the
first look, and the order decides only where time is short.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .. import select
from ..pack.folder import Pack
from ..pack.manifest import KernelEntry, Row
from ..problem import Problem

#: Layout, type and epilogue.
Kind = tuple[str, str, str]
#: Genes that only a dependent launch can show: one of such twins is timed.
_AHEAD = ("reads_ahead", "triggers_early")


class Candidate(NamedTuple):
    """A kernel, and the pack that its cubin is read from."""

    pack: Pack
    entry: KernelEntry


class Candidates:
    """The kernels of `packs`. Raises PackError for a pack that is damaged."""

    def __init__(self, packs: Sequence[Pack]) -> None:
        #: By id; of two packs with the same cubin the first counts.
        self.by_id: dict[str, Candidate] = {}
        self._wins: dict[Kind, list[Row]] = {}
        for pack in packs:
            for entry in pack.manifest.kernels:
                self.by_id.setdefault(entry.id, Candidate(pack, entry))
            for row in pack.manifest.table:
                if row.kernel is not None and pack.manifest.policy.clears(row):
                    kind = row.layout, row.dtype, row.epilogue
                    self._wins.setdefault(kind, []).append(row)
        self._kinds: dict[Kind, list[Candidate]] = {}
        for each in self.by_id.values():
            kind = each.entry.layout, each.entry.dtype, each.entry.epilogue
            self._kinds.setdefault(kind, []).append(each)

    def takes(self, problem: Problem) -> bool:
        """Whether any kernel takes `problem`."""
        return any(each.entry.admits(problem) is None for each in self._of(problem))

    def _of(self, problem: Problem) -> Sequence[Candidate]:
        return self._kinds.get((problem.layout, problem.dtype, problem.epilogue), ())

    def rank(self, problem: Problem) -> list[Candidate]:
        """Those that take `problem` and never failed, by how near their nearest win is; then those
        that have won nothing, which some predictor may know."""
        kind = problem.layout, problem.dtype, problem.epilogue
        near: dict[str, float] = {}
        for row in self._wins.get(kind, ()):
            assert row.kernel is not None
            near[row.kernel] = min(near.get(row.kernel, math.inf), _distance(row, problem))
        taking = [
            each
            for each in self._of(problem)
            if each.entry.admits(problem) is None and select.exclusion_reason(each.entry) is None
        ]
        taking.sort(key=lambda each: (near.get(each.entry.id, math.inf), _is_ahead(each.entry)))
        designs: dict[tuple[object, ...], Candidate] = {}
        for each in taking:
            designs.setdefault(_design(each.entry), each)
        return list(designs.values())


def _distance(row: Row, problem: Problem) -> float:
    sides = ((row.m, problem.m), (row.n, problem.n), (row.k, problem.k))
    far = 0.0 if (row.base, row.packed) == (problem.base, problem.packed) else 1.0
    return far + sum(abs(math.log2(a / b)) for a, b in sides)


def _is_ahead(entry: KernelEntry) -> bool:
    return entry.reads_ahead or entry.triggers_early


def _design(entry: KernelEntry) -> tuple[object, ...]:
    """What twins have in common; a kernel without a genome is its own."""
    if not entry.genome:
        return (entry.id,)
    genes: Mapping[str, object] = entry.genome
    own = sorted((name, str(gene)) for name, gene in genes.items() if name not in _AHEAD)
    return (entry.family, *own)
