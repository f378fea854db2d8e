"""Counters of Nsight Compute: what a GPU itself counts while it runs one kernel once.

Called by the evaluator when it is asked for them, never while anything is timed. `read` starts
`ncu` on this module, which is then the program under it and launches the kernel. Where counters
cannot be had the answer is a sentence that says why.
"""

from __future__ import annotations

import csv
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from hgemm_packs import launcher
from hgemm_packs.generator.compile.candidate import entry
from hgemm_packs.generator.core.spec import CompiledKernel
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.operands import operands
from hgemm_packs.problem import Problem

PROGRAM = "ncu"
TIMEOUT_S = 180.0  # two starts of a program, and a pass of the kernel for every few metrics
NOT_PERMITTED = "ERR_NVGPUCTRPERM"
MOST_WORDS = 300
_MODULE = "hgemm_packs.generator.devices.counters"

#: Numbers by name, each the sum of metrics that Hopper has. A percentage is of what the hardware
#: can do while the kernel runs (tensor cores, DRAM), or while an SM is at work.
METRICS: Mapping[str, tuple[str, ...]] = {
    "us": ("gpu__time_duration.sum",),
    "tensor_percent": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",),
    "dram_percent": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",),
    "dram_bytes": ("dram__bytes_read.sum", "dram__bytes_write.sum"),
    "l2_hit_percent": ("lts__t_sector_hit_rate.pct",),
    "occupancy_percent": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "issue_percent": ("smsp__issue_active.avg.pct_of_peak_sustained_active",),
    "bank_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "registers": ("launch__registers_per_thread",),
}
#: Reasons for which a warp waits; each has a metric of how many warps do so per instruction.
STALLS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle"),
    *("long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction"),
    *("not_selected", "short_scoreboard", "sleeping", "tex_throttle", "wait"),
)
MOST_STALLS = 2
_SCALES = {"ns": 1e-3, "nsecond": 1e-3}  # times come in base units; all else is taken as it is


@dataclass(frozen=True, slots=True)
class Counters:
    """One launch with cold caches. `numbers` has those of METRICS that were counted; `stalls` are
    the largest reasons for which warps waited, each with its percentage of all waiting."""

    numbers: Mapping[str, float]
    stalls: tuple[tuple[str, float], ...] = ()


def read(
    kernel: CompiledKernel, problem: Problem, gpu: str, timeout_s: float = TIMEOUT_S
) -> Counters | str:
    """The counters of one launch on the GPU that CUDA_VISIBLE_DEVICES calls `gpu`, or the sentence
    why there are none."""
    if shutil.which(PROGRAM) is None:
        return f"no {PROGRAM} on the PATH"
    with tempfile.TemporaryDirectory() as scratch:
        told, log = Path(scratch, "kernel"), Path(scratch, "log")
        told.write_bytes(pickle.dumps((kernel, problem)))
        try:
            done = _run(_words(str(kernel.fields["symbol"]), told, log), gpu, timeout_s)
        except OSError as error:
            return f"{PROGRAM} does not start: {error}"
        if done is None:
            return f"{PROGRAM} did not end within {timeout_s:g} s"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return _why(f"{text}\n{done.stdout}", done) or parse(text) or f"{PROGRAM} printed no counters"


def _words(symbol: str, told: Path, log: Path) -> list[str]:
    metrics = [*(each for some in METRICS.values() for each in some), *map(_stall, STALLS)]
    options = {
        "--csv": None,
        "--page": "raw",
        "--print-units": "base",
        "--log-file": str(log),
        "--clock-control": "none",  # the clocks of a GPU are its owner's
        "--kernel-name": symbol,
        "--launch-count": "1",
        "--metrics": ",".join(metrics),
    }
    listed = [word for option in options.items() for word in option if word is not None]
    return [PROGRAM, *listed, sys.executable, "-m", _MODULE, str(told)]


def _stall(reason: str) -> str:
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


def _run(words: list[str], gpu: str, timeout_s: float) -> subprocess.CompletedProcess[str] | None:
    """The process at its end; None when that did not come in time, and nothing of it is left."""
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    said = [part.decode(errors="replace") for part in (out, err)]
    return subprocess.CompletedProcess(words, process.returncode, *said)


def _why(text: str, done: subprocess.CompletedProcess[str]) -> str:
    """Why there are no counters, by what `ncu` or the program under it said; empty where neither
    complained."""
    if NOT_PERMITTED in text:
        return f"the driver permits no counters here ({NOT_PERMITTED})"
    errors = [line for line in text.splitlines() if line.startswith("==ERROR==")][:1]
    if not errors and not done.returncode:
        return ""
    last = done.stderr.strip().splitlines()[-1:]  # how the program under it ended
    said = [line.removeprefix("==ERROR==").strip() for line in (*errors, *last)]
    return f"{PROGRAM}: {' '.join(said) or f'exit status {done.returncode}'}"[:MOST_WORDS]


def parse(text: str) -> Counters | None:
    """The counters of the first launch in what `ncu --csv --page raw` printed: a row of names, one
    of units, and one a launch. None where there is none."""
    lines = (line for line in text.splitlines() if not line.startswith("=="))
    try:
        rows = [row for row in csv.reader(lines) if row]
    except csv.Error:
        return None
    head = next((i for i, row in enumerate(rows) if "Kernel Name" in row), None)
    if head is None or len(rows) < head + 3:
        return None
    counted = {}
    for name, unit, value in zip(*rows[head : head + 3], strict=False):
        number = _number(value)
        if number is not None:
            counted[name] = number * _SCALES.get(unit, 1.0)
    numbers = {
        name: sum(counted[each] for each in some)
        for name, some in METRICS.items()
        if all(each in counted for each in some)
    }
    return Counters(numbers, _largest(counted)) if numbers else None


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:  # "n/a"
        return None
    return value if math.isfinite(value) else None


def _largest(counted: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    waiting = {reason: counted.get(_stall(reason), 0.0) for reason in STALLS}
    total = sum(waiting.values())
    if not total > 0:
        return ()
    first = sorted(STALLS, key=lambda reason: -waiting[reason])[:MOST_STALLS]
    return tuple((reason, 100.0 * waiting[reason] / total) for reason in first)


def launch(kernel: CompiledKernel, problem: Problem, device: str = "cuda") -> torch.Tensor:
    """Run the kernel once on the operands that it is timed on; returns C [M, N]. Raises
    CandidateError, RuntimeError or ValueError where it cannot be run."""
    record = entry(kernel.fields, kernel.cubin)
    arm = KernelArm(launcher.load(0, record, kernel.cubin), record.epilogue)
    (one,) = operands(problem, device)
    arm(one.a, one.b, one.c)
    return one.c.cpu()


if __name__ == "__main__":
    launch(*pickle.loads(Path(sys.argv[1]).read_bytes()))
