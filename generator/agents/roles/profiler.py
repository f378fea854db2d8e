"""The profiler: what is known of a kernel, down to one bottleneck and the ten numbers that matter.

From the evaluator's facts, the launch record, the machine code where a compiler is here, and the
GPU's counters where they can be had. It needs neither, and no model: where the evaluator names no
bottleneck, the analytic model does. What was counted replaces what was estimated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hgemm_packs.generator.agents.words import Attempt
from hgemm_packs.generator.compile import compiler, sass
from hgemm_packs.generator.compile.candidate import of_choice
from hgemm_packs.generator.core.spec import Choice, DeviceFacts
from hgemm_packs.generator.devices.counters import Counters
from hgemm_packs.generator.evaluator import facts as facts_of
from hgemm_packs.generator.evaluator.candidate import Source
from hgemm_packs.generator.families.base import SM_BYTES
from hgemm_packs.generator.gates.plausibility import compulsory_bytes, flops
from hgemm_packs.generator.report.bottleneck import NEAR
from hgemm_packs.generator.search.analytic.features import Table
from hgemm_packs.generator.search.analytic.roofline import BOTTLENECKS, MODELS, terms
from hgemm_packs.generator.search.behind import SM_THREADS, SYSTEM_BYTES
from hgemm_packs.problem import Problem

#: The ten, in the order in which they are told.
NUMBERS = (
    *("us", "speedup_over_torch", "efficiency", "tensor_share", "memory_share"),
    *("waves", "idle_share_of_last_wave", "ctas_per_sm", "registers", "mma_share_of_code"),
)
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Profile:
    """`kind` is "latency", "bandwidth", "tensor", "tail wave" or "unknown". `numbers` has those of
    NUMBERS that are known. Shares are of the kernel's time at the machine's ceilings; where
    `counters` has them, as the GPU counted them."""

    kind: str
    numbers: Mapping[str, float]
    counters: Counters | None = None


def profile(
    one: Choice | Source,
    problem: Problem,
    device: DeviceFacts,
    attempt: Attempt | None = None,
    code: Mapping[str, float] | None = None,
    counters: Counters | None = None,
) -> Profile:
    """The profile of a kernel, whose time and facts `attempt` has, whose machine code `code` (see
    `code_facts`) tells of, and of which a GPU has counted `counters`. Raises InvalidGenome or
    KeyError for a genome that is none."""
    fields = facts_of.fields_of(one)
    known = attempt.facts if attempt else {}
    found: dict[str, float | None] = {
        "us": attempt.us if attempt else None,
        "speedup_over_torch": attempt.speedup if attempt else None,
        "efficiency": known.get("efficiency"),
        "registers": known.get("registers") or (code or {}).get("registers"),
        "mma_share_of_code": (code or {}).get("mma_share"),
        **_grid(fields, problem, device),
    }
    us = found["us"]
    if us and device.peak_tflops and device.peak_gbps:
        found["tensor_share"] = flops(problem) / (device.peak_tflops * 1e6) / us
        found["memory_share"] = compulsory_bytes(problem) / (device.peak_gbps * 1e3) / us
    kind = str(known.get("bottleneck") or _modelled(one, problem))
    if counters is not None:
        counted = _shares(counters)
        found |= counted
        kind = _counted(counted, kind)
    numbers = {name: v for name in NUMBERS if (v := found.get(name)) is not None}
    return Profile(kind, numbers, counters)


def _shares(counters: Counters) -> dict[str, float]:
    """How busy the tensor cores and memory were, as far as it was counted."""
    percent = {"tensor_share": "tensor_percent", "memory_share": "dram_percent"}
    numbers = counters.numbers
    return {name: numbers[each] / 100 for name, each in percent.items() if each in numbers}


def _counted(shares: Mapping[str, float], estimate: str) -> str:
    """The bottleneck by counters: what was busy for most of the time. Where neither tensor cores
    nor memory were, it is latency, unless the estimate blames the last wave, which nothing
    counts."""
    if len(shares) < 2:
        return estimate
    tensor, memory = shares["tensor_share"], shares["memory_share"]
    if max(tensor, memory) >= NEAR:
        return "tensor" if tensor >= memory else "bandwidth"
    return "tail wave" if estimate == "tail wave" else "latency"


def _grid(fields: Mapping[str, Any], problem: Problem, device: DeviceFacts) -> dict[str, float]:
    """Waves of CTAs, the share of the last one that has no CTA, and CTAs that fit on an SM by
    shared memory and threads."""
    grid, cluster = fields["grid"], fields.get("cluster", [1, 1, 1])
    tiles = -(-problem.m // grid["tile_m"]) * -(-problem.n // grid["tile_n"])
    ctas = tiles * cluster[2] * grid.get("slices", 1)
    per_sm = min(
        SM_BYTES // (fields.get("smem_bytes", 0) + SYSTEM_BYTES), SM_THREADS // fields["block"]
    )
    room = max(1, device.sm_count) * max(1, per_sm)
    waves = ctas / room
    return {
        "waves": waves,
        "idle_share_of_last_wave": 1.0 - waves / math.ceil(waves) if waves else 0.0,
        "ctas_per_sm": float(per_sm),
    }


def _modelled(one: Choice | Source, problem: Problem) -> str:
    """The bottleneck of a genome by the analytic model, which knows no source."""
    if not isinstance(one, Choice) or one.family not in MODELS:
        return UNKNOWN
    place = int(terms(Table((one,)), problem).bottleneck()[0])
    return BOTTLENECKS[place].replace("-", " ")


def code_facts(one: Choice | Source) -> dict[str, float]:
    """Registers, and the share of tensor-core instructions in the machine code: built here, or from
    the compiler's cache. Raises BuildError and SassError."""
    source = of_choice(one) if isinstance(one, Choice) else one
    built = compiler.build_source(source.source, source.fields)
    census = sass.census(built.cubin)
    products = census.count("HGMMA", "HMMA")
    return {
        "registers": float(built.entry_fields["regs"]),
        "mma_share": products / max(1, census.instructions),
    }
