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
import sys
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.measure import candidates, grouped_kernels
from benchmarks.measure.candidates import AGAIN, DEVICE, OURS, SPEED, TORCH, Loaded, load_all
from hgemm_packs import launcher
from hgemm_packs.generator.gates import grouped as gate
from hgemm_packs.generator.gates.checker import Numeric
from hgemm_packs.measure import evidence
from hgemm_packs.measure.operands import Operands
from hgemm_packs.measure.replay import Arm
from hgemm_packs.measure.timing import TimingPlan
from hgemm_packs.problem import GroupedProblem

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
    return candidates.time_blocks(arms, how, blocks, seed)


def check(kernel: Loaded, seed: int) -> Numeric:
    """The numeric gate of a kernel."""

    def launch(*operands: torch.Tensor) -> None:
        launcher.launch_grouped(kernel.kernel, *operands)

    return gate.check(kernel.entry, launch, DEVICE, seed)


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
    name, numerics, failed = candidates.first_right(check, fastest(chosen_by), fitting, seed)
    if name is None:
        return {"failed": failed}
    winner = fitting[name]
    routed = Routed(problem, seed + 2)
    torchs = routed.torch_arm()
    arms = {TORCH: torchs, AGAIN: torchs, OURS: routed.our_arm(winner)}
    confirmed = sample(arms, routed, problem, CONFIRMED, seed + 3)
    gain = evidence.ratio(confirmed[TORCH], confirmed[OURS])
    floor = evidence.ratio(confirmed[TORCH], confirmed[AGAIN])
    return {
        "built": {field: getattr(winner.entry, field) for field in ("id", "name", "genome")},
        "screened": {each: round(median(us), 3) for each, us in screened.items()},
        "chosen": {each: round(median(us), 3) for each, us in chosen_by.items()},
        "us": {each: [round(us, 3) for us in confirmed[each]] for each in confirmed},
        "speedup": dataclasses.asdict(gain),
        "noise": [floor.value, floor.lcb, floor.ucb],
        "numerics": numerics,
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
    done = candidates.done_cases(options.out)
    candidates.append_header(options.out, "grouped", options.seed)
    for case in every_case(options.rows, options.layouts):
        if (*case,) in done:
            continue
        line = measure(case, kernels, options.seed)
        candidates.append(options.out, {"case": [*case], **line})
        said = line.get("speedup", {}).get("value", 0.0)
        print(f"{case.layer:22} {case.layout} {case.rows:6} {said:.3f}", flush=True)
        torch.cuda.empty_cache()
    return 0


def build_all(options: argparse.Namespace) -> int:
    candidates.build(options.folder, grouped_kernels.FAMILY, grouped_kernels.genomes())
    return 0


def pack(options: argparse.Namespace) -> int:
    header, lines = candidates.measured_lines(options.lines)
    measured = [(Case(*line["case"]).problem, line) for line in lines]
    made = grouped_kernels.write_pack(header, measured, options.source, options.pack)
    served = sum(row.kernel is not None for row in made.manifest.grouped)
    candidates.say_written(options, served, len(measured))
    return 0


def whole_numbers(text: str) -> list[int]:
    return [*map(int, text.split(","))]


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=whole_numbers, default=ROWS)
    parser.add_argument("--layouts", type=lambda text: text.split(","), default=["nt"])


def main(arguments: Sequence[str]) -> int:
    verbs: dict[str, candidates.Verb] = {"build": build_all, "run": run, "pack": pack}
    verbs["gate"] = lambda options: candidates.gate_all(check, options)
    return candidates.main(__doc__, arguments, verbs, add_run_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
