"""What is known of a kernel beside its times: resources, and what limits it.

Called by the evaluator with the verdicts of a kernel; asks no device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hgemm_packs.generator.core.spec import Choice, DeviceFacts, Verdict
from hgemm_packs.generator.evaluator.candidate import Source
from hgemm_packs.generator.families import family
from hgemm_packs.generator.gates import plausibility
from hgemm_packs.generator.report.bottleneck import bottleneck
from hgemm_packs.pack.manifest import Timing
from hgemm_packs.problem import Problem

_SPILLED = re.compile(r"(\d+) bytes spill stores")

Facts = dict[str, Any]


def fields_of(one: Choice | Source) -> Mapping[str, Any]:
    """The manifest fields that need no build. Raises InvalidGenome or KeyError."""
    if not isinstance(one, Choice):
        return one.fields
    known = family(one.family)
    return known.fields(known.whole(one.genome))


def resources(fields: Mapping[str, Any], verdicts: Sequence[Verdict]) -> Facts:
    """Registers a thread, bytes that spill, bytes of shared memory and threads of a CTA, and its
    tile, as far as the verdicts tell."""
    found: Facts = {}
    static = 0
    for verdict in verdicts:
        if verdict.gate == "build" and verdict.passed:
            found |= {"registers": verdict.evidence["registers"], "spilled_bytes": 0}
        elif verdict.gate == "build" and (spilled := _SPILLED.search(verdict.detail)):
            found["spilled_bytes"] = int(spilled[1])
        elif verdict.gate == "binary":
            static = verdict.evidence.get("static_smem_bytes", 0)
    found["shared_bytes"] = int(fields["smem_bytes"]) + static
    found["threads"] = int(fields["block"])
    found["tile"] = [fields["grid"]["tile_m"], fields["grid"]["tile_n"]]
    return found


def limits(
    fields: Mapping[str, Any], problem: Problem, times: Mapping[str, Timing], device: DeviceFacts
) -> Facts:
    """The bottleneck and the efficiency of a timed kernel, by its time with cold caches where there
    is one; nothing while the ceilings of the device are not known."""
    if not times or not device.peak_tflops or not device.peak_gbps:
        return {}
    cold = "cold" in times
    us = times["cold" if cold else "hot"].us
    floor = plausibility.floor_us(problem, device, cold=cold)
    return {
        "bottleneck": bottleneck(problem, fields, us, device),
        "efficiency": round(floor / us, 4),
    }
