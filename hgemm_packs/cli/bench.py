"""`hgemm-packs bench`: rows of the table measured again, here, by the protocol they were made with.

Every row is `matmul` itself against torch and the best cuBLASLt algorithm, hot and cold, paired.
The figures are this machine's; they change no table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from .. import select
from ..pack.manifest import Row, Timing
from ..problem import Problem
from ..settings import settings
from . import plots
from .console import Tick, UserError, cuda_device, progress

if TYPE_CHECKING:
    from ..measure.replay import Arm
    from ..measure.timing import Protocol

BLOCKS = 20
TARGET_US = 1000.0


def run(out: Console, folder: Path, rows: int) -> None:
    """Measure `rows` rows spread evenly over the wins (0: all), print, and write bench.json and
    bench.png to `folder`. Raises UserError without a GPU or without a row for it."""
    from ..launcher import device_info

    if settings().off:
        raise UserError("HGEMM_PACKS_OFF=1 is set: torch would run every call that bench measures")
    index = cuda_device()
    if index is None:
        raise UserError("bench needs a CUDA device; `hgemm-packs demo` shows recorded figures")
    wins = _wins(index)
    if rows:
        wins = wins[:: max(1, len(wins) // rows)][:rows]
    with progress(out, "measuring") as tick:
        measured = measure(wins, index, tick)
    out.print(_table(measured))
    _save(measured, folder, index)
    plots.speedups(measured, folder / "bench.png", title(measured, device_info(index).name))
    out.print(f"wrote {folder / 'bench.json'} and {folder / 'bench.png'}")


def title(rows: Sequence[Row], device: str) -> str:
    """What bench.png shows: how many problems, where and when."""
    return f"{len(rows)} problems measured on {device}, {max(row.date for row in rows)}"


def _wins(index: int) -> list[Row]:
    """Rows that `matmul` uses on this device, smallest problem first."""
    from ..launcher import device_info

    device = device_info(index)
    wins = []
    for pack in select.verify_packs().packs:
        for row in pack.manifest.table:
            choice = select.resolve(_problem(row), index, device)
            if choice.row is row:
                wins.append(row)
    if not wins:
        raise UserError(
            f"no pack here has a confirmed win on {device.name}: try `hgemm-packs list`"
        )
    return sorted(wins, key=lambda row: row.m * row.n * row.k)


def _problem(row: Row) -> Problem:
    return Problem(row.m, row.n, row.k, row.layout, row.dtype, row.out_dtype)


def measure(rows: Sequence[Row], index: int, tick: Tick) -> list[Row]:
    """The same rows with this machine's figures."""
    from ..measure.baselines import best_cublaslt

    measured = []
    for done, row in enumerate(rows):
        tick(done, len(rows))
        problem = _problem(row)
        tuned = best_cublaslt(problem, device=index)
        hot = _time(problem, "hot", tuned.hot if tuned else None, index)
        cold = _time(problem, "cold", tuned.cold if tuned else None, index)
        today = date.today().isoformat()
        measured.append(row._replace(hot=hot, cold=cold, pairs=BLOCKS, date=today))
    tick(len(rows), len(rows))
    return measured


def _time(problem: Problem, protocol: Protocol, cublaslt: Arm | None, index: int) -> Timing:
    from .. import matmul
    from ..measure import timing

    arms: dict[str, Arm] = {
        "torch": timing.torch_arm(problem),
        # Where cuBLASLt offers nothing for a problem, torch is the only baseline.
        "cublaslt": cublaslt or timing.torch_arm(problem),
        "ours": lambda a, b, c: matmul(a, b, out=c),
    }
    result = timing.compare(
        arms, problem, protocol=protocol, blocks=BLOCKS, target_us=TARGET_US, device=index
    )
    speedup = result.ratio("torch", "ours")
    return Timing(
        result.median_us("ours"),
        result.median_us("torch"),
        result.median_us("cublaslt"),
        speedup.value,
        speedup.lcb,
    )


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="matmul against torch and the best of cuBLASLt, us per call")
    for name in ("M", "N", "K"):
        table.add_column(name, justify="right")
    table.add_column("layout")
    for name in ("ours", "torch", "cuBLASLt", "hot", "lower bound", "cold", "hot vs best"):
        table.add_column(name, justify="right")
    for row in rows:
        hot = row.hot
        times = (f"{us:.2f}" for us in (hot.us, hot.torch_us, hot.cublaslt_us))
        table.add_row(
            *(str(size) for size in (row.m, row.n, row.k)),
            f"{row.layout} {row.dtype}",
            *times,
            f"{hot.speedup:.3f}x",
            f"{hot.lcb:.3f}x",
            f"{row.cold.speedup:.3f}x",
            f"{hot.vs_best:.3f}x",
        )
    mean = geometric_mean([row.hot.speedup for row in rows])
    best = geometric_mean([row.hot.vs_best for row in rows])
    table.caption = (
        f"geometric means over {len(rows)} rows, caches hot: {mean:.3f}x torch, "
        f"{best:.3f}x the better of torch and cuBLASLt"
    )
    return table


def _save(rows: Sequence[Row], folder: Path, index: int) -> None:
    import torch

    from ..launcher import device_info
    from ..measure.baselines import cublaslt_version
    from ..measure.telemetry import Telemetry

    now = Telemetry(index).read()
    document: dict[str, Any] = {
        "protocol": f"paired CUDA-graph replays, {BLOCKS} blocks of {TARGET_US:.0f} us per arm",
        "device": asdict(device_info(index)),
        "torch": torch.__version__,
        "cublaslt": cublaslt_version(index),
        "conditions_at_end": asdict(now) if now else None,
        "rows": [
            {**row._asdict(), "hot": row.hot._asdict(), "cold": row.cold._asdict()} for row in rows
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
