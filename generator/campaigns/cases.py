"""Cases measured one after another in this process, each answer a line on file before the next.

Used by the benchmarks of whole models and of single calls, whose arms are what users call;
`campaign` deals kernels of a pack to many GPUs. A run that was killed, or stopped at its deadline,
goes on where it was when it is started again. What a case or a line means is the business of who
asked.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from hgemm_packs.cli.console import console, progress
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.campaigns.campaign import (
    CampaignCounts,
    Hopeless,
    Line,
    LinesFile,
)
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.store.lines import read_records

#: What a case is known by: JSON values.
Fields = Mapping[str, Any]
Arm = Callable[[], object]
Samples = dict[str, list[float]]

#: Blocks of a case: as many as its budget has room for, between these.
MIN_BLOCKS = 5
BLOCKS = 11
PILOTS = 3
LONG_US = 5_000.0


def key(fields: Fields) -> str:
    """As `campaign.keys_on_file` has it."""
    return json.dumps(dict(fields), sort_keys=True)


def run(
    out: Path,
    cases: Sequence[Fields],
    measure: Callable[[Fields], Line],
    header: Line,
    *,
    deadline_s: float = float("inf"),
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> CampaignCounts:
    """Measure the cases that `out` does not have yet, in their order; none is begun after the
    deadline. A case that fails leaves a line that says so; the next run tries it again, after all
    others. Raises Hopeless, and RuntimeError when the GPU is lost."""
    ends = time.monotonic() + deadline_s
    known = campaign.keys_on_file(out)
    failed = _read_failed(out)
    todo = [case for case in cases if key(case) not in known]
    todo.sort(key=lambda case: key(case) in failed)
    tally, file = CampaignCounts(left=len(todo)), LinesFile(out)
    tick(len(cases) - len(todo), len(cases))
    try:
        if todo:
            started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            file.write({"header": {**header, "started": started}})
        for case in todo:
            if time.monotonic() >= ends:
                break
            line = {**case, "fields": list(case)}
            try:
                line |= measure(case)
            except Exception as error:
                line |= {"error": f"{type(error).__name__}: {error}", "blamed": False}
            file.write(line)
            tally.count(line, key(case))
            if "error" in line and torch.cuda.is_available():
                torch.cuda.synchronize()  # of a lost context it raises, as all that follows would
            if tally.hopeless:
                raise Hopeless(tally.words)
            tick(len(cases) - tally.left, len(cases))
    finally:
        file.close()
    return tally


def _read_failed(out: Path) -> set[str]:
    """Keys of the cases that an earlier run failed on."""
    records = read_records([out]) if out.exists() else []
    return {key({name: r[name] for name in r["fields"]}) for r in records if "error" in r}


def block_us(arm: Arm, steps: int, device: torch.device, ahead: int = 1) -> float:
    """Microseconds of one of `steps` calls back to back, on the GPU's clock from the first to the
    last: where the host is slower than the GPU, that is the host's time. The calls `ahead` are not
    timed, for what runs first after a pause is slower or faster than behind another."""
    for _ in range(ahead):
        arm()
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(steps):
            arm()
        return (time.perf_counter() - began) * 1e6 / steps
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(steps):
        arm()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / steps


def sample_in_turn(
    arms: Mapping[str, Arm],
    *,
    target_us: float,
    budget_us: float,
    device: torch.device,
    seed: int,
    most: int = BLOCKS,
) -> tuple[Samples, int]:
    """Samples in us a call, one of each arm a block, in random order; and the calls of a block,
    which last `target_us`. `budget_us` of all blocks decides how many there are, `most` at most.
    Before a call of LONG_US and more no other runs: a pause does not show in its time.
    Python collects no garbage meanwhile, for it would in the middle of some blocks and not of
    others."""
    first = next(iter(arms.values()))
    pilot = min(block_us(first, 1, device) for _ in range(PILOTS))
    steps = max(1, math.ceil(target_us / pilot))
    ahead = int(pilot < LONG_US)
    blocks = int(budget_us / (len(arms) * (steps + ahead) * pilot))
    order, shuffle = list(arms), random.Random(seed)
    samples: Samples = {name: [] for name in arms}
    with without_garbage_collection():
        for _ in range(min(most, max(MIN_BLOCKS, blocks))):
            shuffle.shuffle(order)
            for name in order:
                samples[name].append(round(block_us(arms[name], steps, device, ahead), 3))
    return samples, steps


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def speedup(
    samples: Mapping[str, Sequence[float]], base: str = "torch", arm: str = "ours"
) -> float:
    """`base` over an arm: the median of the pairs."""
    return median(b / o for b, o in zip(samples[base], samples[arm], strict=True))


def half_width(
    samples: Mapping[str, Sequence[float]], base: str = "torch", arm: str = "ours"
) -> float:
    """Half of the interval that has the true `speedup` in 95 of 100 cases, from the order of the
    pairs alone: no form of their distribution is assumed."""
    pairs = sorted(b / o for b, o in zip(samples[base], samples[arm], strict=True))
    reach = 0.98 * math.sqrt(len(pairs))  # 1.96 standard deviations of a fair coin's heads
    middle = len(pairs) / 2
    low, high = max(0, math.floor(middle - reach)), math.ceil(middle + reach)
    return (pairs[min(len(pairs) - 1, high)] - pairs[low]) / 2


def parser(description: str) -> argparse.ArgumentParser:
    """The arguments that these benchmarks share."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("pack", type=Path, help="directory of a built pack")
    made.add_argument("out", type=Path, help="jsonl file; what it has is not measured again")
    made.add_argument("--deadline", type=float, default=float("inf"), help="seconds, then stop")
    made.add_argument("--commit", help="of the sources; else asked of git")
    return made


def main(
    options: argparse.Namespace,
    pack: Packed,
    cases: Sequence[Fields],
    measure: Callable[[Fields], Line],
    header: Line,
) -> int:
    """Measure the cases on this process's GPU with `pack` ahead of all others; 1 if any failed, is
    wrong or is left."""
    from hgemm_packs.distribution import packs
    from hgemm_packs.generator.devices.gpu import GpuDevice

    packs.use(options.pack)
    info = compiler.generator_info()
    header = {
        **header,
        "commit": options.commit or (info.commit + ("+" if info.dirty else "")),
        "pack": pack.facts,
        "python": sys.version.split()[0],
        "device": asdict(GpuDevice(0).facts),
    }
    screen = console()
    screen.print(f"{len(cases)} cases, deadline {options.deadline:g} s")
    with progress(screen, "measuring") as tick:
        tally = run(options.out, cases, measure, header, deadline_s=options.deadline, tick=tick)
    screen.print(f"{tally.written} lines written, {tally.failed} failures, {tally.left} left")
    if tally.words:
        screen.print(f"the last failure: {tally.words}", markup=False)
    wrong = [line for line in campaign.lines([options.out])[1] if line["wrong"]]
    for line in wrong:
        named = {name: line[name] for name in line["fields"]}
        screen.print(f"wrong: {key(named)}: {'; '.join(line['wrong'])}", markup=False)
    return int(tally.failed + tally.left + len(wrong) > 0)
