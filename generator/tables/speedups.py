"""What `matmul` is worth with a table: over torch, problem by problem, and over sets of problems.

Called by the benchmarks that publish figures. A problem with a kernel counts what calls of `matmul`
measured (`published`), any other runs on torch and counts 1, for that is what a caller gets.
Nothing is measured here, and what was not measured stays None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.gates.plausibility import compulsory_bytes
from hgemm_packs.generator.tables import published
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem

Shape = tuple[int, int, int]

#: Types as published -> as problems have them.
DTYPES = {"fp16": "f16", "bf16": "bf16"}
#: The published sets: list of problems, type, layout.
SETS = (
    ("grid", "fp16", "nn"),
    ("grid", "fp16", "nt"),
    ("grid", "bf16", "nn"),
    ("grid", "bf16", "nt"),
    ("llm", "fp16", "nn"),
    ("llm", "fp16", "nt"),
    ("llm", "bf16", "nn"),
    ("llm", "bf16", "nt"),
)
#: The most that L2 gave a kernel launched plainly, bytes/s (H200, `tried/placement.jsonl.zip`).
L2_RATE = 6.1e12
#: Published columns -> the graph of a line that they are of: alone between torch's kernels, between
#: other products, in a chain of its own.
COLUMNS = {"plain": published.PLAIN, "mixed": published.MIXED[0], "chain": published.CHAIN}


@dataclass(frozen=True, slots=True)
class RowSpeedup:
    """`matmul` on one problem: how much faster than torch with hot and cold caches, and than the
    better of torch and tuned cuBLASLt with hot ones, where those were measured."""

    shape: Shape
    kernel: str | None
    hot: float = 1.0
    cold: float | None = 1.0
    vs_best: float | None = None


def plain(row: Row) -> RowSpeedup:
    """Of a row, launched as usual. Where torch runs, it may lose to a tuned cuBLASLt."""
    shape = (row.m, row.n, row.k)
    if row.kernel is None:
        best = min(row.hot.torch_us, row.hot.cublaslt_us)
        return RowSpeedup(shape, None, vs_best=best / row.hot.torch_us)
    return RowSpeedup(shape, row.kernel, row.hot.speedup, row.cold.speedup, row.hot.vs_best)


def paired_speedup(line: Mapping[str, Any], protocol: str, arm: str) -> float | None:
    """torch over an arm of one line of `generate measure dependent`: the median of the pairs. None
    where the protocol was not measured."""
    times = line.get(protocol)
    if not times:
        return None
    pairs = zip(times["torch"], times[arm], strict=True)
    return float(median(torch / ours for torch, ours in pairs))


def read_public_speedup(row: Row, line: Mapping[str, Any], graph: str) -> RowSpeedup:
    """Of a row, by calls of `matmul` in one graph of a line of `generate measure public`; its
    cuBLASLt and its cold figure are the row's. Calls of a chain that run at once share their
    operands, which may be read once for several; so none counts as faster than L2 gives all that it
    moves."""
    hot = published.over_torch(line, graph)
    if graph in published.CHAINS and graph in line["us"]:
        us = median(line["us"][graph][published.OURS]) / published.calls(graph)
        hot *= min(1.0, us * L2_RATE / (1e6 * compulsory_bytes(Problem(*row.key))))
    best = min(row.hot.torch_us, row.hot.cublaslt_us) / row.hot.torch_us
    cold = row.cold.speedup if graph == published.PLAIN else None
    return RowSpeedup((row.m, row.n, row.k), row.kernel, hot, cold, hot * best)


def select_set_rows(rows: Iterable[Row], name: str, dtype: str, layout: str) -> list[Row]:
    """The rows of a published set, products alone."""
    wanted = shapes(name)
    kind = (DTYPES[dtype], layout)
    products = published.select_products(rows)
    return [r for r in products if (r.dtype, r.layout) == kind and (r.m, r.n, r.k) in wanted]


def shapes(name: str) -> set[Shape]:
    """(M, N, K) of a committed list."""
    return {(p.m, p.n, p.k) for p in problems.read(name)}


def regime_of(name: str) -> Callable[[Shape], str]:
    """How a list's shapes are divided: the grid's regimes, or layers by their rows."""
    if name == "llm":
        return lambda shape: problems.layer_regime(shape[0])
    return lambda shape: problems.regime(*shape)


def chains(
    source: SourceManifest, lines: Iterable[Mapping[str, Any]]
) -> dict[tuple[Any, ...], RowSpeedup]:
    """By M, N, K, layout and dtype: rows with a kernel for dependent launch, in chains of their
    own."""
    products = published.select_products(source.table)
    rows = {row[:5]: row for row in products if row.dependent is not None}
    found = published.of_rows(source, lines)
    return {
        key: read_public_speedup(rows[key], line, published.CHAIN)
        for key, line in found.items()
        if key in rows
    }


def find_unmeasured(
    source: SourceManifest, lines: Iterable[Mapping[str, Any]]
) -> list[tuple[Problem, str]]:
    """Rows with a kernel that `generate measure public` has yet to measure, and the name of the
    kernel: that for dependent launch, where there is one."""
    names = {kernel.id: kernel.name for kernel in source.kernels}
    found = published.of_rows(source, lines)
    return [
        (Problem(*row.key), names[row.dependent or row.kernel])
        for row in published.select_products(source.table)
        if row.kernel is not None and row[:5] not in found
    ]


def figures(source: SourceManifest, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Nested by list, type and layout: the figures of every set. `lines` are of
    `generate measure public`; those of other kernels than the row's do not count."""
    measured = published.of_rows(source, lines)
    found: dict[str, Any] = {}
    for name, dtype, layout in SETS:
        rows = select_set_rows(source.table, name, dtype, layout)
        if rows:
            every = shapes(name) if name == "grid" else set()
            here = _set(rows, measured, every, name)
            found.setdefault(name, {}).setdefault(dtype, {})[layout] = here
    return found


def _set(
    rows: Sequence[Row],
    measured: Mapping[tuple[Any, ...], Mapping[str, Any]],
    every: set[Shape],
    name: str,
) -> dict[str, Any]:
    """One set. What was never measured runs on torch. A row whose kernel was not called in public
    yet counts what its confirmation says, in each column; `called` of `served` were."""
    missing = [RowSpeedup(shape, None) for shape in sorted(every - {row[:3] for row in rows})]
    members = [
        *map(regime_of(name), [row[:3] for row in rows]),
        *map(regime_of(name), _of(missing)),
    ]
    order = (*problems.REGIMES, *problems.LAYER_REGIMES)
    regimes = sorted(set(members), key=order.index)
    served = [row for row in rows if row.kernel is not None]

    def column(graph: str) -> list[RowSpeedup]:
        return [
            read_public_speedup(row, measured[row[:5]], graph)
            if row[:5] in measured
            else plain(row)
            for row in rows
        ] + missing

    return {
        "shapes": len(members),
        "unmeasured": len(missing),
        "kernel_share": round(len(served) / len(members), 4),
        "served": len(served),
        "called": sum(row[:5] in measured for row in served),
        "regime_shapes": {one: members.count(one) for one in regimes},
        **{one: _means(column(graph), members, regimes) for one, graph in COLUMNS.items()},
    }


def _of(worths: Iterable[RowSpeedup]) -> list[Shape]:
    return [each.shape for each in worths]


def _means(
    worths: Sequence[RowSpeedup], members: Sequence[str], regimes: Sequence[str]
) -> dict[str, Any]:
    def mean(values: Iterable[float | None]) -> float | None:
        known = list(values)
        if not known or None in known:
            return None
        return round(geometric_mean([value for value in known if value is not None]), 4)

    pairs = list(zip(worths, members, strict=True))
    return {
        "gmean_vs_torch_hot": mean(each.hot for each in worths),
        "gmean_vs_torch_cold": mean(each.cold for each in worths),
        "gmean_vs_best_hot": mean(e.vs_best for e in worths if e.vs_best is not None),
        "worst_vs_torch_hot": round(min(each.hot for each in worths), 4),
        "worst_vs_torch_cold": round(
            min((each.cold for each in worths if each.cold is not None), default=1.0), 4
        ),
        "regimes": {one: mean(e.hot for e, member in pairs if member == one) for one in regimes},
    }
