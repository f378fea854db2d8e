"""What won at the sizes nearest to those of a problem, made to fit it.

Called by `transfer` where nothing is known of a problem's own sizes: engines run any number of
tokens, and of M = 37 no run knows anything. The nearest sizes are those of the same weight, [N, K],
at another M, then those of other weights. Touches no GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from hgemm_packs.generator.core.space import admits
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.problem import Problem

Sizes = tuple[int, int, int]

MOST = 16  # choices for a problem
#: How many sizes are looked at. What is valid of a size's winners is a few choices.
PLACES = 24
#: A weight twice as wide counts as much as 16 times the tokens.
WEIGHT = 4.0
#: Tokens of a tile come in steps of these.
STEP = 8
MOST_TOKENS = 256


def near_choices(
    known: Mapping[Sizes, Sequence[Choice]],
    problem: Problem,
    moved: Callable[[Choice, Problem], Choice | None],
) -> list[Choice]:
    """Choices that `problem` admits, nearest sizes first, each once and MOST of them. `moved` puts
    a choice into the problem's layout, type and epilogue."""
    found: dict[Choice, None] = {}
    nearest = sorted(known, key=lambda sizes: (distance(sizes, problem), sizes))
    for sizes in nearest[:PLACES]:
        for choice in known[sizes]:
            here = moved(choice, problem)
            if here is None:
                continue
            for fitting in fit(here, problem.m):
                if admits(fitting, problem):
                    found[fitting] = None
        if len(found) >= MOST:
            break
    return [*found][:MOST]


def fit(choice: Choice, m: int) -> Iterator[Choice]:
    """The choice with tiles that M rows of A fill, if its family has tokens in steps of 8, then the
    choice itself. Such a tile is as deep as room is."""
    genome = choice.genome
    if choice.family == "sm90_swapab":
        tiles = math.ceil(m / MOST_TOKENS)
        tokens = STEP * math.ceil(m / tiles / STEP)
        for stages in sorted(FAMILIES[choice.family].genes["stages"], reverse=True):
            other = {**genome, "tile_m": tokens, "stages": stages}
            if int(stages) <= int(genome["stages"]) and FAMILIES[choice.family].is_valid(other):
                yield Choice.of(choice.family, other)
                break
    if choice.family == "sm90_tokens":
        # As many tiles along M as it takes here, the same size each: no tile grows.
        tiles = math.ceil(m / int(genome["tile_m"]))
        other = {**genome, "tile_m": STEP * math.ceil(m / tiles / STEP)}
        if other != genome and FAMILIES[choice.family].is_valid(other):
            yield Choice.of(choice.family, other)
    yield choice


def distance(sizes: Sizes, problem: Problem) -> float:
    """How far sizes are from those of a problem: doublings of M, and WEIGHT times those of N and
    K."""
    m, n, k = (
        abs(math.log2(a / b)) for a, b in zip(sizes, (problem.m, problem.n, problem.k), strict=True)
    )
    return m + WEIGHT * (n + k)
