"""The second kernel of a row: the one that is launched with programmatic dependent launch, behind
another kernel of ours in a CUDA graph. Of the kernels that passed the numeric gate, and launched
plainly are not slower than torch, it is the one that measured fastest so, right, no slower than
torch, and faster than the row's own kernel launched plainly.

That a row decides and not a kernel comes from `generate measure dependent` over whole tables: one
kernel gains on some problems and loses on others, and what is best launched plainly need not be
best dependent. Called by the CLI when it writes a table. It measures nothing, and what chose is no
measure of what the choice is worth: `speedups` has other lines for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Any, TypeVar

from hgemm_packs.generator.compile.pack_writer import SourceManifest
from hgemm_packs.generator.core.spec import PROTOCOLS
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.tables import judge, speedups, table
from hgemm_packs.generator.tables.judge import Contender, Listed
from hgemm_packs.generator.tables.prune import KEPT_SHARE, prune
from hgemm_packs.generator.tables.table import Usable
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem

#: torch over ours that no launch may fall below: what is promised of every problem.
LEAST = 0.99
#: Dependencies of the capture in `devices.protocols` that must be programmatic.
EDGES = 2

#: What a measurement is about: M, N, K, layout and dtype, and the name of a kernel.
Pair = tuple[tuple[Any, ...], str]
Line = TypeVar("Line", bound=Mapping[str, Any])


def pair(line: Mapping[str, Any]) -> Pair:
    return tuple(line["problem"][:5]), line["kernel"]


def over_torch(line: Mapping[str, Any], arm: str) -> list[float]:
    """torch over an arm, hot and cold, as far as they were measured."""
    each = (speedups.paired_speedup(line, protocol, arm) for protocol in PROTOCOLS)
    return [one for one in each if one is not None]


def speedup(line: Mapping[str, Any]) -> float:
    """torch over dependent launch by one measurement, in the geometric mean of hot and cold (where
    that was measured): 0 unless values and edges are as they must be and torch is level at least.
    Raises KeyError for a line that is not of `generate measure dependent`."""
    if line.get("error") or line["wrong"] or line["edges"]["programmatic"] < EDGES:
        return 0.0
    each = over_torch(line, "pdl")
    return geometric_mean(each) if each and min(each) >= LEAST else 0.0


def keep_remeasured(lines: Iterable[Line], second: Iterable[Mapping[str, Any]]) -> list[Line]:
    """The `lines` about which the `second` measurement says something too: what is chosen among
    them needs no other run to be published."""
    pairs = {pair(line) for line in second}
    return [line for line in lines if pair(line) in pairs]


def read_speedups(lines: Iterable[Mapping[str, Any]]) -> dict[Pair, float]:
    """`speedup` of every kernel on every problem; of several measurements the least."""
    return _least(lines, speedup)


def _least(
    lines: Iterable[Mapping[str, Any]], of: Callable[[Mapping[str, Any]], float]
) -> dict[Pair, float]:
    least: dict[Pair, float] = {}
    for line in lines:
        least[pair(line)] = min(least.get(pair(line), math.inf), of(line))
    return least


def _rate_plainly(line: Mapping[str, Any]) -> float:
    """torch over the kernel of a line launched plainly, hot or cold, whichever is less."""
    return 0.0 if line.get("error") else min(over_torch(line, "plain"), default=0.0)


def choose_dependent_kernels(
    source: SourceManifest,
    found: Findings,
    listed: Listed,
    lines: Sequence[Mapping[str, Any]],
    usable: Usable,
    second: Sequence[Mapping[str, Any]] = (),
) -> tuple[SourceManifest, list[str]]:
    """`source` with the kernel that each row with a kernel has for dependent launches: of the
    right ones that are level alone the fastest by `lines` that is faster than the row's own
    launched plainly, and `usable`; none where there is none. Which are level alone their
    confirmations in `listed` say, and of those that have none the `lines` and the `second`
    measurement (see `_level`). Besides the kernels that are there come as many as keep
    prune.KEPT_SHARE of the log gain over the rows' own. And the names of those that are not
    usable."""
    gains = read_speedups(lines)
    level = _find_level(found, listed, _least([*lines, *second], _rate_plainly))
    better = {
        row.key: _find_better(row, level.get(row.key, set()), gains, found)
        for row in source.table
        if row.kernel is not None
    }
    there = {kernel.id for kernel in source.kernels}
    built, gone = set(there), set[str]()
    while True:
        left = {
            key: {id_: over for id_, over in each.items() if id_ not in gone}
            for key, each in better.items()
        }
        kept = there.union(prune(left, KEPT_SHARE).kernels)
        inside = {key: [id_ for id_ in each if id_ in kept] for key, each in left.items()}
        best = {key: each[0] for key, each in inside.items() if each}
        fresh = {id_: found.kernels[id_] for id_ in best.values() if id_ not in built}
        if not fresh:
            break
        built |= usable(fresh)
        gone |= fresh.keys() - built
    more = [table.source_kernel(found, id_) for id_ in set(best.values()) - there]
    document = replace(
        source,
        kernels=tuple(sorted([*source.kernels, *more], key=lambda kernel: kernel.id)),
        table=tuple(row._replace(dependent=best.get(row.key)) for row in source.table),
    )
    return document, sorted(str(found.kernels[id_]["name"]) for id_ in gone)


def _find_better(
    row: Row, level: Iterable[str], gains: Mapping[Pair, float], found: Findings
) -> dict[str, float]:
    """Kernels that are faster dependent than the row's own plainly, best first, and by how much: of
    those that are `level` alone."""
    own = math.sqrt(row.hot.speedup * row.cold.speedup)
    over = {k: gains.get((row[:5], str(found.kernels[k]["name"])), 0.0) / own for k in level}
    return {id_: over[id_] for id_ in sorted(over, key=lambda i: (-over[i], i)) if over[id_] > 1.0}


def _find_level(
    found: Findings, listed: Listed, plainly: Mapping[Pair, float]
) -> dict[tuple[Any, ...], set[str]]:
    """By problem, the kernels that are level alone: by their confirmation, if they have one there
    (`level_alone`), else where no measurement of dependent launch had torch ahead of their plain
    arm (`plainly`) and they have passed the numeric gate and failed nowhere on the problem. A
    median of a few blocks and no lower bound: so more is asked of it."""
    found_level: dict[tuple[Any, ...], set[str]] = {}
    confirmed = set()
    for problem, each in listed.items():
        for c in each:
            if c.row is not None:
                confirmed.add((problem, c.kernel))
                if is_level_alone(c, found):
                    found_level.setdefault(problem.key, set()).add(c.kernel)
    out = confirmed | judge.failures(found)
    ids: dict[str, list[str]] = {}
    for id_ in found.proofs.keys() & found.kernels.keys() - found.refused.keys():
        ids.setdefault(str(found.kernels[id_]["name"]), []).append(id_)
    for (key, name), over in plainly.items():
        for id_ in ids.get(name, ()) if over >= 1.0 else ():
            problem = Problem(*key)
            if (problem, id_) not in out:
                found_level.setdefault(problem.key, set()).add(id_)
    return found_level


def is_level_alone(c: Contender, found: Findings) -> bool:
    """Whether the kernel is right, and launched plainly no slower than torch: a dependent launch
    may find nothing to overlap with, as where the grid ahead has taken all SMs."""
    bounds = [c.row.hot.lcb, c.row.cold.lcb] if c.row else [0.0]
    return c.kernel in found.proofs and min(bounds) >= LEAST


def candidates(
    found: Findings, usable: Usable, near: float
) -> tuple[SourceManifest, list[tuple[Problem, str]]]:
    """What `launched` may choose among where a kernel has won: the source manifest of the wins and
    of what else is level alone, if the gain is no more than `near` below the best win of the
    problem, as far as they are `usable`, and the problems and names of kernels that
    `generate measure dependent` is to measure. Raises ValueError where there is none."""

    def close(_: Problem, each: list[Contender]) -> list[Contender]:
        wins = [c for c in each if c.proven]
        others = [c for c in each if not c.proven and is_level_alone(c, found)]
        return [c for c in (*wins, *others) if wins and c.gain * (1.0 + near) >= wins[0].gain]

    document, left = table.candidates(found, usable, close)
    pairs = [
        (problem, str(found.kernels[c.kernel]["name"]))
        for problem, each in left.items()
        for c in each
    ]
    return document, pairs


def drop_slow_rows(source: SourceManifest, lines: Iterable[Mapping[str, Any]]) -> SourceManifest:
    """`source` without what any measurement had slower than LEAST of torch in the way that a row
    launches it, for a confirmation is one run and no call may be slower. A row whose own kernel was
    so plainly goes to torch; one whose dependent kernel was so dependently is left with its own.
    Lines of other kernels, and without times, say nothing. Kernels that no row names any more
    leave."""
    slow: dict[str, set[Pair]] = {"plain": set(), "pdl": set()}
    for line in lines:
        for arm, pairs in slow.items():
            if min(over_torch(line, arm), default=LEAST) < LEAST:
                pairs.add(pair(line))
    names = {kernel.id: kernel.name for kernel in source.kernels}

    def drop_slow_kernel(row: Row) -> Row:
        if row.kernel is not None and (row[:5], names[row.kernel]) in slow["plain"]:
            return row._replace(kernel=None, dependent=None)
        if row.dependent is not None and (row[:5], names[row.dependent]) in slow["pdl"]:
            return row._replace(dependent=None)
        return row

    rows = tuple(map(drop_slow_kernel, source.table))
    used = {id_ for row in rows for id_ in (row.kernel, row.dependent)}
    kernels = tuple(kernel for kernel in source.kernels if kernel.id in used)
    return replace(source, kernels=kernels, table=rows)
