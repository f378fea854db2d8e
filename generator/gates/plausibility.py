"""Plausibility gate: no kernel is faster than the machine, and few are much faster than cuBLAS.

Called on measured times, before anything believes them. The ceilings are those that the device
measured of itself; the gate measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from hgemm_packs.generator.core.spec import DeviceFacts, Status, Verdict
from hgemm_packs.problem import Problem, set_bytes

MARGIN = 0.98  # of the floor: what a clock, a timer and a ceiling may be off together
SUSPECT = 1.3  # times the best baseline, where arithmetic binds


def flops(problem: Problem) -> int:
    return 2 * problem.m * problem.n * problem.k


def compulsory_bytes(problem: Problem) -> int:
    """A, B and a residual read once, C written once."""
    return set_bytes(problem)


def floor_us(problem: Problem, facts: DeviceFacts, *, cold: bool) -> float:
    """The least time, in us, that the measured ceilings allow; 0 while they are not known.

    Cold: of what a call touches, L2 can still hold up to its own size, and up to a third where
    operand sets rotate, as their total is three times the L2. (Without this term the fastest of
    30,000 cold figures of the H200, weights of 1.6 GB streamed at 4.4 TB/s, would be doubtful.)
    """
    floor = flops(problem) / facts.peak_tflops * 1e-6 if facts.peak_tflops else 0.0
    if cold and facts.peak_gbps:
        touched = compulsory_bytes(problem)
        moved = touched - min(facts.l2_bytes, touched / 3)
        floor = max(floor, moved / facts.peak_gbps * 1e-3)
    return floor


def suspect(problem: Problem, us: float, baseline_us: float, facts: DeviceFacts) -> bool:
    """Whether a time is over SUSPECT times the best baseline although arithmetic binds, by the
    measured ceilings: possible, but to be measured again before it is believed."""
    if not facts.peak_tflops or not facts.peak_gbps:
        return False
    arithmetic = flops(problem) / facts.peak_tflops * 1e-6
    traffic = compulsory_bytes(problem) / facts.peak_gbps * 1e-3
    return arithmetic > traffic and baseline_us > SUSPECT * us


def check(
    problem: Problem,
    us_hot: float,
    us_cold: float,
    facts: DeviceFacts,
    baseline_us: Mapping[str, float] | None = None,
) -> Verdict:
    """HACK for a time below MARGIN of the floor, or that is no time; infinite is not measured.

    `baseline_us` is the best baseline by protocol ("hot", "cold"). A suspect time passes with
    `evidence["rerun"]` true: whoever asked measures again in a fresh process with a fresh seed and
    asks again with those times; only a figure that repeats counts. `evidence["ceilings"]` is false
    when the device has not measured them and no floor was checked.
    """
    times = {"hot": us_hot, "cold": us_cold}
    floors = {name: floor_us(problem, facts, cold=name == "cold") for name in times}
    found = []
    for name, us in times.items():
        if not us > 0:
            found.append(f"time: {name} {us} us")
        elif us < MARGIN * floors[name]:
            found.append(f"roofline: {name} {us:.3f} us, the machine needs {floors[name]:.3f}")
    rerun = not found and any(
        suspect(problem, times[name], us, facts) for name, us in (baseline_us or {}).items()
    )
    evidence = {
        **{f"us_{name}": us for name, us in times.items()},
        **{f"floor_{name}_us": floor for name, floor in floors.items()},
        "rerun": rerun,
        "ceilings": facts.peak_tflops > 0 and facts.peak_gbps > 0,
    }
    status = Status.HACK if found else Status.OK
    return Verdict("plausibility", status, "; ".join(found), evidence)
