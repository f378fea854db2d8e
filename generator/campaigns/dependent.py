"""Kernels of a pack with and without programmatic dependent launch, against torch, hot and cold.

Called by `generate measure dependent`, on every GPU here; goes on where an earlier run stopped.
Where the selection names no kernels each problem has the kernel that its row in the table names for
dependent launch; problems without one are left out. In lines "plain" and "pdl" are one cubin,
launched back to back in one CUDA graph: a chain of our own kernels, which is where an early start
can be had. The three arms are interleaved block by block on the same buffers. After the last block
the timed graphs are replayed once more and "pdl" must give what "plain" gives in every bit, as it
must in a chain of layers with torch's elementwise kernels between; what does not is listed in
"wrong". "edges" counts the dependencies of a captured arm, arm, arm, elementwise: two of the three
must be programmatic.

Lines may choose the kernel that a row names for dependent launch (`generate table --dependent`), or
be what figures are made of (`--published`), never both. A kernel that any line has below 0.99 of
torch, as a row launches it, leaves that row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import (
    CampaignCounts,
    CampaignOptions,
    Line,
    ProblemFilter,
)
from hgemm_packs.generator.campaigns.tasks import dependent_tasks
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.tables.dependent import EDGES

if TYPE_CHECKING:
    from hgemm_packs.generator.devices.protocols import ProtocolSettings

COLUMNS = tuple(f"{arm}_{protocol}" for protocol in ("hot", "cold") for arm in ("plain", "pdl"))


def speedups(line: Line) -> dict[str, float]:
    """torch over each arm, by medians: "plain_hot" and so on."""
    return {
        f"{arm}_{protocol}": median(line[protocol]["torch"]) / median(line[protocol][arm])
        for protocol in ("hot", "cold")
        for arm in ("plain", "pdl")
    }


def summary(lines: Sequence[Line]) -> dict[str, Any]:
    """Geometric means over torch by layout, dtype and regime, of problems and not of kernels: where
    a problem has lines of several, each figure is its best one's. Lines with wrong values do not
    count, but are named."""
    best: dict[tuple[Any, ...], dict[str, float]] = {}
    for line in lines:
        if line["wrong"]:
            continue
        mine = best.setdefault(tuple(line["problem"]), dict.fromkeys(COLUMNS, 0.0))
        for name, value in speedups(line).items():
            mine[name] = max(mine[name], value)
    groups: dict[str, list[dict[str, float]]] = {}
    for (m, n, k, layout, dtype), figures in best.items():
        for regime in (problems.regime(m, n, k), "all"):
            groups.setdefault(f"{dtype} {layout} {regime}", []).append(figures)
    return {
        "problems": len(best),
        "groups": {
            name: {"problems": len(each)}
            | {column: round(geometric_mean([f[column] for f in each]), 4) for column in COLUMNS}
            for name, each in sorted(groups.items())
        },
        "wrong": [
            [*line["problem"], line["kernel"], *line["wrong"]] for line in lines if line["wrong"]
        ],
        "not_programmatic": sorted(
            {line["kernel"] for line in lines if line["edges"]["programmatic"] != EDGES}
        ),
    }


def table(figures: dict[str, Any]) -> Table:
    made = Table("problems of", "count", *COLUMNS, title="torch over ours, geometric means")
    for name, each in figures["groups"].items():
        made.add_row(name, str(each["problems"]), *(f"{each[column]:.3f}" for column in COLUMNS))
    return made


def measure(
    plan: CampaignOptions, pack: Packed, wanted: ProblemFilter, settings: ProtocolSettings
) -> CampaignCounts:
    """Measure the problems of a selection. Raises PackError, ValueError, and what `campaign.run`
    does."""
    from hgemm_packs.generator.devices import protocols

    header = {
        "benchmark": "pdl",
        "protocol": "paired CUDA-graph replays of back-to-back calls, torch, plain and pdl in "
        "random order each block, N(0,1), hot: one buffer set, two in turn where L2 does not hold "
        "both, cold: sets over 3x L2 in turn",
        "settings": asdict(settings),
    }
    tasks = dependent_tasks(
        pack.choose_kernels(campaign.select(pack, wanted), pack.dependent), pack.kernel
    )
    make = partial(protocols.make, settings=settings)
    return campaign.measure(plan, pack, tasks, make, header)
