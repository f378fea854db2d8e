"""Large problems for seconds on end: time, watts and clock, and which kernel that would choose.

Called by `generate measure sustained`, on every GPU here; goes on where an earlier run stopped.
`generate contenders` makes the pack, `generate table --sustained` chooses by the lines. The figures
of lines on file are computed here, too: `benchmarks.publish.protocols` writes them down.

From 1e11 flop on the card runs at its power limit. Arms: torch, the best algorithm of cuBLASLt, and
kernels of the pack. With an export those are the problem's confirmed wins, for a table may name no
others; else the table's kernel, where there is one, and the fastest others that admit the problem
(or those that are named), by one call each. First all arms are timed in bursts as a confirmation
times them, then each runs alone for `seconds`, in random order; the second half of that counts.
Watts are the slope of NVML's energy counter of the whole card.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any

from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import (
    CampaignCounts,
    CampaignOptions,
    Line,
    ProblemFilter,
    Task,
)
from hgemm_packs.generator.campaigns.tasks import sustained_tasks
from hgemm_packs.generator.compile.pack_kernels import Asked, Packed
from hgemm_packs.generator.store import export
from hgemm_packs.generator.tables import sustained
from hgemm_packs.generator.tables.sustained import LEAST_FLOP, TIE, large
from hgemm_packs.problem import Problem

if TYPE_CHECKING:
    from hgemm_packs.generator.devices.protocols import ProtocolSettings

#: Elements of C a tile from which a kernel is worth a try on a large problem.
LEAST_TILE = 64 * 128
LIBRARIES = ("torch", "cublaslt")

Confirmed = Mapping[Problem, Sequence[str]]


def list_confirmed(pack: Packed, place: Path, least_flop: float = LEAST_FLOP) -> Confirmed:
    """Large problems of an export -> names of the pack's kernels that are confirmed wins there, the
    best of the finals first. Raises ValueError, OSError."""
    names = {entry.id: entry.name for entry in pack.entries.values()}
    listed = sustained.find_confirmed(export.load(place), least_flop)
    return {p: [names[id_] for id_ in each if id_ in names] for p, each in listed.items()}


@dataclass(frozen=True, slots=True)
class Among:
    """The kernels to choose among: those that an export has `confirmed`, where there is one; else
    those of these names or ids, or any. And the operations from which a problem counts."""

    confirmed: Path | None = None
    kernels: Sequence[str] = ()
    least_flop: float = LEAST_FLOP


def contenders(pack: Packed, problem: Problem, name: str | None, named: Sequence[str]) -> list[str]:
    """Names of the kernels to try, the one that must take part first: the one asked for, or the
    table's."""
    admitting = pack.list_admitting(problem, LEAST_TILE)
    if named:
        asked = [pack.entry(each).name for each in named]
        admitting = [each for each in asked if pack.entries[each].admits(problem) is None]
    first = pack.entry(name).name if name else pack.wins.get(problem)
    return [*([first] if first else []), *(each for each in admitting if each != first)]


def tasks(pack: Packed, asked: Sequence[Asked], among: Among) -> list[Task]:
    """One for each large problem that some kernel may be tried on."""
    least, named_for = among.least_flop, dict[Problem, Sequence[str]]()
    wins = list_confirmed(pack, among.confirmed, least) if among.confirmed else None
    for problem, name in asked:
        if large(problem, least) and wins is not None:
            named_for[problem] = wins.get(problem, ())
        elif large(problem, least):
            named_for[problem] = contenders(pack, problem, name, among.kernels)
    return sustained_tasks(named_for, pack.kernel)


def verdict(line: Line) -> dict[str, Any]:
    """One problem's: who is best in a burst and for long, over torch and over the better library,
    and what a choice by bursts costs."""
    burst = {arm: median(us) for arm, us in line["burst"].items()}
    long = {arm: run["us"] for arm, run in line["sustained"].items()}
    ours = [arm for arm in long if arm not in LIBRARIES]
    if not ours:
        return {"problem": line["problem"], "kernels": 0}
    by_burst, by_long = (min(ours, key=times.__getitem__) for times in (burst, long))
    library = min((arm for arm in LIBRARIES if arm in long), key=long.__getitem__)
    runs = line["sustained"]
    found = {
        "problem": line["problem"],
        "kernels": len(ours),
        "by_burst": by_burst,
        "by_sustained": by_long,
        "differs": long[by_burst] > long[by_long] * (1.0 + TIE),
        "loss_of_burst_choice": round(long[by_burst] / long[by_long], 4),
        "burst_vs_torch": round(burst["torch"] / burst[by_burst], 4),
        "sustained_vs_torch": round(long["torch"] / long[by_long], 4),
        "sustained_vs_best": round(long[library] / long[by_long], 4),
        "tflops": {arm: runs[arm]["tflops"] for arm in long},
        "watts": {arm: runs[arm]["watts"] for arm in long},
        "sm_mhz": {arm: runs[arm]["sm_mhz"] for arm in long},
    }
    if all(runs[arm]["tflops_per_watt"] for arm in long):
        per_watt = {arm: runs[arm]["tflops_per_watt"] for arm in long}
        found["tflops_per_watt"] = per_watt
        found["per_watt_vs_torch"] = round(per_watt[by_long] / per_watt["torch"], 4)
        found["per_watt_vs_best"] = round(
            per_watt[by_long] / max(per_watt[a] for a in LIBRARIES if a in long), 4
        )
    return found


def summary(headers: Sequence[Line], lines: Sequence[Line]) -> dict[str, Any]:
    """What energy.json holds: means over problems by layout and dtype, then each problem."""
    verdicts = [verdict(line) for line in lines]
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in verdicts:
        if one["kernels"]:
            groups.setdefault(" ".join(one["problem"][:2:-1]), []).append(one)
    if not groups:
        raise ValueError("no line with a kernel of ours to summarise")
    return {
        "groups": {name: means(each) for name, each in sorted(groups.items())},
        "problems": sorted(verdicts, key=lambda one: json.dumps(one["problem"])),
        "wrong": [[*line["problem"], *line["wrong"]] for line in lines if line["wrong"]],
        "measured_on": headers[-1] if headers else {},
    }


def means(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one group: geometric means, how often the two choices differ and what that costs there."""
    names = ("burst_vs_torch", "sustained_vs_torch", "sustained_vs_best", "loss_of_burst_choice")
    found: dict[str, Any] = {"problems": len(each)}
    for name in (*names, "per_watt_vs_torch", "per_watt_vs_best"):
        found[name] = _mean(one[name] for one in each if name in one)
    read = [one for one in each if "tflops_per_watt" in one]
    for name in ("tflops", "watts", "tflops_per_watt"):
        found[name] = {
            "torch": _mean(one[name]["torch"] for one in read),
            "ours": _mean(one[name][one["by_sustained"]] for one in read),
        }
    found["differs"] = sum(one["differs"] for one in each)
    found["worst_loss"] = max(one["loss_of_burst_choice"] for one in each)
    found["torch_is_faster"] = sum(one["sustained_vs_torch"] < 1.0 / (1.0 + TIE) for one in each)
    return found


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return round(geometric_mean(known), 4) if known else None


def measure(
    plan: CampaignOptions,
    pack: Packed,
    wanted: ProblemFilter,
    settings: ProtocolSettings,
    among: Among,
) -> CampaignCounts:
    """Measure the large problems of a selection. Raises PackError, ValueError, OSError, and what
    `campaign.run` does."""
    from hgemm_packs.generator.devices import protocols

    header = {
        "benchmark": "energy",
        "protocol": f"bursts: paired CUDA-graph replays, hot; sustained: {settings.seconds:g} s an "
        "arm in random order, second half, NVML energy of the card",
        "settings": asdict(settings),
    }
    todo = tasks(pack, campaign.select(pack, wanted), among)
    make = partial(protocols.make, settings=settings)
    return campaign.measure(plan, pack, todo, make, header)
