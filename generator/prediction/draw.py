"""Problems that a seed draws: layers of models with any M, and sizes of no model.

`generate measure unseen` trains on them, `benchmarks.measure.unseen` judges by others, with another
seed. Nothing here depends on what a table has.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from hgemm_packs.generator.core import problems
from hgemm_packs.problem import DTYPES, LAYOUTS, Problem, set_bytes

#: Sizes of no model, both ends inside; M of layers.
LARGEST, LARGEST_M = 16384, 8192
#: A call of more operations than this takes a tenth of a second on no GPU of ours, and one of fewer
#: bytes fits beside its reference.
MOST_FLOP, MOST_BYTES = 4.4e12, 4 << 30
#: Sizes that are multiples of these are aligned.
STEP = 8
#: N and K of layers that no listed model has: both ends, and what they are multiples of.
SIDES, WEIGHT_STEPS = (256, 65536), (64, 128, 512, 1024)


def log_uniform(dice: random.Random, low: int, high: int) -> int:
    return round(math.exp(dice.uniform(math.log(low), math.log(high))))


def weights() -> list[tuple[int, int]]:
    """N and K of every layer of the listed models, once."""
    return sorted({(p.n, p.k) for p in problems.read("llm")})


def split_weights(seed: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """N and K that training may see, and as many that only figures are for: the same at any seed of
    the problems."""
    listed = weights()
    random.Random(seed).shuffle(listed)
    return sorted(listed[::2]), sorted(listed[1::2])


def free_weights(seed: int, count: int) -> list[tuple[int, int]]:
    """As many different N and K that no listed model has, log-uniform."""
    dice, listed, found = (
        random.Random(f"{seed} weights"),
        set(weights()),
        dict[tuple[int, int], None](),
    )
    while len(found) < count:
        step = dice.choice(WEIGHT_STEPS)
        n, k = (max(step, log_uniform(dice, *SIDES) // step * step) for _ in range(2))
        if (n, k) not in listed and 2 * n * k <= MOST_BYTES:
            found[n, k] = None
    return list(found)


def layers(
    seed: int, count: int, among: Iterable[tuple[int, int]], largest_m: int = LARGEST_M
) -> list[Problem]:
    """As many different layers with M log-uniform."""
    dice, listed, found = random.Random(f"{seed} layers"), list(among), dict[Problem, None]()
    while len(found) < count:
        n, k = dice.choice(listed)
        problem = Problem(log_uniform(dice, 1, largest_m), n, k, "nt", dice.choice(DTYPES))
        found[problem] = None
    return list(found)


def sizes(seed: int, count: int, *, aligned: bool) -> list[Problem]:
    """As many different problems of log-uniform sizes in any layout: N, K and what else leads a row
    multiples of STEP, or else at least one of N and K is none."""
    dice, found = random.Random(f"{seed} sizes {aligned}"), dict[Problem, None]()
    while len(found) < count:
        m, n, k = (log_uniform(dice, 1, LARGEST) for _ in range(3))
        layout, dtype = dice.choice(LAYOUTS), dice.choice(DTYPES)
        if aligned:
            n, k = (max(STEP, side // STEP * STEP) for side in (n, k))
            m = max(STEP, m // STEP * STEP) if layout[0] == "t" else m
        problem = Problem(m, n, k, layout, dtype)
        fits = 2.0 * m * n * k <= MOST_FLOP and set_bytes(problem) <= MOST_BYTES
        if fits and (aligned or n % STEP or k % STEP):
            found[problem] = None
    return list(found)
