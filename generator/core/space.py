"""The genomes that a problem may be solved with: catalogues that can be listed, and spaces that may
reach beyond them.

A catalogue is every valid genome of a layout and dtype within `CORE` but for `LEFT_OUT`, small
enough to list and rank. A `Space` is a problem's part of it, families that are not `FOR` its size
left out, and what the families of `FITTED` make for that problem alone; with `beyond` the search
may also propose valid genomes outside both.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.core.token_tiles import AT_ONCE, token_designs
from hgemm_packs.generator.families import FAMILIES, Genome, computed, family
from hgemm_packs.problem import ALIGNED, Alignments, Problem

Values = tuple[int | str | bool, ...]

#: family -> gene -> the values listed; genes that are not named are listed in full. What is left
#: out is what moved times least where everything was measured: raster order, store hints, odd
#: depths; and what only a dependent launch can show, which no search times.
CORE: Mapping[str, Mapping[str, Values]] = {
    "sm90_wgmma": {
        "stages": (3, 4, 5, 6, 8),
        "cluster_m": (1, 2),
        "cluster_n": (1, 2),
        "split_k": (1,),
        "ctas_per_sm": (1, 2),
        "raster": ("m",),
        "group": (8,),
        "streaming": (False,),
        "reads_ahead": (False,),
        "triggers_early": (False,),
    },
    "sm90_splitk": {
        "stages": (3, 4, 5, 6, 8),
        "split": (1, 2, 4, 8),
        "slices": (1, 2, 3, 4, 6, 8, 16),
        "ctas_per_sm": (1,),
        "epilogue": ("staged",),
        "reads_ahead": (False,),
        "triggers_early": (False,),
    },
    "sm90_oneshot": {
        "k_slice": (64, 128, 256, 384, 512, 768, 1024),
        "reads_ahead": (False,),
        "triggers_early": (False,),
    },
    "sm90_swapab": {
        "tile_m": (8, 16, 32, 64, 96, 128),
        "stages": (3, 4, 6, 8, 12),
        "ctas_per_sm": (1, 2, 3),
        "reads_ahead": (False,),
        "triggers_early": (False,),
    },
    "sm90_writebound": {
        "stages": (2, 3, 4, 6),
        "reads_ahead": (False,),
        "triggers_early": (False,),
    },
    "sm90_direct": {"fixed_k": (0, 64, 128, 256, 512), "cluster_k": (1, 4, 8)},
    "sm90_gemv": {
        "warps_n": (1, 2, 4),
        "unroll": (1, 2, 4),
        "stages": (1, 4),
        "streaming": (True,),
        "fetch": (64,),
    },
    # Bytes stand for any: `fitted` puts those of the problem in their place.
    "sm90_unaligned": {
        "a_bytes": (2,),
        "b_bytes": (2,),
        "c_bytes": (2,),
        "tile_m": (64, 128),
        "tile_n": (32, 64, 128, 192, 256),
        "stages": (3, 4, 5),
        "batch": (4, 8),
        "ctas_per_sm": (1, 2),
        "group": (8,),
    },
    "sm90_elements": {
        "mi": (1, 2),
        "warps_m": (1, 2),
        "warps_n": (1, 2),
        "cluster_k": (1, 4, 8, 16),
    },
}
#: Combinations of gene values that are not listed either: none of them was the best of a recorded
#: problem by more than 0.3%, or another family does the same.
LEFT_OUT: Mapping[str, Sequence[Mapping[str, Values]]] = {
    "sm90_wgmma": (
        {"consumers": (1,), "cluster_m": (2,)},
        {"consumers": (1,), "cluster_n": (2,)},
        {"consumers": (1,), "epilogue": ("bulk",)},
        {"consumers": (2,), "tile_k": (128,)},
        {"consumers": (2,), "persistent": (False,), "cluster_m": (2,)},
        {"consumers": (2,), "persistent": (False,), "cluster_n": (2,)},
        {"consumers": (2,), "ctas_per_sm": (2,)},
        {"cluster_m": (2,), "cluster_n": (2,)},
        {"schedule": ("pingpong",), "tile_n": (32,)},
    ),
    "sm90_splitk": ({"split": (2, 4, 8), "slices": (2, 3, 4, 6, 8, 16)},),
    "sm90_oneshot": (
        {"cp_async": (True,), "k_slice": (768, 1024)},
        {"cp_async": (True,), "slab_group": (4,), "k_slice": (64, 128, 256)},
    ),
    "sm90_writebound": ({"layout": ("nt", "tt"), "epilogue": ("staged",)},),
    "sm90_direct": ({"exact": (False,), "cluster_k": (4, 8)},),
    "sm90_unaligned": (
        {"wide": (False,), "batch": (4,)},
        {"wide": (False,), "stages": (4,)},
        {"wide": (False,), "tile_n": (192,)},
        {"wide": (True,), "stages": (3, 5)},
        {"wide": (True,), "ctas_per_sm": (2,)},
        {"tile_m": (128,), "consumers": (1,)},
        {"tile_n": (256,), "split_k": (2, 4)},
        {"stages": (3,), "ctas_per_sm": (1,), "tile_n": (32, 64)},
    ),
}

#: Families that no catalogue lists: what is tried of them is fitted to each problem.
FITTED = ("sm90_tokens",)


class Range(NamedTuple):
    """Sizes that a family is for: of M, of outputs M * N, of products M * N * K; and whether of
    packed operands at multiples of 16 bytes as well."""

    m: float = math.inf
    outputs: tuple[float, float] = (0, math.inf)
    products: float = math.inf
    aligned: bool = True


#: Where a family can be the best of all; others are measured first, and nothing is forbidden.
FOR: Mapping[str, Range] = {
    "sm90_wgmma": Range(),
    "sm90_splitk": Range(outputs=(0, 2**22)),
    "sm90_oneshot": Range(outputs=(0, 2**22)),
    "sm90_swapab": Range(m=256),
    "sm90_writebound": Range(outputs=(2**19, math.inf)),
    "sm90_direct": Range(products=2**28),
    "sm90_gemv": Range(m=16),
    "sm90_tokens": Range(),
    "sm90_unaligned": Range(aligned=False),
    "sm90_elements": Range(products=2**32, aligned=False),
}


@functools.lru_cache(maxsize=1 << 15)
def ahead(choice: Choice) -> Choice | None:
    """The choice as it reads ahead and lets the next grid start at once, which it may do already;
    None where there is none."""
    if choice.family not in FAMILIES or "reads_ahead" not in choice.genome:
        return None
    genome = {**choice.genome, "reads_ahead": True, "triggers_early": True}
    valid = FAMILIES[choice.family].is_valid(genome)
    return Choice.of(choice.family, genome) if valid else None


def is_for(name: str, problem: Problem) -> bool:
    """Whether a family of FOR can be the best on a problem."""
    size, outputs = FOR[name], problem.m * problem.n
    return (
        problem.m <= size.m
        and (size.aligned or problem.align < 16)
        and size.outputs[0] <= outputs <= size.outputs[1]
        and outputs * problem.k <= size.products
    )


def _is_listed(name: str, genome: Genome) -> bool:
    return not any(
        all(genome[gene] in values for gene, values in rule.items())
        for rule in LEFT_OUT.get(name, ())
    )


@functools.cache
def catalogue(layout: str, dtype: str) -> tuple[Choice, ...]:
    """Every valid choice of CORE for a layout and dtype, always in the same order; empty when no
    family has the layout."""
    found: list[Choice] = []
    for name, listed in CORE.items():
        f = family(name)
        if layout not in f.genes["layout"] or dtype not in f.genes["dtype"]:
            continue
        values = {**f.genes, **listed, "layout": (layout,), "dtype": (dtype,)}
        for point in itertools.product(*values.values()):
            genome = dict(zip(values, point, strict=True))
            if _is_listed(name, genome) and f.is_valid(genome):
                found.append(Choice.of(name, genome))
    return tuple(found)


def list_computing(problem: Problem) -> tuple[Choice, ...]:
    """The catalogue of a problem's layout and dtype, with its epilogue."""
    listed = catalogue(problem.layout, problem.dtype)
    if problem.epilogue == computed.PLAIN:
        return listed
    found = (Choice.of(c.family, computed.compute_also(c.genome, problem.epilogue)) for c in listed)
    if problem.epilogue != computed.GATED:
        return tuple(found)
    return tuple(c for c in found if family(c.family).is_valid(c.genome))


def fitted(problem: Problem) -> tuple[Choice, ...]:
    """Choices of FITTED that are made for the problem; like the others they need not admit it."""
    return token_designs(problem)


@functools.lru_cache(maxsize=1 << 17)
def limits(choice: Choice) -> tuple[tuple[int, int, int], ...]:
    """(min, max, multiple) of M, N and K that the kernel of a valid choice admits."""
    dims = family(choice.family).record(choice.genome)["dims"]
    return tuple((dims[d]["min"], dims[d]["max"], dims[d]["multiple_of"]) for d in "mnk")


@functools.lru_cache(maxsize=1 << 17)
def needs(choice: Choice) -> Alignments:
    """Bytes that the kernel of a valid choice needs of A, B and C."""
    align = family(choice.family).record(choice.genome).get("align")
    return (align["a"], align["b"], align["c"]) if align else ALIGNED


def widest(choice: Choice, problem: Problem) -> Choice | None:
    """A listed choice whose threads copy the widest units that the problem's operands allow and of
    which their rows are whole, if its family has a gene for these; None where there is none so."""
    if "a_bytes" not in choice.genome:
        return choice
    rows = (
        problem.k if problem.layout[0] == "n" else problem.m,
        problem.n if problem.layout[1] == "n" else problem.k,
        problem.n,
    )
    a, b, c = (
        min(had, math.gcd(16, 2 * row)) for had, row in zip(problem.alignments, rows, strict=True)
    )
    f, wide = family(choice.family), choice.genome["wide"]
    if wide:  # by 16 bytes, whatever rows begin at
        a, b, c = (had if had == 16 else 2 for had in (a, b, c))
    genome = {**choice.genome, "a_bytes": a, "b_bytes": b, "c_bytes": c}
    if 2 not in (a, b) and not wide:
        genome["batch"] = f.genes["batch"][0]
    return Choice.of(choice.family, genome) if f.is_valid(genome) else None


@functools.lru_cache(maxsize=1 << 17)
def most_tiles(choice: Choice) -> tuple[int, int, float]:
    """tile_m, tile_n and how many tiles of C the kernel of a valid choice takes."""
    record = family(choice.family).record(choice.genome)
    grid, cluster = record["grid"], math.prod(record["cluster"])
    most = math.inf
    if record.get("cooperative"):
        at_once = AT_ONCE[cluster] * int(choice.genome.get("ctas_per_sm", 1))
        most = at_once // (cluster * grid["slices"])
    return grid["tile_m"], grid["tile_n"], most


def admits(choice: Choice, problem: Problem) -> bool:
    """Whether the kernel of a valid choice may be launched on `problem`."""
    g = dict(choice.genes)
    if (g["layout"], g["dtype"]) != (problem.layout, problem.dtype):
        return False
    if computed.epilogue_of(g) != problem.epilogue:
        return False
    if any(had < needed for had, needed in zip(problem.alignments, needs(choice), strict=True)):
        return False
    sizes = (problem.m, problem.n, problem.k)
    tile_m, tile_n, most = most_tiles(choice)
    if -(-problem.m // tile_m) * -(-problem.n // tile_n) > most:
        return False
    return all(
        low <= size <= high and size % step == 0
        for size, (low, high, step) in zip(sizes, limits(choice), strict=True)
    )


class Space:
    """What may be proposed for one problem.

    `core` lists the admitted choices of the catalogue and those fitted to the problem, or of `only`
    when given (a replay knows no others). `contains` also says yes to valid choices outside it
    unless `beyond` is False.
    """

    def __init__(
        self, problem: Problem, *, beyond: bool = True, only: Sequence[Choice] | None = None
    ) -> None:
        self.problem = problem
        self.beyond = beyond and only is None
        listed = only
        if listed is None:
            kept = (c for c in list_computing(problem) if is_for(c.family, problem))
            wide = (widest(c, problem) for c in kept)
            listed = [*(c for c in wide if c is not None), *fitted(problem)]
        self.core: tuple[Choice, ...] = tuple(c for c in listed if admits(c, problem))
        self._members = frozenset(self.core)

    def contains(self, choice: Choice) -> bool:
        if choice in self._members:
            return True
        if not self.beyond or choice.family not in FAMILIES:
            return False
        return family(choice.family).is_valid(choice.genome) and admits(choice, self.problem)

    def parse(self, document: Any) -> Choice:
        """The choice that {"family": ..., "genome": {...}} names.

        Raises ValueError with the reason when it is none, invalid or not for this problem.
        """
        choice = read_choice(document, self.problem)
        if not self.contains(choice):
            raise ValueError(f"{choice.family}: this kernel does not admit {self.problem}")
        return choice


def read_choice(document: Any, problem: Problem) -> Choice:
    """The choice that {"family": ..., "genome": {...}} names, with the genes that the problem
    decides; whether a space contains it is not asked.

    Raises ValueError with the reason when it is none, invalid or not for this problem.
    """
    if not isinstance(document, dict) or set(document) != {"family", "genome"}:
        raise ValueError('a choice is {"family": ..., "genome": {...}}')
    name, genome = document["family"], document["genome"]
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"no kernel family {name!r}; known: {', '.join(sorted(FAMILIES))}")
    if not isinstance(genome, dict):
        raise ValueError("a genome is an object of genes")
    kind = {"layout": problem.layout, "dtype": problem.dtype}
    full: Genome = {**computed.compute_also(kind, problem.epilogue), **genome}
    family(name).validate(full)
    choice = Choice.of(name, full)
    if not admits(choice, problem):
        raise ValueError(f"{name}: this kernel does not admit {problem}")
    return choice
