"""Which rows of a table are launched with programmatic dependent launch, behind another kernel of
ours in a CUDA graph: those where it measured faster than the same kernel launched plainly, right,
and no slower than torch. And which kernel a row names, where benchmarks/pdl.py measured several.

That a row decides and not its kernel comes from benchmarks/pdl.py over a whole table: one kernel
gains on some problems and loses on others. Called by the CLI when it writes a table. It measures
nothing, and what chose is no measure of what the choice is worth: `worth` has other lines for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean, median
from typing import Any

from hgemm_packs.generator import table, worth
from hgemm_packs.generator.findings import Findings
from hgemm_packs.generator.packer import SourceManifest
from hgemm_packs.generator.table import Compile, Contender, Listed
from hgemm_packs.problem import Problem

#: torch over ours that no launch may fall below: what is promised of every problem.
LEAST = 0.99
#: Dependencies of the capture in `devices.protocols` that must be programmatic.
EDGES = 2


def _ratio(times: Mapping[str, list[float]], arm: str) -> float:
    """Of another arm's time to that of the dependent launch: the median of the pairs."""
    return median(other / pdl for other, pdl in zip(times[arm], times["pdl"], strict=True))


def gain(line: Mapping[str, Any]) -> float:
    """What one measurement says that dependent launch gains, in the geometric mean of hot and cold
    (where that was measured): 1 unless values and edges are as they must be, torch is level at
    least, and there is a gain."""
    if line.get("error") or line["wrong"] or line["edges"]["programmatic"] != EDGES:
        return 1.0
    measured = [line[protocol] for protocol in ("hot", "cold") if line.get(protocol)]
    if not measured or min(_ratio(times, "torch") for times in measured) < LEAST:
        return 1.0
    return max(1.0, geometric_mean([_ratio(times, "plain") for times in measured]))


def faster(line: Mapping[str, Any]) -> bool:
    """Whether one measurement speaks for dependent launch."""
    return gain(line) > 1.0


def ranked(
    listed: Listed, lines: Iterable[Mapping[str, Any]], names: Mapping[str, str]
) -> dict[Problem, list[Contender]]:
    """`listed` with the geometric mean of two gains over torch in place of the plain one, best
    first, for problems with lines: launched plainly, and as its row would be launched, which of
    several measurements is the one that gained least. `names` are those of kernels by id. A kernel
    without a line would be launched plainly."""
    least: dict[tuple[Any, ...], dict[str, float]] = {}
    for line in lines:
        mine = least.setdefault(tuple(line["problem"][:5]), {})
        mine[line["kernel"]] = min(mine.get(line["kernel"], math.inf), gain(line))
    return {
        problem: _by_both(each, least.get(problem.key[:5], {}), names)
        for problem, each in listed.items()
    }


def candidates(
    found: Findings, compile: Compile, near: float
) -> tuple[SourceManifest, list[tuple[Problem, str]]]:
    """What `ranked` may choose among: the source manifest of all confirmed wins whose gain is no
    more than `near` below the best of their problem, as far as `compile` still makes them, and the
    problems and names of kernels that benchmarks/pdl.py is to measure. Raises ValueError where
    there is none."""

    def close(_: Problem, proven: list[Contender]) -> list[Contender]:
        return [c for c in proven if c.gain * (1.0 + near) >= proven[0].gain]

    document, left = table.candidates(found, compile, close)
    pairs = [
        (problem, str(found.kernels[c.kernel]["name"]))
        for problem, each in left.items()
        for c in each
    ]
    return document, pairs


def _by_both(
    each: Sequence[Contender], gains: Mapping[str, float], names: Mapping[str, str]
) -> list[Contender]:
    if not gains:
        return list(each)
    both = [replace(c, gain=c.gain * math.sqrt(gains.get(names[c.kernel], 1.0))) for c in each]
    return sorted(both, key=lambda c: (-c.gain, c.kernel))


def launched(source: SourceManifest, lines: Iterable[Mapping[str, Any]]) -> SourceManifest:
    """`source` with those rows marked and no others: measured with their own kernel, and every time
    that they were. Raises KeyError for lines that are not of benchmarks/pdl.py."""
    names = {kernel.id: kernel.name for kernel in source.kernels}
    verdicts: dict[tuple[Any, ...], bool] = {}
    for line in lines:
        key = (*line["problem"][:5], line["kernel"])
        verdicts[key] = verdicts.get(key, True) and faster(line)
    rows = (
        row._replace(
            pdl=row.kernel is not None and verdicts.get((*row[:5], names[row.kernel]), False)
        )
        for row in source.table
    )
    return replace(source, table=tuple(rows))


def level(source: SourceManifest, lines: Iterable[Mapping[str, Any]]) -> SourceManifest:
    """`source`, its rows marked, without the kernels of rows that any measurement had slower than
    LEAST of torch in a way they are launched, plainly or where marked also dependent: torch runs
    those problems, for a confirmation is one run and no call may be slower. Lines of other kernels,
    and without times, say nothing."""
    names = {kernel.id: kernel.name for kernel in source.kernels}
    rows = {(*row[:5], names[row.kernel]): row for row in source.table if row.kernel is not None}
    slow = set()
    for line in lines:
        row = rows.get((*line["problem"][:5], line["kernel"]))
        if row is not None and line.get("hot"):
            seen = [worth.chained(way, line) for way in {row, row._replace(pdl=False)}]
            if min(min(each.hot, each.cold or each.hot) for each in seen) < LEAST:
                slow.add(row.key)
    kept = tuple(
        row._replace(kernel=None, pdl=False) if row.key in slow else row for row in source.table
    )
    used = {row.kernel for row in kept}
    kernels = tuple(kernel for kernel in source.kernels if kernel.id in used)
    return replace(source, kernels=kernels, table=kept)
