"""Which rows of a table are launched with programmatic dependent launch: those where it measured
faster than the same kernel launched plainly, right, and no slower than torch.

That a row decides and not its kernel comes from benchmarks/pdl.py over a whole table: one kernel
gains on some problems and loses on others. Called by the CLI when it writes a table. It measures
nothing, and what chose is no measure of what the choice is worth: `worth` has other lines for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import geometric_mean, median
from typing import Any

from hgemm_packs.generator.packer import SourceManifest

#: torch over ours that no launch may fall below: what is promised of every problem.
LEAST = 0.99
#: Dependencies of the capture in `measure.agreement.edges` that must be programmatic.
EDGES = 2


def _ratio(times: Mapping[str, list[float]], arm: str) -> float:
    """Of another arm's time to that of the dependent launch: the median of the pairs."""
    return median(other / pdl for other, pdl in zip(times[arm], times["pdl"], strict=True))


def faster(line: Mapping[str, Any]) -> bool:
    """Whether one measurement speaks for dependent launch: values and edges as they must be, a gain
    in the geometric mean of hot and cold (where that was measured), and torch level at least."""
    if line.get("error") or line["wrong"] or line["edges"]["programmatic"] != EDGES:
        return False
    measured = [line[protocol] for protocol in ("hot", "cold") if line.get(protocol)]
    if not measured or min(_ratio(times, "torch") for times in measured) < LEAST:
        return False
    return geometric_mean([_ratio(times, "plain") for times in measured]) > 1.0


def launched(source: SourceManifest, lines: Iterable[Mapping[str, Any]]) -> SourceManifest:
    """`source` with those rows marked and no others: measured with their own kernel, and every time
    that they were. Raises KeyError for lines that are not of benchmarks/pdl.py."""
    names = {kernel.id: kernel.name for kernel in source.kernels}
    verdicts: dict[tuple[Any, ...], bool] = {}
    for line in lines:
        key = (*line["problem"][:5], line["kernel"])
        verdicts[key] = verdicts.get(key, True) and faster(line)
    table = (
        row._replace(
            pdl=row.kernel is not None and verdicts.get((*row[:5], names[row.kernel]), False)
        )
        for row in source.table
    )
    return replace(source, table=tuple(table))
