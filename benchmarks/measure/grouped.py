"""Grouped products of mixtures of experts: our kernels against torch._grouped_mm.

    python -m benchmarks.measure.grouped build DIR             # compiles the candidates, no GPU
    python -m benchmarks.measure.grouped gate DIR [--every N]  # each Nth against float64
    python -m benchmarks.measure.grouped run DIR OUT.jsonl [--rows 32,512,8192]
    python -m benchmarks.measure.grouped pack OUT.jsonl SOURCE_DIR PACK_DIR

`run` goes on where an earlier run stopped; its lines belong to results/grouped/. Problems are the
experts' projections of DeepSeek V3, of which a GPU of eight holds 32, and of gpt-oss 120B, with so
many rows in all; a row goes to an expert drawn by the seed, all alike. A sample is a CUDA graph of
calls that go round ROUTINGS routings, each with its own tokens, so that weights come from memory:
hot and cold are one figure. All candidates are screened, the best BEST and torch are measured
block by block in random order, and the best of these is measured again, on other routings, beside
torch twice: that second measurement is the row, and torch against itself the noise floor. The
kernel of a row has passed the numeric gate in the same run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.measure.grouped_kernels import Loaded, build, load_all, write_pack
from hgemm_packs import launcher
from hgemm_packs.generator.gates import grouped as gate
from hgemm_packs.measure import evidence
from hgemm_packs.measure.operands import Operands
from hgemm_packs.measure.replay import Arm, stage
from hgemm_packs.measure.timing import ArmBench, TimingPlan
from hgemm_packs.problem import GroupedProblem
from hgemm_packs.report import runtime_versions

#: Model and projection -> experts on a GPU, outputs, inputs.
LAYERS = {
    "deepseek_v3 gate up": (32, 4096, 7168),
    "deepseek_v3 down": (32, 7168, 2048),
    "gpt_oss_120b gate up": (128, 5760, 2880),
    "gpt_oss_120b down": (128, 2880, 2880),
}
ROWS = (8, 32, 128, 512, 2048, 8192)
ROUTINGS = 4
BEST = 4
SCREENED, CHOSEN, CONFIRMED = 3, 11, 41  # blocks
TARGET_US = {SCREENED: 1_000.0, CHOSEN: 3_000.0, CONFIRMED: 3_000.0}
TORCH, AGAIN = "torch", "torch again"
DEVICE = torch.device("cuda", 0)
#: Bytes and operations in a microsecond, for the length of a graph alone.
SPEED = (3e6, 5e8)


class Case(NamedTuple):
    layer: str
    layout: str
    rows: int

    @property
    def problem(self) -> GroupedProblem:
        groups, n, k = LAYERS[self.layer]
        return GroupedProblem(groups, self.rows, n, k, self.layout, "bf16")


def route(rows: int, groups: int, source: torch.Generator) -> torch.Tensor:
    """Where groups end when each row goes to any of them alike."""
    counts = torch.bincount(torch.randint(groups, (rows,), generator=source), minlength=groups)
    return counts.cumsum(0).to(torch.int32)


class Routed:
    """The operands of one problem: weights once, tokens and ends for each routing."""

    def __init__(self, problem: GroupedProblem, seed: int) -> None:
        source = torch.Generator(DEVICE).manual_seed(seed)
        groups, rows, n, k, layout, _ = problem

        def normal(*shape: int) -> torch.Tensor:
            made = torch.empty(shape, dtype=torch.bfloat16, device=DEVICE)
            return made.normal_(0.0, 1.0, generator=source)

        stored = normal(groups, n, k).mT if layout == "nt" else normal(groups, k, n)
        drawn = torch.Generator().manual_seed(seed)
        self.ends: dict[int, torch.Tensor] = {}
        self.sets = []
        self.touched = 0.0  # experts that a call reads, on average
        for _ in range(ROUTINGS):
            tokens, ends = normal(rows, k), route(rows, groups, drawn)
            out = torch.empty((rows, n), dtype=torch.bfloat16, device=DEVICE)
            self.ends[tokens.data_ptr()] = ends.to(DEVICE)
            self.touched += int((ends.diff(prepend=ends.new_zeros(1)) > 0).sum()) / ROUTINGS
            self.sets.append(Operands(tokens, stored, out))

    def torch_arm(self) -> Arm:
        return lambda a, b, c: torch._grouped_mm(a, b, offs=self.ends[a.data_ptr()])

    def our_arm(self, kernel: Loaded) -> Arm:
        loaded, ends = kernel.kernel, self.ends
        return lambda a, b, c: launcher.launch_grouped(loaded, a, b, ends[a.data_ptr()], c)


def sample(
    arms: Mapping[str, Arm], routed: Routed, problem: GroupedProblem, blocks: int, seed: int
) -> dict[str, list[float]]:
    """us a call of each arm, block by block in random order."""
    _, rows, n, k, _, _ = problem
    moved = 2 * (routed.touched * n * k + rows * (n + k)) / SPEED[0]
    us = max(moved, 2.0 * rows * n * k / SPEED[1])
    rounds = max(1, round(TARGET_US[blocks] / us / ROUTINGS))
    how = TimingPlan(routed.sets, min(64, rounds) * ROUTINGS, flushed=False)
    at, shuffle = stage(DEVICE.index), random.Random(seed)
    samples: dict[str, list[float]] = {name: [] for name in arms}
    with at.active():
        bench = ArmBench(arms, how, at)
        for _ in range(blocks):
            order = list(arms)
            shuffle.shuffle(order)
            for name, each in bench.block(order)[0].items():
                samples[name].append(each)
        bench.free(arms)
    return samples


def passes(kernel: Loaded, seed: int) -> dict[str, Any] | str:
    """What the numeric gate says of a kernel, or why it failed."""

    def launch(*operands: torch.Tensor) -> None:
        launcher.launch_grouped(kernel.kernel, *operands)

    try:
        result = gate.check(kernel.entry, launch, DEVICE, seed)
    except gate.NumericError as error:
        return str(error)
    return {"max_rel_err": result.max_rel_err, "shapes_tested": result.shapes_tested}


def fastest(samples: Mapping[str, Sequence[float]]) -> list[str]:
    """Our kernels, the fastest first."""
    return sorted(samples.keys() - {TORCH, AGAIN}, key=lambda name: median(samples[name]))


def measure(case: Case, kernels: Mapping[str, Loaded], seed: int) -> dict[str, Any]:
    """The line of a case."""
    problem = case.problem
    fitting = {name: each for name, each in kernels.items() if not each.entry.admits(problem)}
    routed = Routed(problem, seed)
    ours = {name: routed.our_arm(each) for name, each in fitting.items()}
    screened = sample(ours, routed, problem, SCREENED, seed)
    best = fastest(screened)[:BEST]
    arms = {TORCH: routed.torch_arm()} | {name: ours[name] for name in best}
    chosen_by = sample(arms, routed, problem, CHOSEN, seed + 1)
    del routed, ours, arms
    failed = {}
    for name in fastest(chosen_by):
        verdict = passes(fitting[name], seed)
        if not isinstance(verdict, str):
            break
        failed[name] = verdict
    else:
        return {"failed": failed}
    routed = Routed(problem, seed + 2)
    torchs = routed.torch_arm()
    arms = {TORCH: torchs, AGAIN: torchs, "ours": routed.our_arm(fitting[name])}
    confirmed = sample(arms, routed, problem, CONFIRMED, seed + 3)
    entry = fitting[name].entry
    gain = evidence.ratio(confirmed[TORCH], confirmed["ours"])
    floor = evidence.ratio(confirmed[TORCH], confirmed[AGAIN])
    return {
        "built": {field: getattr(entry, field) for field in ("id", "name", "genome")},
        "screened": {each: round(median(us), 3) for each, us in screened.items()},
        "chosen": {each: round(median(us), 3) for each, us in chosen_by.items()},
        "us": {each: [round(us, 3) for us in confirmed[each]] for each in confirmed},
        "speedup": dataclasses.asdict(gain),
        "noise": [floor.value, floor.lcb, floor.ucb],
        "numerics": verdict,
        "experts": routed.touched,
        "failed": failed,
    }


def every_case(rows: Sequence[int], layouts: Sequence[str]) -> Iterator[Case]:
    for layer in LAYERS:
        for layout in layouts:
            for count in rows:
                yield Case(layer, layout, count)


def run(options: argparse.Namespace) -> int:
    kernels = load_all(options.folder, DEVICE.index)
    known = read_lines(options.out)
    done = {tuple(line["case"]) for line in known if "case" in line}
    info = launcher.device_info(DEVICE.index)
    header = {
        "benchmark": "grouped",
        "device": dataclasses.asdict(info),
        "versions": runtime_versions(DEVICE.index),
        "seed": options.seed,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    append(options.out, {"header": header})
    for case in every_case(options.rows, options.layouts):
        if (*case,) in done:
            continue
        line = measure(case, kernels, options.seed)
        append(options.out, {"case": [*case], **line})
        said = line.get("speedup", {}).get("value", 0.0)
        print(f"{case.layer:22} {case.layout} {case.rows:6} {said:.3f}", flush=True)
        torch.cuda.empty_cache()
    return 0


def gate_all(options: argparse.Namespace) -> int:
    kernels = list(load_all(options.folder, DEVICE.index).values())[:: options.every]
    wrong = 0
    for kernel in kernels:
        verdict = passes(kernel, options.seed)
        wrong += isinstance(verdict, str)
        print(kernel.entry.name, verdict, flush=True)
    print(f"{len(kernels) - wrong} of {len(kernels)} kernels are right")
    return int(wrong > 0)


def append(path: Path, line: Mapping[str, Any]) -> None:
    """One line more, on disk before the next is measured."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What is there; a line that a killed run left half is left out."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return found


def pack(options: argparse.Namespace) -> int:
    lines = read_lines(options.lines)
    headers = [line["header"] for line in lines if "header" in line]
    measured = [(Case(*line["case"]).problem, line) for line in lines if "us" in line]
    made = write_pack(headers[-1], measured, options.source, options.pack)
    served = sum(row.kernel is not None for row in made.manifest.grouped)
    print(
        f"wrote {options.source} and {options.pack}: {served} of {len(measured)} rows have kernels"
    )
    return 0


def whole_numbers(text: str) -> list[int]:
    return [*map(int, text.split(","))]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("build", "gate", "run"):
        own = verbs.add_parser(verb)
        own.add_argument("folder", type=Path, metavar="DIR")
        own.add_argument("--seed", type=int, default=26)
        if verb == "gate":
            own.add_argument("--every", type=int, default=1)
        if verb == "run":
            own.add_argument("out", type=Path, metavar="OUT.jsonl")
            own.add_argument("--rows", type=whole_numbers, default=ROWS)
            own.add_argument("--layouts", type=lambda text: text.split(","), default=["nt"])
    packer = verbs.add_parser("pack")
    packer.add_argument("lines", type=Path, metavar="OUT.jsonl")
    packer.add_argument("source", type=Path, metavar="SOURCE_DIR")
    packer.add_argument("pack", type=Path, metavar="PACK_DIR")
    options = parser.parse_args(arguments)
    if options.verb == "build":
        print(f"{build(options.folder)} kernels in {options.folder}")
        return 0
    verb: Callable[[argparse.Namespace], int] = {"gate": gate_all, "run": run, "pack": pack}[
        options.verb
    ]
    return verb(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
