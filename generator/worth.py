"""What `matmul` is worth with a table: over torch, problem by problem, and over sets of problems.

Called by the benchmarks that publish figures. A problem with a row counts what its confirmation
measured, any other runs on torch and counts 1, for that is what a caller gets; nothing is measured
here, and what was not measured stays None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import Any

from hgemm_packs.generator import problems
from hgemm_packs.generator.gates.plausibility import compulsory_bytes
from hgemm_packs.generator.packer import SourceManifest
from hgemm_packs.manifest import Row
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
#: The most that L2 gave a kernel launched plainly, bytes/s (H200, `tried/placement.jsonl.gz`).
L2_RATE = 6.1e12
NO_PDL = "no measurement with programmatic dependent launch for these problems"
SOME_PDL = "only {} of {} problems launched so were measured with programmatic dependent launch"


@dataclass(frozen=True, slots=True)
class Worth:
    """`matmul` on one problem: how much faster than torch with hot and cold caches, and than the
    better of torch and tuned cuBLASLt with hot ones, where those were measured."""

    shape: Shape
    kernel: str | None
    hot: float = 1.0
    cold: float | None = 1.0
    vs_best: float | None = None


def plain(row: Row) -> Worth:
    """Of a row, launched as usual. Where torch runs, it may lose to a tuned cuBLASLt."""
    shape = (row.m, row.n, row.k)
    if row.kernel is None:
        best = min(row.hot.torch_us, row.hot.cublaslt_us)
        return Worth(shape, None, vs_best=best / row.hot.torch_us)
    return Worth(shape, row.kernel, row.hot.speedup, row.cold.speedup, row.hot.vs_best)


def paired(line: Mapping[str, Any], protocol: str, arm: str) -> float | None:
    """torch over an arm of one measurement of benchmarks/pdl.py: the median of the pairs. None
    where the protocol was not measured."""
    times = line.get(protocol)
    if not times:
        return None
    pairs = zip(times["torch"], times[arm], strict=True)
    return float(median(torch / ours for torch, ours in pairs))


def chained(row: Row, line: Mapping[str, Any]) -> Worth:
    """Of a row whose dependent kernel runs in a chain: torch over its dependent launch, both sides
    of one run, which must be another than chose that kernel. It has no cuBLASLt; that takes part
    through torch, as of the row. Calls of a hot chain that run at once share their operands, which
    may be read once for several; so none counts as faster than L2 gives all that it moves."""
    hot = paired(line, "hot", "pdl")
    if hot is None:
        raise ValueError(f"no hot samples of {line['problem']}")
    best = min(row.hot.torch_us, row.hot.cublaslt_us)
    shape = (row.m, row.n, row.k)
    from_l2_us = 1e6 * compulsory_bytes(Problem(*row.key)) / L2_RATE
    hot *= min(1.0, median(line["hot"]["pdl"]) / from_l2_us)
    cold = paired(line, "cold", "pdl")
    return Worth(shape, row.dependent, hot, cold, hot * best / row.hot.torch_us)


def in_set(rows: Iterable[Row], name: str, dtype: str, layout: str) -> list[Row]:
    """The rows of a published set."""
    wanted = shapes(name)
    kind = (DTYPES[dtype], layout)
    return [r for r in rows if (r.dtype, r.layout) == kind and (r.m, r.n, r.k) in wanted]


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
) -> dict[tuple[Any, ...], Worth]:
    """By M, N, K, layout and dtype: rows whose kernel for dependent launch was measured so, and
    computed there what it computes alone. Of several measurements the slowest counts."""
    rows = {(row[:5], name): row for row, name in behind(source)}
    found: dict[tuple[Any, ...], Worth] = {}
    for line in lines:
        row = rows.get((tuple(line["problem"][:5]), line["kernel"]))
        if row is not None and "error" not in line and not line.get("wrong"):
            each = chained(row, line)
            found[row[:5]] = min(found.get(row[:5], each), each, key=lambda w: w.hot)
    return found


def behind(source: SourceManifest) -> list[tuple[Row, str]]:
    """The rows with a kernel for dependent launch, and its name."""
    names = {kernel.id: kernel.name for kernel in source.kernels}
    return [(row, names[row.dependent]) for row in source.table if row.dependent is not None]


def unmeasured(
    source: SourceManifest, lines: Iterable[Mapping[str, Any]]
) -> list[tuple[Problem, str]]:
    """What benchmarks/pdl.py has yet to measure before every row has its figure in a chain."""
    seen = chains(source, lines)
    return [(Problem(*row.key), name) for row, name in behind(source) if row[:5] not in seen]


def complete(rows: Iterable[Row], measured: Iterable[tuple[Any, ...]]) -> bool:
    """Whether `rows` have kernels for dependent launch and `measured`, of `chains`, has all."""
    wanted = {row[:5] for row in rows if row.dependent is not None}
    return bool(wanted) and wanted <= set(measured)


def figures(source: SourceManifest, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Nested by list, type and layout: the figures of every set. `lines` are the measurements with
    programmatic dependent launch; those of a kernel that the row does not name so do not count."""
    measured = chains(source, lines)
    found: dict[str, Any] = {}
    for name, dtype, layout in SETS:
        rows = in_set(source.table, name, dtype, layout)
        if not rows:
            continue
        pdl = {row[:3]: measured[row[:5]] for row in rows if row[:5] in measured}
        every = shapes(name) if name == "grid" else set()
        of = sum(row.dependent is not None for row in rows)
        here = _set([plain(row) for row in rows], pdl, of, every, name)
        found.setdefault(name, {}).setdefault(dtype, {})[layout] = here
    return found


def _set(
    measured: Sequence[Worth], pdl: Mapping[Shape, Worth], of: int, every: set[Shape], name: str
) -> dict[str, Any]:
    """One set. What was never measured runs on torch. In a chain a problem without a kernel for
    dependent launch is worth what it is plainly. Unless all `of` that have one were measured in a
    chain, there are no figures of chains, but a reason."""
    unmeasured = every - {each.shape for each in measured}
    worths = [*measured, *(Worth(shape, None) for shape in sorted(unmeasured))]
    served = sum(each.kernel is not None for each in worths)
    regime = regime_of(name)
    order = (*problems.REGIMES, *problems.LAYER_REGIMES)
    members = [regime(each.shape) for each in worths]
    regimes = sorted(set(members), key=order.index)
    in_chain = [pdl.get(each.shape, each) for each in worths]
    reason = SOME_PDL.format(len(pdl), of) if pdl else NO_PDL
    return {
        "shapes": len(worths),
        "unmeasured": len(unmeasured),
        "kernel_share": round(served / len(worths), 4),
        "regime_shapes": {one: members.count(one) for one in regimes},
        "plain": _means(worths, members, regimes),
        "pdl": {**_means(in_chain, members, regimes), "measured": len(pdl), "of": of}
        if pdl and len(pdl) == of
        else {**dict.fromkeys(_means(worths, members, regimes)), "reason": reason},
    }


def _means(
    worths: Sequence[Worth], members: Sequence[str], regimes: Sequence[str]
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
