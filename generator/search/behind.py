"""Which kernels are worth a launch behind another of ours: those that read ahead, and leave room.

Asked by a run for problems that it won. What is fastest so is seldom fastest alone: small problems
want a grid that fits more than once on the GPU, by a part of its SMs or by some CTAs an SM, for
then the next ones read while this one still multiplies (AGENTS.md, reading ahead).
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Mapping, Sequence

from hgemm_packs.generator.core.space import Space, admits, ahead
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.families.base import SM_BYTES, ceil_div, number
from hgemm_packs.generator.search import prior, variation
from hgemm_packs.problem import Problem

SYSTEM_BYTES = 1024  # of shared memory that each CTA costs beyond its own
SM_THREADS = 2048

BEST = 2  # choices of a problem whose neighbours are tried
NEAREST = 8  # sizes whose best is tried


def candidates(space: Space, sms: int, n: int) -> list[Choice]:
    """The first `n` by the prior of those kernels of the space's core, as they are when they read
    ahead, on a GPU of `sms` SMs."""
    found: list[Choice] = []
    for row in prior.rank(space):
        twin = ahead(space.core[row])
        if twin and leaves_room(twin, space.problem, sms) and admits(twin, space.problem):
            found.append(twin)
        if len(found) == n:
            break
    return found


def twins(choice: Choice, problem: Problem, sms: int) -> list[Choice]:
    """The choice as it reads ahead, which it may do already: as deep as it is, and as deep as
    leaves room. None where its kind cannot."""
    same = ahead(choice)
    if same is None:
        return []
    family = FAMILIES[same.family]
    for stages in sorted(family.genes.get("stages", ()), key=int, reverse=True):
        genome = {**same.genome, "stages": stages}
        if int(stages) > number(same.genome, "stages") or not family.is_valid(genome):
            continue
        if leaves_room(twin := Choice.of(same.family, genome), problem, sms):
            return list(dict.fromkeys([same, twin]))
    return [same]


def around(problem: Problem, best: Mapping[Problem, Sequence[Choice]]) -> list[Choice]:
    """What to try once the fastest of each problem so far are known, `best` by problem: those that
    differ in one gene from this one's, and the best of the nearest sizes in its layout and type."""
    near = [choice for other in _nearest(problem, best) for choice in best[other][:1]]
    neighbours = (
        ahead(Choice.of(choice.family, genome))
        for choice in best.get(problem, ())[:BEST]
        for genome in variation.neighbours(FAMILIES[choice.family], choice.genome)
    )
    found = dict.fromkeys([*near, *filter(None, neighbours)])
    return [choice for choice in found if admits(choice, problem)]


def _nearest(problem: Problem, others: Mapping[Problem, object]) -> list[Problem]:
    """The NEAREST of the others by the ratios of their sizes."""
    alike = (o for o in others if (o.layout, o.dtype) == (problem.layout, problem.dtype))

    def distance(other: Problem) -> float:
        sides = zip(problem.key[:3], other.key[:3], strict=True)
        return sum(math.log2(mine / its) ** 2 for mine, its in sides)

    return heapq.nsmallest(NEAREST, (o for o in alike if o != problem), key=distance)


def leaves_room(choice: Choice, problem: Problem, sms: int) -> bool:
    """Whether two grids of the kernel fit on the GPU at once, as far as shared memory and threads
    tell. Persistent ones always do: the launcher gives them half of the room."""
    if FAMILIES[choice.family].record(choice.genome)["grid"]["persistent"]:
        return True
    tile_m, tile_n, each, fitting = _footprint(choice)
    ctas = ceil_div(problem.m, tile_m) * ceil_div(problem.n, tile_n) * each
    return 2 * ctas <= sms * fitting


@functools.lru_cache(maxsize=1 << 15)
def _footprint(choice: Choice) -> tuple[int, int, int, int]:
    """tile_m, tile_n, CTAs a tile, CTAs that fit on an SM."""
    record = FAMILIES[choice.family].record(choice.genome)
    grid, cluster_k = record["grid"], record["cluster"][2]
    by_memory = SM_BYTES // (record["smem_bytes"] + SYSTEM_BYTES)
    return (
        grid["tile_m"],
        grid["tile_n"],
        cluster_k * grid.get("slices", 1),
        min(by_memory, SM_THREADS // record["block"]),
    )
