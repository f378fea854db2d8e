"""What the simulated device takes for a product: waves, rooflines, latencies, and quirks by hash.

Called by the simulation. It knows the families' genes but is no part of a search: it differs from
the prior on purpose, so that a search cannot pass a test by holding the same opinion.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import FAMILIES, Genome
from hgemm_packs.problem import Problem

SMS = 132
L2_BYTES = 50 << 20
GHZ = 1.65
FMA_PER_CLOCK = 2048.0  # of one SM's tensor cores
PEAK_TFLOPS = 2.0 * FMA_PER_CLOCK * SMS * GHZ * 1e-3
DRAM_GBPS = 4100.0
L2_GBPS = 7500.0
FILL_CLOCKS = 900.0  # from a request to its bytes in shared memory
#: Spread of the quirks: of a kernel everywhere, and of a kernel on one problem.
QUIRK, LOCAL_QUIRK = 0.03, 0.025
#: Genes that act together, and how much.
PAIRS = (("tile_n", "stages"), ("epilogue", "schedule"), ("warps_k", "unroll"), ("mi", "ni"))
PAIRED = 0.02


def flop(problem: Problem) -> float:
    return 2.0 * problem.m * problem.n * problem.k


def operand_bytes(problem: Problem) -> float:
    """Bytes of A, B and C once each."""
    m, n, k = problem.m, problem.n, problem.k
    return 2.0 * (m * k + k * n + m * n)


def uniform(*words: object) -> float:
    """A number in [0, 1) that depends on the words alone."""
    text = "\0".join(map(str, words)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big") / 2.0**56


def normal(*words: object) -> float:
    """A standard normal number that depends on the words alone (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform("r", *words)))
    return radius * math.cos(2.0 * math.pi * uniform("a", *words))


def floor_us(problem: Problem, *, cold: bool) -> float:
    """What no kernel can beat: arithmetic at full rate, and with cold caches every byte once."""
    arithmetic = flop(problem) / PEAK_TFLOPS * 1e-6
    return max(arithmetic, operand_bytes(problem) / (DRAM_GBPS * 1e3) if cold else 0.0)


@lru_cache(maxsize=1 << 16)
def kernel_us(choice: Choice, problem: Problem, seed: int, *, cold: bool = False) -> float:
    """True time in us of a kernel that admits the problem, on the machine that `seed` makes."""
    genome = choice.genome
    if choice.family == "sm90_wgmma":
        clocks = _wgmma_clocks(genome, problem)
    elif choice.family == "sm90_direct":
        clocks = _direct_clocks(genome, problem)
    else:
        clocks = _tile_clocks(choice, problem)
    resident = operand_bytes(problem) < L2_BYTES and not cold
    traffic = operand_bytes(problem) / ((L2_GBPS if resident else DRAM_GBPS) * 1e3)
    launch = 1.1 if choice.family == "sm90_direct" else 1.9
    key = _key(choice)
    quirk = QUIRK * normal(seed, key) + LOCAL_QUIRK * normal(seed, key, problem)
    quirk += _affinity(choice.family, genome, problem, seed)
    body = max(clocks / (GHZ * 1e3), traffic) * math.exp(quirk)
    return launch + max(body, floor_us(problem, cold=cold) * 1.02)


@lru_cache(maxsize=1 << 14)
def _key(choice: Choice) -> str:
    return choice.key


def _affinity(family: str, genome: Genome, problem: Problem, seed: int) -> float:
    """What a pair of genes does on problems of one size: learnable, unlike the quirks."""
    size = round(math.log2(flop(problem)) / 4)
    return sum(
        _pair(family, tuple(genome[gene] for gene in pair), size, seed)
        for pair in PAIRS
        if genome.keys() >= set(pair)
    )


@lru_cache(maxsize=1 << 14)
def _pair(family: str, values: tuple[int | str | bool, ...], size: int, seed: int) -> float:
    return PAIRED * normal(seed, family, size, *values)


def _tile_clocks(choice: Choice, p: Problem) -> float:
    """Of any family, by its launch record alone: tiles and parts of K in waves over the SMs."""
    record = FAMILIES[choice.family].record(choice.genome)
    grid, parts = record["grid"], record["cluster"][2] * record["grid"].get("slices", 1)
    tile_m, tile_n = grid["tile_m"], grid["tile_n"]
    tiles = math.ceil(p.m / tile_m) * math.ceil(p.n / tile_n)
    work = max(tile_m, 16) * max(tile_n, 16) * p.k / parts / FMA_PER_CLOCK
    waves: int = math.ceil(tiles * parts / SMS)
    return waves * (FILL_CLOCKS + 1.5 * float(work)) + 100.0 * math.log2(parts)


def _wgmma_clocks(g: Genome, p: Problem) -> float:
    tile_m, tile_n, tile_k = (int(g[gene]) for gene in ("tile_m", "tile_n", "tile_k"))
    split, ctas, stages = (int(g[gene]) for gene in ("split_k", "ctas_per_sm", "stages"))
    tiles = math.ceil(p.m / tile_m) * math.ceil(p.n / tile_n) * split
    steps = math.ceil(p.k / split / tile_k)
    efficiency = tile_n / (tile_n + 20.0) * (0.94 if int(g["consumers"]) == 1 else 1.0)
    shared = min(ctas, max(1.0, tiles / SMS))  # CTAs that share an SM's rates
    arithmetic = tile_m * tile_n * tile_k / FMA_PER_CLOCK / efficiency * shared
    loads = (tile_m + tile_n / int(g["cluster_m"])) * tile_k * 2 / 46.0 * shared
    latency = FILL_CLOCKS / min(stages, 6)
    cluster = 60.0 * (int(g["cluster_m"]) - 1)
    main = steps * (max(arithmetic, loads, latency) + cluster)
    store = (
        tile_m * tile_n * 2 / {"staged": 17.0, "grouped": 19.0, "bulk": 22.0}[str(g["epilogue"])]
    )
    hidden = g["schedule"] == "pingpong" or ctas > 1
    each = max(main, store) + 0.1 * store if hidden else main + store
    waves = math.ceil(tiles / (SMS * ctas))
    if g["persistent"]:
        start, between = 700.0, 60.0
    else:
        start, between = 400.0, 350.0
    reduction = 500.0 + 260.0 * split if split > 1 else 0.0
    return start + FILL_CLOCKS + waves * (each + between) + reduction


def _direct_clocks(g: Genome, p: Problem) -> float:
    mi, ni, unroll = int(g["mi"]), int(g["ni"]), int(g["unroll"])
    warps_m, warps_n, warps_k = (int(g[f"warps_{d}"]) for d in "mnk")
    tile_m, tile_n = 16 * mi * warps_m, 8 * ni * warps_n
    tiles = math.ceil(p.m / tile_m) * math.ceil(p.n / tile_n)
    passes = math.ceil(p.k / (32 * warps_k * unroll))
    warps = warps_m * warps_n * warps_k
    resident = max(1, min(16, 48 // warps))
    shared = min(resident, max(1.0, tiles / SMS))
    arithmetic = tile_m * tile_n * p.k / (FMA_PER_CLOCK * 0.55) * shared
    loads = (tile_m * warps_n + tile_n * warps_m) * p.k * 2 / 58.0 * shared
    latency = passes * (620.0 + 30.0 * unroll * (mi + ni))
    waves = math.ceil(tiles / (SMS * resident))
    reduction = 120.0 + 70.0 * warps_k if warps_k > 1 else 0.0
    bounds = 0.0 if g["exact"] else 40.0 * passes
    return 300.0 + waves * (max(arithmetic, loads, latency) + reduction + bounds)


@lru_cache(maxsize=1 << 12)
def library_us(problem: Problem, seed: int, *, tuned: bool, cold: bool = False) -> float:
    """Time in us of torch, or of tuned cuBLASLt, which is never slower: a good general kernel with
    luck of its own on each problem."""
    traffic = operand_bytes(problem) / (DRAM_GBPS if cold else L2_GBPS / 2.0) * 1e-3
    arithmetic = flop(problem) / PEAK_TFLOPS * 1e-6 / 0.86
    body = max(arithmetic, traffic, 2.2 + problem.k / 2600.0)
    luck = 1.06 + 0.16 * uniform(seed, "torch", problem)
    gain = 1.0 - 0.1 * uniform(seed, "cublaslt", problem) if tuned else 1.0
    return 1.4 + body * luck * gain
