"""Tiles of sm90_tokens for one problem, by count: how many there are, in how many waves, and what a
wave takes.

Tiles of tokens come in steps of 8, so that for each tile of weights there is one whose last wave is
nearly full. Called by `space`, which lists the designs beside its catalogue. What is counted here
only says which are worth listing; the prior and measurements rank them. Touches no GPU.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import FAMILIES, Genome, computed
from hgemm_packs.generator.families.tokens import MOST_OF_THREE
from hgemm_packs.problem import Problem

#: CTAs that run at once where an SM has one, by the size of their cluster: measured on an H200.
#: Kernels whose CTAs wait for each other take no larger grid; what a device really runs its
#: launcher asks the driver.
AT_ONCE: Mapping[int, int] = {1: 132, 2: 132, 3: 117, 4: 120, 6: 102, 8: 120, 16: 112}

FAMILY = "sm90_tokens"
STEP = 8
MOST_TOKENS = 256
#: Tiles of tokens that are listed for each way to work on a tile of weights.
BEST = 2
#: Registers that a consumer thread has for accumulators, by the number of consumers; the family's
#: check has the last word.
ACCUMULATORS = {1: 200, 2: 192, 3: 120}
#: Clocks, roughly, as the prior has them: until the first bytes have come, a sum over a cluster,
#: and bytes that an SM is given of L2, that st.async moves and that it stores, each clock.
FILL, REDUCE = 1600, 700
L2, SENT, STORED = 80, 10, 32


class Way(NamedTuple):
    """How a tile of weights is worked on: its rows, who multiplies, and who shares what."""

    rows: int
    consumers: int
    schedule: str
    cluster_m: int = 1
    cluster_n: int = 1
    split: int = 1

    @property
    def ctas(self) -> int:
        return self.cluster_m * self.cluster_n * self.split


class Tile(NamedTuple):
    """Tokens of a tile, the waves that a problem takes with it, how much of these waves is work on
    what the problem has, and their time in clocks."""

    tokens: int
    waves: int
    filled: float
    clocks: float


SINGLE = (
    *(Way(rows, 1, "cooperative") for rows in (64, 128, 192)),
    *(Way(rows, 2, "cooperative") for rows in (128, 256, 384)),
    *(Way(rows, 3, "cooperative") for rows in (192, 384)),
    *(Way(rows, 2, "pingpong") for rows in (64, 128, 192, 256)),
)
CLUSTERS = ((2, 1), (1, 2), (4, 1), (1, 4))
SPLITS = (2, 4)
WAYS: tuple[Way, ...] = (
    *SINGLE,
    *(way._replace(cluster_m=m, cluster_n=n) for way in SINGLE for m, n in CLUSTERS),
    *(
        way._replace(split=split)
        for way in SINGLE
        for split in SPLITS
        if way.schedule == "cooperative" and way.rows == 64 * way.consumers
    ),
)


def fit_tokens(problem: Problem, way: Way, at_once: Mapping[int, int] = AT_ONCE) -> list[Tile]:
    """Tiles of tokens for `way`, those that take the least time first, and of equal times those
    whose waves are fuller. `at_once` says how many CTAs a device runs at a time."""
    held = way.rows // (1 if way.schedule == "pingpong" else way.consumers) // 64
    step = 32 if problem.layout[0] == "t" else STEP
    most = MOST_OF_THREE if way.consumers == 3 else MOST_TOKENS
    most = min(most, 2 * ACCUMULATORS[way.consumers] // held)
    along = functools.partial(_along, problem.m, way)
    # Of those that make as many tiles the least leaves the least empty.
    sizes = {along(tokens): tokens for tokens in range(most - most % step, 0, -step)}
    tiles = [_tile(problem, way, tokens, at_once) for tokens in sizes.values()]
    return sorted(tiles, key=lambda tile: (tile.clocks, -tile.filled))


def _along(m: int, way: Way, tokens: int) -> int:
    """Clusters along M."""
    return math.ceil(m / (tokens * way.cluster_m))


def _tile(problem: Problem, way: Way, tokens: int, at_once: Mapping[int, int]) -> Tile:
    across = math.ceil(problem.n / (way.rows * way.cluster_n))
    clusters = _along(problem.m, way, tokens) * across
    room = at_once[way.ctas] // way.ctas
    waves = math.ceil(clusters / room)
    work = problem.m * problem.n
    filled = work / (waves * room * way.cluster_m * way.cluster_n * tokens * way.rows)
    # 16 of K: what tensor cores take for 64 rows of weights at a time, and what has to come.
    math_clocks = way.rows / 64 * max(tokens / 2, 16 + tokens / 4)
    come = (tokens / way.cluster_n + way.rows / way.cluster_m) * 32 / L2
    steps = math.ceil(problem.k / 16 / way.split)
    store = tokens * way.rows * 2 / way.split / STORED
    serial = FILL + store
    if way.split > 1:
        serial += REDUCE + tokens * way.rows * 4 * (way.split - 1) / way.split / SENT
    body = steps * math.hypot(math_clocks, come)
    if way.schedule != "pingpong":
        body += store * (waves - 1) / waves
    return Tile(tokens, waves, filled, waves * body + serial)


@functools.lru_cache(maxsize=1 << 12)
def token_designs(problem: Problem) -> tuple[Choice, ...]:
    """The choices of sm90_tokens that are listed for a problem, always in the same order."""
    found: dict[Choice, None] = {}
    for way in WAYS:
        for tile in fit_tokens(problem, way)[:BEST]:
            for genome in _genomes(problem, way, tile):
                found[Choice.of(FAMILY, genome)] = None
    return tuple(found)


def _genomes(problem: Problem, way: Way, tile: Tile) -> Iterator[Genome]:
    """Kernels of a tile, with each depth of a stage; their rings are as deep as room is."""
    looped = tile.waves > 1 or way.schedule == "pingpong"
    genome: Genome = {
        "layout": problem.layout,
        "dtype": problem.dtype,
        "tile_m": tile.tokens,
        "tile_n": way.rows,
        "consumers": way.consumers,
        "schedule": way.schedule,
        "cluster_m": way.cluster_m,
        "cluster_n": way.cluster_n,
        "split_k": way.split,
        "persistent": looped and way.split == 1,
        "raster": "m",
        "group": 8,
        "buffers": 1,
        "streaming": False,
        "reads_ahead": False,
        "triggers_early": False,
    }
    genome = computed.compute_also(genome, problem.epilogue)
    # Two CTAs of an SM hide each other's sums over their clusters.
    for tile_k, ctas in itertools.product(
        (64, 128) if way.consumers == 1 else (64,), (1, 2) if way.split > 1 else (1,)
    ):
        base = {**genome, "tile_k": tile_k, "ctas_per_sm": ctas}
        deepest = [_deepest({**base, "epilogue": epilogue}) for epilogue in _stores(way)]
        rings = [ring for ring in deepest if ring is not None]
        # Staging a whole tile for a bulk store is not worth a stage.
        most = max((int(ring["stages"]) for ring in rings), default=0)
        yield from (ring for ring in rings if ring["stages"] == most)


def _stores(way: Way) -> tuple[str, ...]:
    if way.split > 1:
        return ("staged",)
    return ("rows", "bulk")


#: As the catalogue's rings have.
MOST_STAGES = 8


def _deepest(genome: Genome) -> Genome | None:
    """The genome with as many stages as are valid, MOST_STAGES at most; None where none is."""
    family = FAMILIES[FAMILY]
    for stages in sorted(family.genes["stages"], reverse=True):
        full = {**genome, "stages": stages}
        if int(stages) <= MOST_STAGES and family.is_valid(full):
            return full
    return None
