"""Batches of products: our kernels against torch.bmm and torch.baddbmm.

    python -m benchmarks.measure.batched build DIR             # compiles the candidates, no GPU
    python -m benchmarks.measure.batched gate DIR [--every N]  # each Nth against float64
    python -m benchmarks.measure.batched run DIR OUT.jsonl [--only scores,values]
    python -m benchmarks.measure.batched pack OUT.jsonl SOURCE_DIR PACK_DIR

`run` goes on where an earlier run stopped; its lines belong to results/batched/. Problems are
scores and values of attention, a product for each head of each sequence; experts with as many
tokens each; and small square matrices. Batches that are not packed have rows in turn, as heads have
them. A hot sample is a CUDA graph of calls on one set of operands, a cold one goes round more than
three times the L2. All candidates are screened hot, the best BEST and torch are measured hot and
cold, block by block in random order, and the best of these is measured again, with other operands,
beside torch twice: that second measurement is the row, and torch against itself the noise floor.
The kernel of a row has passed the numeric gate in the same run.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.measure import batched_kernels, candidates
from benchmarks.measure.candidates import AGAIN, DEVICE, OURS, SPEED, TORCH, Loaded, load_all
from hgemm_packs import launcher
from hgemm_packs.generator.gates import batched as gate
from hgemm_packs.generator.gates.checker import Numeric
from hgemm_packs.measure import evidence
from hgemm_packs.measure.batches import batch
from hgemm_packs.measure.kernel_arm import KernelArm
from hgemm_packs.measure.operands import Operands, cold_sets
from hgemm_packs.measure.replay import Arm, stage
from hgemm_packs.measure.timing import TimingPlan
from hgemm_packs.problem import Problem, set_bytes

BEST = 3
SCREENED, CHOSEN, CONFIRMED = 3, 7, 31  # blocks
TARGET_US = {SCREENED: 600.0, CHOSEN: 1_500.0, CONFIRMED: 1_500.0}
PROTOCOLS = ("hot", "cold")
MOST_SETS = 64

#: Heads and their size of Llama 3 8B or Qwen3 8B, Qwen3 32B, gpt-oss 120B, a small encoder.
HEADS = {"8b": (32, 128), "32b": (64, 128), "gpt_oss": (64, 64), "encoder": (192, 64)}
#: Model, sequences, queries a head (times the heads that share a key, where so), keys.
ATTENTION = (
    ("8b", 1, 1, 4096),
    ("8b", 8, 1, 1024),
    ("8b", 8, 4, 4096),
    ("8b", 1, 512, 512),
    ("8b", 1, 2048, 2048),
    ("32b", 4, 8, 2048),
    ("32b", 1, 1024, 1024),
    ("gpt_oss", 1, 512, 512),
    ("gpt_oss", 4, 1, 2048),
    ("encoder", 1, 200, 200),
    ("encoder", 1, 256, 256),
)
#: Experts, tokens of each, outputs, inputs.
EXPERTS = (
    (8, 16, 14336, 4096),
    (8, 128, 14336, 4096),
    (8, 1024, 4096, 4096),
    (32, 32, 4096, 7168),
    (32, 128, 2048, 7168),
    (64, 256, 2048, 1536),
)
SQUARES = ((1024, 64), (512, 96), (256, 128), (64, 256), (32, 512))
SUMS = ((512, 128), (64, 512))


class Case(NamedTuple):
    kind: str
    batches: int
    m: int
    n: int
    k: int
    layout: str
    dtype: str
    packed: bool
    epilogue: str

    @property
    def problem(self) -> Problem:
        kind = {"epilogue": self.epilogue, "packed": self.packed, "batches": self.batches}
        return Problem(self.m, self.n, self.k, self.layout, self.dtype, **kind)  # type: ignore[arg-type]


def _attention(dtype: str, packed: bool) -> Iterator[Case]:
    for model, sequences, queries, keys in ATTENTION:
        heads, size = HEADS[model]
        shared = queries if queries in (4, 8) else 1  # heads that share their keys
        batches = heads * sequences // shared
        yield Case("scores", batches, queries, keys, size, "nt", dtype, packed, "none")
        yield Case("values", batches, queries, size, keys, "nn", dtype, packed, "none")


def every_case() -> Iterator[Case]:
    """The problems, bf16 first."""
    yield from _attention("bf16", True)
    for experts, tokens, outputs, inputs in EXPERTS:
        for layout in ("nt", "nn") if tokens == 128 else ("nt",):
            yield Case("experts", experts, tokens, outputs, inputs, layout, "bf16", True, "none")
    for batches, side in SQUARES:
        for layout in ("nn", "nt"):
            yield Case("squares", batches, side, side, side, layout, "bf16", True, "none")
    for batches, side in SUMS:
        yield Case("sums", batches, side, side, side, "nn", "bf16", True, "residual")
    yield from (each for each in _attention("bf16", False) if each.m > 8)
    yield from (each for each in _attention("f16", True) if each.m in (1, 512))
    for batches, side in SQUARES[:4]:
        yield Case("squares", batches, side, side, side, "nn", "f16", True, "none")


class Drawn:
    """The operands of one problem, and arms of them."""

    def __init__(self, problem: Problem, seed: int, protocol: str) -> None:
        source = torch.Generator(DEVICE).manual_seed(seed)
        needed = cold_sets(problem, stage(DEVICE.index).l2_bytes) if protocol == "cold" else 1
        self.sets = [batch(problem, source) for _ in range(min(MOST_SETS, needed))]
        self.adds = problem.epilogue == "residual"
        self.addends = (
            {each.c.data_ptr(): _alike(each, source) for each in self.sets} if self.adds else {}
        )

    def torch_arm(self) -> Arm:
        if not self.adds:
            return lambda a, b, c: torch.bmm(a, b, out=c)
        more = self.addends
        return lambda a, b, c: torch.baddbmm(more[c.data_ptr()], a, b, out=c)

    def our_arm(self, kernel: Loaded) -> Arm:
        own, more = kernel.kernel, self.addends
        return lambda a, b, c: launcher.launch(own, a, b, c, addend=more.get(c.data_ptr()))


def _alike(one: Operands, source: torch.Generator) -> torch.Tensor:
    drawn = torch.empty_like(one.c)
    return drawn.normal_(generator=source)


def sample(
    arms: Callable[[Drawn], Mapping[str, Arm]],
    problem: Problem,
    protocol: str,
    blocks: int,
    seed: int,
) -> dict[str, list[float]]:
    """us a call of each arm, block by block in random order."""
    drawn = Drawn(problem, seed, protocol)
    work = 2.0 * problem.batches * problem.m * problem.n * problem.k
    us = max(set_bytes(problem) / SPEED[0], work / SPEED[1], 2.0)
    count = len(drawn.sets)
    calls = math.ceil(max(1.0, TARGET_US[blocks] / us) / count) * count
    how = TimingPlan(drawn.sets, calls, flushed=protocol == "cold" and count == MOST_SETS)
    return candidates.time_blocks(arms(drawn), how, blocks, seed)


def check(kernel: Loaded, seed: int) -> Numeric:
    """The numeric gate of a kernel."""
    arm = KernelArm(kernel.kernel, kernel.entry.epilogue)
    return gate.check(kernel.entry, arm, DEVICE, seed)


def fastest(samples: Sequence[Mapping[str, Sequence[float]]]) -> list[str]:
    """Our kernels, that first whose product of times is the least."""
    names = samples[0].keys() - {TORCH, AGAIN}
    return sorted(names, key=lambda name: math.prod(median(each[name]) for each in samples))


def measure(case: Case, kernels: Mapping[str, Loaded], seed: int) -> dict[str, Any]:
    """The line of a case."""
    problem = case.problem
    fitting = {name: each for name, each in kernels.items() if not each.entry.admits(problem)}

    def ours(names: Sequence[str]) -> Callable[[Drawn], dict[str, Arm]]:
        return lambda drawn: {name: drawn.our_arm(fitting[name]) for name in names}

    def beside_torch(names: Sequence[str]) -> Callable[[Drawn], dict[str, Arm]]:
        return lambda drawn: {TORCH: drawn.torch_arm()} | ours(names)(drawn)

    screened = sample(ours([*fitting]), problem, "hot", SCREENED, seed)
    best = fastest([screened])[:BEST]
    chosen_by = {
        each: sample(beside_torch(best), problem, each, CHOSEN, seed + 1) for each in PROTOCOLS
    }
    name, numerics, failed = candidates.first_right(
        check, fastest([*chosen_by.values()]), fitting, seed
    )
    if name is None:
        return {"failed": failed}
    winner = fitting[name]

    def confirmed_arms(drawn: Drawn) -> dict[str, Arm]:
        torchs = drawn.torch_arm()
        return {TORCH: torchs, AGAIN: torchs, OURS: drawn.our_arm(winner)}

    us = {each: sample(confirmed_arms, problem, each, CONFIRMED, seed + 2) for each in PROTOCOLS}
    gains = {each: evidence.ratio(us[each][TORCH], us[each][OURS]) for each in PROTOCOLS}
    floors = {each: evidence.ratio(us[each][TORCH], us[each][AGAIN]) for each in PROTOCOLS}
    return {
        "built": {field: getattr(winner.entry, field) for field in ("id", "name", "genome")},
        "screened": {each: round(median(found), 3) for each, found in screened.items()},
        "chosen": {
            each: {name: round(median(found), 3) for name, found in chosen_by[each].items()}
            for each in PROTOCOLS
        },
        "us": {
            each: {name: [round(x, 3) for x in found] for name, found in us[each].items()}
            for each in PROTOCOLS
        },
        "speedup": {each: dataclasses.asdict(gain) for each, gain in gains.items()},
        "noise": {each: [floor.value, floor.lcb, floor.ucb] for each, floor in floors.items()},
        "numerics": numerics,
        "failed": failed,
    }


def run(options: argparse.Namespace) -> int:
    kernels = load_all(options.folder, DEVICE.index)
    done = candidates.done_cases(options.out)
    candidates.append_header(options.out, "batched", options.seed)
    start = time.monotonic()
    for case in every_case():
        wanted = not options.only or case.kind in options.only
        if (*case,) in done or not wanted:
            continue
        if options.deadline and time.monotonic() - start > options.deadline:
            break
        line = measure(case, kernels, options.seed)
        candidates.append(options.out, {"case": [*case], **line})
        gains = [each["value"] for each in line.get("speedup", {}).values()]
        said = " ".join(f"{each:.3f}" for each in gains)
        print(f"{case.kind:8} {case.problem!s:44} {said}", flush=True)
        torch.cuda.empty_cache()
    return 0


def build_all(options: argparse.Namespace) -> int:
    """Compile the candidates, and of those for sums every third."""
    adding = list(batched_kernels.genomes("residual"))[::3]
    genomes = [*batched_kernels.genomes(), *adding]
    candidates.build(options.folder, batched_kernels.FAMILY, genomes)
    return 0


def pack(options: argparse.Namespace) -> int:
    header, lines = candidates.measured_lines(options.lines)
    measured = [(Case(*line["case"]).problem, line) for line in lines]
    made = batched_kernels.write_pack(header, measured, options.source, options.pack)
    served = sum(row.kernel is not None for row in made.manifest.table)
    candidates.say_written(options, served, len(measured))
    return 0


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--deadline", type=float, help="seconds, then no other problem begins")


def main(arguments: Sequence[str]) -> int:
    verbs: dict[str, candidates.Verb] = {"build": build_all, "run": run, "pack": pack}
    verbs["gate"] = lambda options: candidates.gate_all(check, options)
    return candidates.main(__doc__, arguments, verbs, add_run_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
