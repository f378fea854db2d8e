"""Evolution: an island a family, on each a MAP-Elites archive of the fastest choice of its kind,
children by the family's own moves, winners of similar problems as migrants.

A bandit learns which move pays where. The portfolio takes children from here; as a strategy it
stands alone.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal
from hgemm_packs.generator.families import FAMILIES, family
from hgemm_packs.generator.search.analytic.roofline import BOTTLENECKS
from hgemm_packs.generator.search.bandit import Bandit
from hgemm_packs.generator.search.history import History, Told, draws
from hgemm_packs.generator.search.prior import Rows, rank, rows_of
from hgemm_packs.generator.search.variation import cross, mutate
from hgemm_packs.problem import Problem

T = TypeVar("T")
Cell = tuple[str, int, int, int]

CROSS = "cross"
SEEDS = 8  # told choices before a problem's islands evolve
MIGRANTS = 0.15  # share of children that come from similar problems
BROOD = 4  # children of which the prior lets one live
TRIES = 12  # draws for one child
PRESSURE = 0.7  # odds that the next slower cell, or island, is asked instead


@functools.lru_cache(maxsize=1 << 16)
def cell(choice: Choice) -> Cell:
    """Its kind: family, parts of K, log2 of the tile's area, log2 of what is in flight."""
    g, record = choice.genome, FAMILIES[choice.family].record(choice.genome)
    grid = record["grid"]
    parts = record["cluster"][2] * grid.get("slices", 1) * int(g.get("warps_k", 1))
    deep = int(g.get("stages", 1)) * int(g.get("tile_k", 64)) * int(g.get("unroll", 1)) // 64
    area = grid["tile_m"] * grid["tile_n"]
    return choice.family, parts, round(math.log2(area)), round(math.log2(deep))


def elites(told: Told) -> dict[Cell, Choice]:
    """The fastest choice of each cell, fastest cell first."""
    archive: dict[Cell, Choice] = {}
    for choice in told.front()[0]:
        archive.setdefault(cell(choice), choice)
    return archive


@functools.lru_cache(maxsize=1 << 16)
def key_of(choice: Choice) -> str:
    return choice.key


class Islands:
    """Archives follow from the history; only the bandit has a state of its own."""

    name = "islands"

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.history = History()
        moves = {name: [*f.operators, CROSS] for name, f in FAMILIES.items()}
        self._moves = {
            name: [f"{name}:{move}" for move in listed] for name, listed in moves.items()
        }
        self.bandit = Bandit({arm: (1.0, 1.0) for arms in self._moves.values() for arm in arms})

    def ask(self, space: Space, n: int) -> list[Proposal]:
        told = self.history.of(space.problem)
        rng = draws(self._seed, told)
        found: dict[Choice, Proposal] = {}
        if len(told.us) >= SEEDS:
            children = list(itertools.islice(self.children(space, rng), n * BROOD))
            of = Rows([child.choice for child in children], space.problem)
            score = of.prior + self.history.penalty(of.table)
            found = {children[i].choice: children[i] for i in np.argsort(score, kind="stable")[:n]}
        for choice in self._seeds(space, told):
            if len(found) >= n:
                break
            found.setdefault(choice, Proposal(choice, self.name, "prior"))
        return list(found.values())

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        self.history.add(space.problem, outcomes)
        self.learn(space, outcomes)

    def _seeds(self, space: Space, told: Told) -> Iterator[Choice]:
        """The prior's order: first the best of each cell, then the others, failures last."""
        rows = rows_of(space)
        broken = self.history.penalty(rows.table) > 1
        filled = set(map(cell, told.us))
        left: list[Choice] = []
        for i in sorted(rank(space), key=broken.__getitem__):
            choice = rows.choices[i]
            if choice in told.us:
                continue
            if broken[i] or cell(choice) in filled:
                left.append(choice)
                continue
            filled.add(cell(choice))
            yield choice
        yield from left

    def children(self, space: Space, rng: random.Random) -> Iterator[Proposal]:
        """New members of the space, one after the other, until TRIES draws in a row find none."""
        told = self.history.of(space.problem)
        islands = _by_family(elites(told).values())
        migrants = self.history.winners(space, problems=4, each=2)
        seen, failed = set(told.us), 0
        while islands and failed < TRIES:
            if migrants and rng.random() < MIGRANTS:
                child: Proposal | None = Proposal(migrants.pop(0), self.name, "migrate")
            else:
                child = self._child(_draw(islands, rng), space.problem, rng)
            if child is None or child.choice in seen or not self._fit(space, child.choice):
                failed += 1
                continue
            failed = 0
            seen.add(child.choice)
            yield child

    def _fit(self, space: Space, choice: Choice) -> bool:
        return not self.history.broken(choice) and space.contains(choice)

    def _child(
        self, island: Sequence[Choice], problem: Problem, rng: random.Random
    ) -> Proposal | None:
        parent = _draw(island, rng)
        f = family(parent.family)
        arm = self.bandit.choose(_context(parent, problem), rng, self._moves[f.name])
        move = arm.split(":")[1]
        parents = [parent]
        if move == CROSS:
            others = [other for other in island if other != parent]
            if not others:
                return None
            parents.append(_draw(others, rng))
            genome = cross(f, parent.genome, parents[1].genome, rng)
        else:
            genome = mutate(f, parent.genome, move, rng)
        if genome is None:
            return None
        keys = tuple(map(key_of, parents))
        return Proposal(Choice.of(f.name, genome), self.name, arm, keys)

    def learn(self, space: Space, outcomes: Iterable[Outcome]) -> None:
        """Reward moves whose child is faster than its first parent. A child whose parent was not
        told says nothing."""
        told = self.history.of(space.problem)
        for outcome in outcomes:
            arm = outcome.proposal.operator
            if arm not in self.bandit.arms or not outcome.proposal.parents:
                continue
            known = (c for c in told.us if key_of(c) == outcome.proposal.parents[0])
            parent = next(known, None)
            if parent is not None:
                won = told.us[outcome.proposal.choice] < told.us[parent]
                self.bandit.reward(_context(parent, space.problem), arm, won)


def _by_family(ranked: Iterable[Choice]) -> list[list[Choice]]:
    """The islands, that of the fastest choice first; each keeps its order."""
    islands: dict[str, list[Choice]] = {}
    for choice in ranked:
        islands.setdefault(choice.family, []).append(choice)
    return list(islands.values())


def _draw(ranked: Sequence[T], rng: random.Random) -> T:
    """One of a list, the first the likeliest."""
    for item in ranked:
        if rng.random() > PRESSURE:
            return item
    return ranked[0]


@functools.lru_cache(maxsize=1 << 16)
def _context(choice: Choice, problem: Problem) -> str:
    """What bounds the choice on the problem, by the prior."""
    one = rows_of(Space(problem, only=(choice,)))
    return BOTTLENECKS[int(one.terms.bottleneck()[0])]


def make(seed: int) -> Islands:
    """An evolution that starts from the prior's best of each cell."""
    return Islands(seed)
