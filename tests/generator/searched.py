"""A small machine for tests of searches: some choices of the catalogue, times of the simulation
without noise. It holds no opinion of the prior's."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from hgemm_packs.generator.core.space import Space, catalogue
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal, Status
from hgemm_packs.generator.devices.model import kernel_us
from hgemm_packs.generator.search.base import Strategy
from hgemm_packs.problem import Problem

SHAPES = (
    (64, 64, 256),
    (256, 256, 256),
    (256, 512, 4096),
    (1024, 1024, 1024),
    (2048, 2048, 512),
    (64, 4096, 4096),
    (2048, 4096, 2048),
    (4096, 4096, 256),
)
PROBLEMS = tuple(Problem(*shape, "nt", "f16") for shape in SHAPES)
EVERY = 12  # choices of the catalogue of which one is in the spaces


def spaces(
    problems: Sequence[Problem] = PROBLEMS, every: int = EVERY, first: int = 0
) -> list[Space]:
    """One a problem: every so many of the catalogue's choices."""
    return [
        Space(problem, only=catalogue(problem.layout, problem.dtype)[first::every])
        for problem in problems
    ]


def outcome(
    proposal: Proposal | Choice, problem: Problem, seed: int = 0, broken: Collection[Choice] = ()
) -> Outcome:
    """What measuring says on the machine of `seed`."""
    if isinstance(proposal, Choice):
        proposal = Proposal(proposal, "test")
    if proposal.choice in broken:
        return Outcome(proposal, Status.NUMERIC, math.inf)
    return Outcome(proposal, Status.OK, kernel_us(proposal.choice, problem, seed))


def optimum(space: Space, seed: int = 0) -> float:
    """The least us there is."""
    return min(kernel_us(choice, space.problem, seed) for choice in space.core)


def search(
    strategy: Strategy,
    over: Sequence[Space],
    rounds: int,
    batch: int,
    seed: int = 0,
    broken: Collection[Choice] = (),
) -> dict[Problem, list[Outcome]]:
    """Ask, measure and tell in rounds over the spaces; all outcomes in order."""
    told: dict[Problem, list[Outcome]] = {space.problem: [] for space in over}
    for _ in range(rounds):
        for space in over:
            proposals = strategy.ask(space, batch)
            outcomes = [outcome(p, space.problem, seed, broken) for p in proposals]
            strategy.tell(space, outcomes)
            told[space.problem] += outcomes
    return told


def share(told: dict[Problem, list[Outcome]], over: Sequence[Space], seed: int = 0) -> float:
    """Geometric mean over the spaces of optimum over the best that was found."""
    logs = [
        math.log(optimum(space, seed) / min(o.us for o in told[space.problem])) for space in over
    ]
    return math.exp(sum(logs) / len(logs))
