"""Which clusters of a run without a GPU are looked at for races.

Called by `counts`. Clusters whose threads go the same way through a kernel are right or wrong
together, but for numbers that differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from hgemm_packs.generator.gates.coverage.watchers.arrivals import Barrier
from hgemm_packs.generator.gates.coverage.watchers.races import Races
from hgemm_packs.generator.gates.coverage.watchers.strands import READ, Strand, Strands
from hgemm_packs.generator.gates.dataflow.program.parse import Kernel

ACTS: Final = 5_000  # that are looked at of one run, beside those of one cluster
ACTS_OF_A_STRANGER: Final = 100_000


def faults(
    kernel: Kernel,
    strands: Strands,
    counts: Mapping[Barrier, int],
    most: int,
    exact: bool = True,
) -> Iterator[str]:
    """The first race of each cluster: of each whose strands go another way than all before, or if
    not `exact` one with a step that none before went, and of as many others as `most` acts of all
    their strands allow."""
    if strands.unknown:
        return
    different = {_done(each): each for each in strands.clusters()}
    many = {key: sum(len(strand.acts) for strand in each) for key, each in different.items()}
    done = 0
    ways: set[Hashable] = set()
    steps: set[Hashable] = set()
    for key in sorted(different, key=lambda each: -many[each]):
        way = _way(different[key])
        gone = frozenset[Hashable]().union(*way)
        is_known = way in ways if exact else gone <= steps
        if is_known and done + many[key] > most:
            continue
        done += many[key] if ways else 0
        ways.add(way)
        steps |= gone
        found = Races(different[key], counts, strands.together).run()
        if found:
            at, words = found
            yield f"{words} in '{kernel.instructions[at].text[:80]}'"


def _done(cluster: Sequence[Strand]) -> int:
    """What the strands of a cluster did, but for its place."""
    first = cluster[0].cta
    return hash(
        tuple(
            (
                strand.cta - first,
                strand.weight,
                tuple((a.ins.index, a.numbers) for a in strand.acts),
            )
            for strand in cluster
        )
    )


def _way(cluster: Sequence[Strand]) -> frozenset[frozenset[Hashable]]:
    """The steps of each strand of a cluster: which instruction it runs behind which other one, and
    at which it ends."""
    return frozenset(map(_steps, cluster))


def _steps(strand: Strand) -> frozenset[Hashable]:
    at = [-1, *(act.ins.index for act in strand.acts)]
    touched = {(at[i], each.ins, READ) for i, some in strand.touched.items() for each in some}
    return frozenset([*itertools.pairwise([*at, -1]), *touched])
