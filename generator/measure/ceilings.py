"""What the machine can do at most: arithmetic and memory traffic, measured on the spot.

Called by `devices.gpu` for a ceilings job. Single calls with pauses between, so that the card runs
at its top clock and no power cap holds the figure down: a ceiling must lie above whatever an honest
kernel can reach in the short bursts that kernels are timed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from hgemm_packs.measure.baselines import best_cublaslt
from hgemm_packs.measure.operands import operands
from hgemm_packs.measure.replay import Arm, Stage, stage
from hgemm_packs.measure.timing import torch_mm
from hgemm_packs.problem import Problem

SHAPES = ((8192, 8192, 4096), (8192, 8192, 8192), (4096, 8192, 8192))
#: Six times as long as a run: the card draws a quarter of its power.
PAUSE_S = 0.01
BURSTS = 8
STREAM_BYTES = 4 << 30
#: Dense f16 or bf16 operations a clock of one SM: 4 tensor cores of 512 multiply-adds. By arch.
FLOP_PER_CLOCK_SM = {"sm_90a": 4096}


def tensor_tflops(arch: str, sm_count: int, top_mhz: float) -> float:
    """What the tensor cores do when they issue at every clock; 0 for an unknown arch or clock.

    No honest kernel passes it, whatever the card's power allows.
    """
    return FLOP_PER_CLOCK_SM.get(arch, 0) * sm_count * top_mhz * 1e-6


def ceilings(gemms: dict[str, float], streams: dict[str, float], tensor: float) -> dict[str, Any]:
    """The evidence of a ceilings job, from the TFLOP/s and GB/s of each thing measured.

    `peak_tflops`, which the veto divides by, is `tensor` where it is known: a kernel may beat the
    best GEMM of the libraries by more than the veto's 2%, but not the tensor cores. `gemm_tflops`,
    the best GEMM, is what efficiency is quoted against.
    """
    gemm = max(gemms.values())
    return {
        "peak_tflops": max(tensor, gemm),
        "peak_gbps": max(streams.values()),
        "gemm_tflops": gemm,
        "tensor_tflops": tensor,
        "gemms": gemms,
        "streams": streams,
    }


def _burst_us(run: Callable[[], object], at: Stage) -> float:
    """The shortest of a few single runs, each after a pause."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    best = float("inf")
    with at.active():
        run()
        for _ in range(BURSTS):
            at.stream.synchronize()
            time.sleep(PAUSE_S)
            start.record()
            run()
            end.record()
            at.stream.synchronize()
            best = min(best, float(start.elapsed_time(end)) * 1000.0)
    return best


def measure_gemms(device: int, seed: int) -> dict[str, float]:
    """TFLOP/s of torch and tuned cuBLASLt on large problems: "8192x8192x4096 nt f16 torch" etc."""
    found = {}
    for m, n, k in SHAPES:
        for layout, dtype in (("nt", "f16"), ("nn", "f16"), ("nt", "bf16")):
            problem = Problem(m, n, k, layout, dtype)
            one = operands(problem, device, seed=seed)[0]
            arms: dict[str, Arm] = {"torch": torch_mm}
            tuned = best_cublaslt(problem, device=device, seed=seed, replays=1)
            if tuned is not None:
                arms["cublaslt"] = tuned.hot
            for name, arm in arms.items():
                us = _burst_us(partial(arm, one.a, one.b, one.c), stage(device))
                found[f"{problem} {name}"] = round(2 * m * n * k / us * 1e-6, 1)
    return found


def measure_streams(device: int) -> dict[str, float]:
    """GB/s of reading, writing and copying arrays far larger than any cache."""
    at, place = stage(device), torch.device("cuda", device)
    source = torch.ones(STREAM_BYTES // 4, dtype=torch.float32, device=place)
    target = torch.empty_like(source)
    sink = torch.empty((), dtype=torch.float32, device=place)
    runs: dict[str, tuple[Callable[[], object], int]] = {
        "read": (lambda: torch.sum(source, dim=0, out=sink), 1),
        "write": (lambda: target.zero_(), 1),
        "copy": (lambda: target.copy_(source), 2),
    }
    return {
        name: round(passes * STREAM_BYTES / _burst_us(run, at) * 1e-3, 1)
        for name, (run, passes) in runs.items()
    }
