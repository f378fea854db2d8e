"""A store of times that formulas make: kernels of three tiles, and a torch that takes the time of a
fourth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from hgemm_packs.generator.prediction.rows import Eye, Rows, make_rows
from hgemm_packs.generator.prediction.times import Times
from hgemm_packs.pack.manifest import DeviceProfile, DimRange
from hgemm_packs.pack.predictor import Candidate, Dims
from hgemm_packs.problem import Problem

H200 = DeviceProfile("NVIDIA H200", 132, 62914560, 4800.0)
FAMILIES = ("sm90_simulated",)
FLOP_PER_US = 7.5e6
TILES = ((64, 64), (64, 256), (128, 256))


def candidates() -> dict[str, Candidate]:
    wide = Dims(*(DimRange(8, 1 << 20, 8) for _ in range(3)))
    return {
        f"tile{m}x{n}": Candidate(
            f"{m:032x}{n:032x}",
            *("nn", "f16"),
            wide,
            (0, m, n, 64, 4, 1, 1, 1, 1, 0, 256, 200_000, 16, 16, 16, 0, 0, 0, 1),
        )
        for m, n in TILES
    }


def tiled_us(p: Problem, m: int, n: int) -> float:
    """Waves of tiles, each as long as an SM takes for it: small ones fill it badly."""
    waves = math.ceil(math.ceil(p.m / m) * math.ceil(p.n / n) / H200.sm_count)
    return 3.0 + waves * (2.0 * m * n * p.k / (FLOP_PER_US * m * n / (m * n + 4096)))


def problems(seed: int, count: int) -> list[Problem]:
    dice = random.Random(seed)
    found: dict[Problem, None] = {}
    while len(found) < count:
        sizes = (8 * round(2 ** dice.uniform(2, 9)) for _ in range(3))
        found[Problem(*sizes, "nn", "f16")] = None
    return list(found)


def times(listed: Sequence[Problem], torch_us: Callable[[Problem], float]) -> dict[Problem, Times]:
    return {
        p: Times(torch_us(p), {f"tile{m}x{n}": tiled_us(p, m, n) for m, n in TILES}) for p in listed
    }


def make(
    listed: Sequence[Problem], torch_us: Callable[[Problem], float]
) -> tuple[Eye, Rows, dict[Problem, Times]]:
    known, kernels = times(listed, torch_us), candidates()
    eye = Eye(list(kernels.values()), FAMILIES, H200)
    return eye, make_rows(eye, list(kernels), known, {}, {}), known
