"""What lines of `generate measure public` say: figures of `matmul` as programs call it.

Called by that benchmark, by the table (what is slow there leaves its row) and by the pages. A line
counts for a row as long as it is of the row's kernels: the identities of both, which change with
cubin, launch record and the launcher's rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean, median
from typing import Any

from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.compile.pack_writer import SourceKernel, SourceManifest
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.families import family
from hgemm_packs.pack.identity import identity
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import REGIMES, Problem, regime

Line = Mapping[str, Any]
#: A problem and the identities of kernels.
Pair = tuple[tuple[Any, ...], tuple[str, ...]]

TORCH, OURS = "torch", "ours"
#: Graphs of a line: one call between torch's kernels; calls and sets of operands of a chain;
#: between other problems, of the regime and of all.
PLAIN = "plain"
LENGTHS = ((2, 1), (2, 2), (8, 1), (8, 2), (32, 1), (32, 2))
CHAINS = tuple(f"{length}x{sets}" for length, sets in LENGTHS)
MIXED = ("regime", "all")
#: Where nothing is launched dependent one chain says all, and for a long call a single one does.
SINGLE_CHAIN, LONG_FLOP = "8x1", 1e11
#: The chain that figures are of.
CHAIN = "32x2"
#: torch over ours that no graph may fall below.
LEAST = 0.99
#: What lies between the calls of a graph takes 19 us in the median, 24 at most. Where all blocks
#: took longer something else was at work, and what is left of the calls would flatter us.
MOST_GAP_US = 30.0


def over_torch(line: Line, name: str) -> float:
    """torch over ours of one graph; of single calls without what lies between them. A graph that a
    line has not is stood for by the one that it has of the kind."""
    instead = MIXED[0] if name in MIXED else SINGLE_CHAIN
    name = next(one for one in (name, instead, PLAIN) if one in line["us"])
    between = median(line["gap_us"]) if name == PLAIN else 0.0
    pairs = zip(line["us"][name][TORCH], line["us"][name][OURS], strict=True)
    return float(median((torch - between) / (ours - between) for torch, ours in pairs))


def calls(chain: str) -> int:
    """Of one of CHAINS, where a graph has no more than one: those of CHAIN."""
    return int(chain.split("x")[0])


def find_slowest(line: Line) -> float:
    """The least of a line's chains, single calls left out; 1 where it has none."""
    chains = (name for name in (*CHAINS, *MIXED) if name in line["us"])
    return min((over_torch(line, name) for name in chains), default=1.0)


def graphs(problem: Problem, dependent: bool) -> tuple[str, ...]:
    """The graphs that a line has: all where the row has a kernel for dependent launch."""
    if dependent:
        return (PLAIN, *CHAINS, *MIXED)
    long = 2.0 * problem.m * problem.n * problem.k >= LONG_FLOP
    return (PLAIN,) if long else (PLAIN, SINGLE_CHAIN, MIXED[0])


def kernel_identity(kernel: SourceKernel) -> str:
    """The identity of a kernel of a source manifest: its launch record follows from its genome."""
    fields = family(kernel.family).fields(kernel.genome)
    return identity(entry({**fields, "id": kernel.id, "name": kernel.name}))


def identities(source: SourceManifest) -> dict[str, str]:
    """Identity by id."""
    return {kernel.id: kernel_identity(kernel) for kernel in source.kernels}


def find_slow(lines: Iterable[Line]) -> tuple[set[Pair], set[Pair]]:
    """Problems and identities of what was wrong or below LEAST: row kernels, of single calls or
    where nothing is launched dependent; pairs of kernels, of chains."""
    own, both = set[Pair](), set[Pair]()
    for line in find_single_lines(lines):
        problem, kernels = tuple(line["problem"]), tuple(line["identities"])
        alone = min(over_torch(line, PLAIN), find_slowest(line) if len(kernels) == 1 else 1.0)
        if line["wrong"] or alone < LEAST:
            own.add((problem, kernels[:1]))
        if line["wrong"] or find_slowest(line) < LEAST:
            both.add((problem, kernels))
    return own, both


def find_single_lines(lines: Iterable[Line]) -> list[Line]:
    """The lines of single problems that have figures; those that were disturbed have none."""
    return [
        line
        for line in lines
        if "problem" in line and "error" not in line and min(line["gap_us"]) <= MOST_GAP_US
    ]


def drop_slow_rows(
    source: SourceManifest, lines: Sequence[Line], unseen: bool = False
) -> SourceManifest:
    """`source` without the kernels that the lines show to be slow or wrong. A row goes to torch if
    its own kernel was. A row loses its dependent kernel if one of its chains was, or if nobody
    measured its chains; with `unseen` it keeps a kernel without measured chains. Without lines
    every row stays."""
    if not lines:
        return source
    known = identities(source)
    own, both = find_slow(lines)
    seen = {
        (tuple(line["problem"]), tuple(line["identities"])) for line in find_single_lines(lines)
    }

    def drop_slow_kernel(row: Row) -> Row:
        if row.kernel is None:
            return row
        if (row[:5], (known[row.kernel],)) in own:
            return row._replace(kernel=None, dependent=None)
        if row.dependent is None:
            return row
        pair = (row[:5], (known[row.kernel], known[row.dependent]))
        good = pair not in both and (unseen or pair in seen)
        return row if good else row._replace(dependent=None)

    return replace_rows(source, [drop_slow_kernel(row) for row in source.table])


def replace_rows(source: SourceManifest, rows: Sequence[Row]) -> SourceManifest:
    """`source` with these rows and the kernels that they name."""
    used = {id_ for row in rows for id_ in (row.kernel, row.dependent)}
    kernels = tuple(kernel for kernel in source.kernels if kernel.id in used)
    return replace(source, kernels=kernels, table=tuple(rows))


def select_products(rows: Iterable[Row]) -> list[Row]:
    """The rows that have no epilogue: what lines are about, which name a problem by its sizes,
    layout and type."""
    return [row for row in rows if row.epilogue == "none"]


def of_rows(source: SourceManifest, lines: Iterable[Line]) -> dict[tuple[Any, ...], Line]:
    """By M, N, K, layout and dtype: the last line of the row's kernels, as rows have them now."""
    known = identities(source)
    wanted = {
        row[:5]: [known[id_] for id_ in (row.kernel, row.dependent) if id_ is not None]
        for row in select_products(source.table)
        if row.kernel is not None
    }
    return {
        tuple(line["problem"]): line
        for line in find_single_lines(lines)
        if line["identities"] == wanted.get(tuple(line["problem"]))
    }


def summary(source: SourceManifest, lines: Sequence[Line]) -> dict[str, Any]:
    """What public.json holds: figures over rows of the table whose very kernels were measured."""
    found = of_rows(source, lines)
    families = {kernel.name: kernel for kernel in source.kernels}
    groups: dict[str, dict[str, list[Line]]] = {}
    by_family: dict[str, list[Line]] = {}
    grid = problems.grid_shapes()
    for (m, n, k, layout, dtype), line in found.items():
        name = regime(m, n, k) if (m, n, k) in grid else problems.layer_regime(m)
        for one in (name, *(["grid"] if (m, n, k) in grid else [])):
            groups.setdefault(f"{dtype} {layout}", {}).setdefault(one, []).append(line)
        if line["dependent"] is not None:
            by_family.setdefault(_sort(families[line["dependent"]]), []).append(line)
    order = ("grid", *REGIMES, *problems.LAYER_REGIMES)
    every = list(found.values())
    return {
        "public": {
            "rows": len(every),
            "dependent_rows": sum(line["dependent"] is not None for line in every),
            "below_099": sum(find_least(line) < LEAST for line in every),
            "wrong": sum(bool(line["wrong"]) for line in every),
            "fallbacks": sum(line["fallbacks"] for line in every),
            "gmean": _mean(every, CHAIN),
            "gmean_plain": _mean(every, PLAIN),
            "worst": round(min(map(find_least, every), default=1.0), 4),
            "mixed_gmean": {
                kind: {one: _mean(each[one], "regime") for one in order if one in each}
                for kind, each in sorted(groups.items())
            },
        },
        "groups": {
            kind: {one: _figures(each[one]) for one in order if one in each}
            for kind, each in sorted(groups.items())
        },
        "families": {sort: _figures(each) for sort, each in sorted(by_family.items())},
        "sixteen": _sixteen(source, lines),
    }


def _sort(kernel: SourceKernel) -> str:
    """The family of a dependent kernel; + reads ahead, ! triggers early."""
    ahead, early = (kernel.genome.get(gene) for gene in ("reads_ahead", "triggers_early"))
    return kernel.family.removeprefix("sm90_") + "+" * bool(ahead) + "!" * bool(early)


def find_least(line: Line) -> float:
    """The least of a line's chains and single calls."""
    return min(find_slowest(line), over_torch(line, PLAIN))


def _mean(lines: Iterable[Line], name: str) -> float:
    return round(geometric_mean([over_torch(line, name) for line in lines]), 4)


def _figures(lines: Sequence[Line]) -> dict[str, Any]:
    return {
        "rows": len(lines),
        "plain": _mean(lines, PLAIN),
        "chain": _mean(lines, CHAIN),
        "pair": _mean(lines, "2x2"),
        "mixed": _mean(lines, "regime"),
        "mixed_all": _mean(lines, "all"),
        "worst": round(min(map(find_least, lines)), 4),
    }


def _sixteen(source: SourceManifest, lines: Iterable[Line]) -> dict[str, Any]:
    """By group: chains of sixteen problems, of the runs that measured most of today's rows."""
    found: dict[str, list[float]] = {}
    for line in lines:
        if "group" in line and "error" not in line:
            samples = line["us"]["chain"]
            pairs = zip(samples[TORCH], samples[OURS], strict=True)
            name = " ".join(line["group"][:3])
            found.setdefault(name, []).append(median(t / o for t, o in pairs))
    return {
        name: {
            "chains": len(each),
            "gmean": round(geometric_mean(each), 4),
            "worst": round(min(each), 4),
        }
        for name, each in sorted(found.items())
    }
