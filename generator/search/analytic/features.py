"""Choices as numbers: the physical quantities that the prior works with, and one place for each
gene value for what is learnt.

Used by every search of ours. Numbers of one choice are computed once a process.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.problem import Problem

Array = NDArray[np.float64]
Places = NDArray[np.intp]

#: Quantities of a choice by family: genes, truth values as 0 and 1, and what its record says.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "sm90_wgmma": (
        *("tile_m", "tile_n", "tile_k", "stages", "consumers", "cluster_m", "cluster_n"),
        *("split_k", "persistent", "ctas_per_sm", "group", "streaming"),
        *("pingpong", "raster_n", "grouped", "bulk", "bulk_blocks", "threads", "smem"),
    ),
    "sm90_splitk": (
        *("tile_m", "tile_n", "tile_k", "stages", "split", "slices", "run", "ctas_per_sm"),
        *("grouped", "threads", "smem"),
    ),
    "sm90_oneshot": (
        *("tile_m", "tile_n", "k_slice", "slab_group", "split", "cp_async"),
        *("grouped", "plain", "threads", "smem"),
    ),
    "sm90_swapab": (
        *("tile_m", "tile_n", "tile_k", "stages", "consumers", "split_k", "persistent"),
        *("ctas_per_sm", "threads", "smem"),
    ),
    "sm90_writebound": (
        *("tile_n", "k", "stages", "stages_b", "consumers", "ordered", "ctas_per_sm"),
        *("streaming", "grouped", "bulk", "threads", "smem"),
    ),
    "sm90_direct": (
        *("mi", "ni", "warps_m", "warps_n", "warps_k", "unroll", "exact", "fixed_k"),
        *("cluster_k", "threads"),
    ),
    "sm90_gemv": (
        *("tokens", "mi", "warps_n", "warps_k", "unroll", "stages", "ahead", "cluster_k"),
        *("streaming", "fetch", "threads"),
    ),
    "sm90_tokens": (
        *("tile_m", "tile_n", "tile_k", "stages", "consumers", "cluster_m", "cluster_n"),
        *("split_k", "persistent", "ctas_per_sm", "group", "buffers", "streaming"),
        *("pingpong", "raster_n", "bulk", "threads", "smem"),
    ),
    "sm90_unaligned": (
        *("a_bytes", "b_bytes", "c_bytes", "tile_m", "tile_n", "stages", "consumers", "producers"),
        *("batch", "split_k", "ctas_per_sm", "group", "threads", "smem"),
    ),
    "sm90_elements": (
        *("mi", "ni", "warps_m", "warps_n", "warps_k", "unroll", "cluster_k", "threads"),
    ),
}
TUNED: Mapping[str, tuple[str, ...]] = {
    name: tuple(gene for genes in f.operators.values() for gene in genes)
    for name, f in FAMILIES.items()
}


def _value_places() -> dict[tuple[str, str, int | str | bool], int]:
    """A place for each family and for each value of each of its tuned genes."""
    keys: list[tuple[str, str, int | str | bool]] = [(name, "", "") for name in TUNED]
    for name, genes in TUNED.items():
        keys += [(name, gene, value) for gene in genes for value in FAMILIES[name].genes[gene]]
    return {key: i for i, key in enumerate(keys)}


PLACES = _value_places()
MOST_GENES = 1 + max(map(len, TUNED.values()))


@functools.lru_cache(maxsize=1 << 17)
def quantities(choice: Choice) -> tuple[float, ...]:
    """FIELDS of the choice's family, in their order."""
    g = choice.genome
    record = FAMILIES[choice.family].record(g)
    derived: dict[str, float] = {
        "threads": record["block"],
        "smem": record["smem_bytes"],
        "pingpong": g.get("schedule") == "pingpong",
        "raster_n": g.get("raster") == "n",
        **{name: g.get("epilogue") == name for name in ("grouped", "bulk", "plain")},
    }
    return tuple(
        float(derived[name] if name in derived else g[name]) for name in FIELDS[choice.family]
    )


@functools.lru_cache(maxsize=1 << 17)
def places(choice: Choice) -> tuple[int, ...]:
    """Where its family and its gene values are in PLACES, padded with len(PLACES)."""
    g = choice.genome
    found = [PLACES[choice.family, "", ""]]
    found += [PLACES[choice.family, gene, g[gene]] for gene in TUNED[choice.family]]
    return tuple(found) + (len(PLACES),) * (MOST_GENES - len(found))


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one family: their numbers in the table, and a column a field."""

    family: str
    rows: Places
    columns: Mapping[str, Array]


class Table:
    """Choices as arrays, a row each. Only where each row's gene values are is kept, two bytes each:
    a search holds the tables of a thousand problems. Raises KeyError for a family that FIELDS does
    not list."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.choices = tuple(choices)
        unknown = {choice.family for choice in self.choices} - FIELDS.keys()
        if unknown:
            raise KeyError(f"no features of {sorted(unknown)}")
        listed = [places(choice) for choice in self.choices]
        self._places = np.array(listed, dtype=np.uint16).reshape(len(listed), MOST_GENES)

    def __len__(self) -> int:
        return len(self.choices)

    def parts(self, at: Places | None = None) -> Iterator[Part]:
        """The quantities of some rows, or of all, family by family; numbers count in `at`."""
        choices = self.choices if at is None else [self.choices[i] for i in at]
        for name, fields in FIELDS.items():
            rows = [i for i, choice in enumerate(choices) if choice.family == name]
            if rows:
                matrix = np.array([quantities(choices[i]) for i in rows])
                columns = dict(zip(fields, matrix.T, strict=True))
                yield Part(name, np.array(rows, dtype=np.intp), columns)

    def hot(self, at: Places | None = None) -> Array:
        """A row a choice, 1 at the place of each of its gene values and 0 elsewhere."""
        listed = self._places if at is None else self._places[at]
        ones = np.zeros((len(listed), len(PLACES) + 1))
        np.put_along_axis(ones, listed.astype(np.intp), 1.0, axis=1)
        return ones[:, :-1]

    def gather(self, values: Array) -> Array:
        """`hot() @ values`: each row's sum of what its gene values have."""
        sums: Array = np.append(values, 0.0)[self._places].sum(axis=1)
        return sums

    def scatter(self, weights: Array) -> Array:
        """`weights @ hot()`: what the rows give to each gene value."""
        spread = np.repeat(weights, MOST_GENES)
        sums: Array = np.bincount(self._places.ravel(), spread, len(PLACES) + 1).astype(np.float64)
        return sums[:-1]


def shape(problem: Problem) -> Array:
    """What a policy sees of a problem: one, log sizes, intensity, how many 64x128 tiles an SM gets,
    layout, how far the tiles are from one an SM. All but the one are about -0.5 to 0.5, so that
    what is learnt of a gene holds for all shapes before it bends with the shape."""
    m, n, k = problem.m, problem.n, problem.k
    intensity = m * n * k / (m * n + n * k + m * k)
    waves = math.ceil(m / 64) * math.ceil(n / 128) / 132
    logs = (m, n, k, intensity, waves, m * n * k)
    middle = (9.0, 10.0, 10.0, 7.0, 0.0, 29.0)
    width = (8.0, 8.0, 8.0, 8.0, 12.0, 20.0)
    scaled = [(math.log2(x) - mid) / w for x, mid, w in zip(logs, middle, width, strict=True)]
    return np.array([1.0, *scaled, 0.5 * (problem.layout == "nn"), abs(scaled[4])])
