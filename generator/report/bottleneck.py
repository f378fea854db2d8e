"""What limits a kernel on a problem, by a rough account of its time.

Called by the report's numbers. An estimate from measured ceilings and the grid, without counters:
it sorts problems into kinds and proves nothing about one of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hgemm_packs.generator.core.spec import DeviceFacts
from hgemm_packs.generator.gates.plausibility import compulsory_bytes, flops
from hgemm_packs.problem import Problem

NEAR = 0.6  # of a ceiling: a kernel that reaches it has little else to lose

KINDS = {
    "tensor": "the tensor cores, at the measured rate of the best product",
    "bandwidth": "reading A and B and writing C once, at the measured rate of the best copy",
    "tail wave": "SMs without a tile while others have one",
    "latency": "launch, pipeline fill and everything else that the other three do not explain",
}


def bottleneck(
    problem: Problem, fields: Mapping[str, Any], cold_us: float, device: DeviceFacts
) -> str:
    """The ceiling that a kernel comes near to, else the larger of its two losses.

    `cold_us` is its time with cold caches, `fields` are its manifest fields; the ceilings of
    `device` must have been measured.
    """
    tensor = flops(problem) / (device.peak_tflops * 1e6)
    bandwidth = compulsory_bytes(problem) / (device.peak_gbps * 1e3)
    if max(tensor, bandwidth) >= NEAR * cold_us:
        return "tensor" if tensor >= bandwidth else "bandwidth"
    grid = fields["grid"]
    split = fields["cluster"][2] * grid.get("slices", 1)
    tiles = math.ceil(problem.m / grid["tile_m"]) * math.ceil(problem.n / grid["tile_n"]) * split
    waves = tiles / device.sm_count
    tail = tensor * (math.ceil(waves) / waves - 1.0)
    return "tail wave" if tail > cold_us - max(tensor + tail, bandwidth) else "latency"
