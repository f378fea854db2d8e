"""What a call costs the host: matmul and a layer against torch on the same tensors, in one process.

python -m benchmarks.host.host_cost [OUT.json] needs a GPU and a pack on HGEMM_PACKS_PATH.

All arms run in every round, in random order, in blocks of a few calls with a synchronise
before each block: the launch queue never fills, so the GPU's own speed does not show. The problem
is so small that the GPU keeps up anyway. A figure is the median over rounds of a block's mean.

A name begins with the path that its calls take, `hit` or `miss`, or with `torch`; `grad` at the end
means that a gradient is recorded, which torch does of these small products, whether or not there
is a kernel; `hit.grad` is of a product that is large enough, `hit.backward` of one gradient.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import json
import os
import platform
import random
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns
from typing import Any

import torch

from hgemm_packs import launcher, matmul, profiles, report, select, torch_state
from hgemm_packs.nn import Linear
from hgemm_packs.problem import Problem

OUT = Path(__file__).resolve().parents[1] / "results" / "host_cost.json"
CALLS = 50
ROUNDS = 400
WARM_ROUNDS = 20
#: What a miss costs more than torch is known to 0.1 us by then. From NEAR_US on it is measured on,
#: in so many times the rounds: the dearest of a dozen would else be one that had bad luck.
NEAR_US, AGAIN = 0.15, 4
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}

#: Aligned and packed, so they are looked up, and on no grid, so they are not in the table.
MISS = Problem(72, 72, 72, "nn", "f16")
MISS_LAYER = Problem(72, 72, 72, "nt", "f16")

Arm = Callable[[], Any]


MODES: dict[str, Callable[[], Any]] = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "grad": contextlib.nullcontext,
}


def smallest_win(*layouts: str, least: float = 0.0) -> Problem:
    """The smallest problem of these layouts that an installed pack has a kernel for on device 0, of
    those with `least` operations: one product of packed operands at aligned addresses."""
    here = launcher.device_info(0)
    wins = [
        Problem(*row.key)
        for manifest, profile in profiles.find_measured(select.find_packs().packs, here)
        for row in manifest.table
        if row.layout in layouts
        and row.kernel
        and row.profile == profile.name
        and manifest.policy.clears(row)
        and 2 * row.m * row.n * row.k >= least
    ]
    wins = [p for p in wins if p == Problem(p.m, p.n, p.k, p.layout, p.dtype) and p.align == 16]
    if not wins:
        sys.exit("no installed pack has a win on this device: nothing to measure")
    return min(wins, key=lambda p: (p.m * p.n * p.k, str(p)))


def operands(p: Problem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """a [M, K], b [K, N] stored as the layout says, and c [M, N]."""
    dtype = DTYPES[p.dtype]
    a = torch.randn(p.m, p.k, device="cuda").to(dtype)
    b = torch.randn(p.k, p.n, device="cuda").to(dtype)
    if p.layout[0] == "t":
        a = a.t().contiguous().t()
    if p.layout[1] == "t":
        b = b.t().contiguous().t()
    return a, b, torch.empty(p.m, p.n, device="cuda", dtype=dtype)


def guard_block(guard: Callable[[], Any], block: Arm) -> Arm:
    def run() -> None:
        with guard():
            block()

    return run


def block_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Arm:
    """A block of CALLS calls. The call site is written out: unpacking would cost as much as it."""
    calls = range(CALLS)
    if "out" in kwargs:
        a, b = args
        out = kwargs["out"]

        def run() -> None:
            for _ in calls:
                function(a, b, out=out)
    elif len(args) == 1:
        (x,) = args

        def run() -> None:
            for _ in calls:
                function(x)
    elif args:
        a, b = args

        def run() -> None:
            for _ in calls:
                function(a, b)
    else:

        def run() -> None:
            for _ in calls:
                function()

    return run


def layers(p: Problem) -> tuple[torch.Tensor, torch.nn.Linear, torch.nn.Linear]:
    """x [M, K], and two layers of one weight: torch's, and ours."""
    x, weight, _ = operands(p)
    theirs = torch.nn.Linear(p.k, p.n, bias=False, device="cuda", dtype=DTYPES[p.dtype])
    with torch.no_grad():
        theirs.weight.copy_(weight.t())
    ours = Linear(p.k, p.n, bias=False, device="cuda", dtype=DTYPES[p.dtype])
    ours.weight = theirs.weight
    return x, theirs, ours


def in_every_mode(hit: Problem) -> dict[str, Arm]:
    """Misses of matmul and of a layer, and a layer that has a kernel, beside torch's."""
    a, b, out = operands(MISS)
    with_grad = a.clone().requires_grad_()
    found = {}
    for mode, guard in MODES.items():
        x = with_grad if mode == "grad" else a
        for prefix, function in (("miss", matmul), ("miss.torch.matmul", torch.matmul)):
            found[f"{prefix}.alloc.{mode}"] = guard_block(guard, block_of(function, x, b))
            if mode != "grad":
                found[f"{prefix}.out.{mode}"] = guard_block(
                    guard, block_of(function, x, b, out=out)
                )
        for problem, name in ((MISS_LAYER, "layer"), (hit, "layer.kernel")):
            x, theirs, ours = layers(problem)
            path = "hit" if problem is hit and mode != "grad" else "miss"
            found[f"{path}.{name}.{mode}"] = guard_block(guard, block_of(ours, x))
            found[f"{path}.torch.Linear.{name}.{mode}"] = guard_block(guard, block_of(theirs, x))
    return found


def record_arms(p: Problem) -> dict[str, Arm]:
    """A product whose gradient is recorded, and the one gradient of it, beside torch's; the latter
    where it has a kernel, too."""
    a, b, slope = operands(p)
    a.requires_grad_()
    found = {
        "hit.grad": block_of(matmul, a, b),
        "torch.matmul.grad": block_of(torch.matmul, a, b),
    }
    before = launcher.counters()["fallbacks"]
    for name, product in (("hit", matmul), ("torch.matmul", torch.matmul)):
        back = functools.partial(torch.autograd.grad, product(a, b), a, slope, retain_graph=True)
        back()
        found[f"{name}.backward"] = block_of(back)
    if launcher.counters()["fallbacks"] > before:
        del found["hit.backward"]
    return found


def arms(hit: Problem, hit_layer: Problem, large: Problem) -> dict[str, Arm]:
    """Every block by name."""
    a, b, c = operands(hit)
    x, y, z = operands(MISS)
    empty, device, dtype, size = torch.empty, c.device, c.dtype, tuple(c.shape)
    found = {
        "hit.out": block_of(matmul, a, b, out=c),
        "hit.alloc": block_of(matmul, a, b),
        "torch.mm.out": block_of(torch.mm, a, b, out=c),
        "torch.mm.alloc": block_of(torch.mm, a, b),
        "torch.matmul.out": block_of(torch.matmul, a, b, out=c),
        "torch.matmul.alloc": block_of(torch.matmul, a, b),
        "hit.out.no_grad": guard_block(torch.no_grad, block_of(matmul, a, b, out=c)),
        "hit.out.inference_mode": guard_block(torch.inference_mode, block_of(matmul, a, b, out=c)),
        "miss.out": block_of(matmul, x, y, out=z),
        "miss.alloc": block_of(matmul, x, y),
        "miss.torch.matmul.out": block_of(torch.matmul, x, y, out=z),
        "miss.torch.matmul.alloc": block_of(torch.matmul, x, y),
        "miss.torch.mm.out": block_of(torch.mm, x, y, out=z),
        "miss.torch.mm.alloc": block_of(torch.mm, x, y),
        "empty": block_of(lambda: empty(size, device=device, dtype=dtype)),
        "new_empty": block_of(lambda: a.new_empty(size)),
        "no call": block_of(lambda: None),
    }
    return found | in_every_mode(hit_layer) | record_arms(large)


def group_arms(names: list[str]) -> list[list[str]]:
    """A way of missing beside torch's own call of it: a host's pace drifts by more than they differ
    within a round, and seldom between two blocks."""
    pairs = [[name, torchs_own(name)] for name in names if path_of(name) == "fallbacks"]
    paired = {name for pair in pairs for name in pair}
    return pairs + [[name] for name in names if name not in paired]


def measure(blocks: dict[str, Arm], rounds: int) -> dict[str, list[float]]:
    """Microseconds per call of every round, by arm."""
    samples: dict[str, list[float]] = {name: [] for name in blocks}
    groups = group_arms([*blocks])
    shuffled = random.Random(0)
    for turn in range(WARM_ROUNDS + rounds):
        shuffled.shuffle(groups)  # an arm costs more behind some than behind others
        for group in groups:
            shuffled.shuffle(group)
        for name in itertools.chain.from_iterable(groups):
            block = blocks[name]
            torch.cuda.synchronize()
            start = perf_counter_ns()
            block()
            took = perf_counter_ns() - start
            if turn >= WARM_ROUNDS:
                samples[name].append(took / CALLS / 1e3)
    torch.cuda.synchronize()
    return samples


def spread(values: list[float]) -> dict[str, float]:
    deciles = quantiles(values, n=10)
    figures = {"median": median(values), "p10": deciles[0], "p90": deciles[-1], "min": min(values)}
    return {name: round(value, 4) for name, value in figures.items()}


def difference(samples: dict[str, list[float]], one: str, other: str) -> float:
    """Median over rounds of what `one` costs more than `other` in the same round."""
    return median(x - y for x, y in zip(samples[one], samples[other], strict=True))


def path_of(name: str) -> str:
    """What an arm's calls are counted as: "hits", "fallbacks", or nothing for those of torch."""
    path = name.partition(".")[0]
    return "" if "torch" in name else {"hit": "hits", "miss": "fallbacks"}.get(path, "")


def check_counters(rounds: dict[str, int], before: dict[str, int], after: dict[str, int]) -> None:
    """Every call that claims a kernel had one, and the others had none; rounds by arm."""
    wanted = dict.fromkeys(("hits", "fallbacks"), 0)
    for name, count in rounds.items():
        if path := path_of(name):
            wanted[path] += count * CALLS
    moved = {name: after[name] - before[name] for name in wanted}
    if moved != wanted:
        sys.exit(f"calls did not take their paths: {moved}, wanted {wanted}; {after}")


def torchs_own(name: str) -> str:
    """The arm of torch that a way of missing is held against."""
    kind = name.removeprefix("miss.")
    return f"miss.torch.{'Linear' if kind.startswith('layer') else 'matmul'}.{kind}"


def extra_of_misses(samples: dict[str, list[float]]) -> dict[str, float]:
    """Microseconds that each way of missing costs more than torch's own call."""
    extra = {}
    for name in samples:
        if path_of(name) == "fallbacks":
            extra[name.removeprefix("miss.")] = round(
                difference(samples, name, torchs_own(name)), 4
            )
    return extra


def main(out: Path) -> None:
    os.environ["HGEMM_PACKS_PREDICT"] = "0"  # a miss stays one
    hit, hit_layer = smallest_win("nn", "nt", "tn", "tt"), smallest_win("nt")
    large = smallest_win("nn", "nt", least=torch_state.LEAST_RECORDED)
    blocks = arms(hit, hit_layer, large)
    before = launcher.counters()
    gc.collect()
    gc.disable()
    samples = measure(blocks, ROUNDS)
    rounds = dict.fromkeys(blocks, WARM_ROUNDS + ROUNDS)
    dear = [name for name, us in extra_of_misses(samples).items() if us > NEAR_US]
    dear = [name for way in dear for name in (f"miss.{way}", torchs_own(f"miss.{way}"))]
    for name, more in measure({name: blocks[name] for name in dear}, AGAIN * ROUNDS).items():
        samples[name] += more
        rounds[name] += WARM_ROUNDS + AGAIN * ROUNDS
    gc.enable()
    check_counters(rounds, before, launcher.counters())
    medians = {name: median(values) for name, values in samples.items()}
    extra = extra_of_misses(samples)
    of_layers = {kind: extra.pop(kind) for kind in [*extra] if kind.startswith("layer")}
    layer_hit = medians["hit.layer.kernel.inference_mode"]
    result = {
        "hit_ratio": round(medians["hit.out"] / medians["torch.mm.out"], 4),
        "hit_ratio_alloc": round(medians["hit.alloc"] / medians["torch.mm.alloc"], 4),
        "miss_extra_us": max(extra.values()),
        "miss_extra_us_by_call": extra,
        "layer_hit_ratio": round(
            layer_hit / medians["hit.torch.Linear.layer.kernel.inference_mode"], 4
        ),
        "layer_miss_extra_us": max(of_layers.values()),
        "layer_miss_extra_us_by_mode": of_layers,
        "us_per_call": {name: spread(values) for name, values in samples.items()},
        "blocks_us": {name: [round(v, 3) for v in values] for name, values in samples.items()},
        "problem": {"hit": str(hit), "miss": str(MISS), "grad": str(large)},
        "layer": {"hit": str(hit_layer), "miss": str(MISS_LAYER)},
        "protocol": f"{ROUNDS} rounds, in random order, of blocks of {CALLS} calls, synchronise "
        "before each block, a miss beside torch's own call; medians over rounds, of a miss that "
        f"costs {NEAR_US} us more over {1 + AGAIN} times as many; miss_extra_us and "
        "layer_miss_extra_us are the largest of the call forms and of inference mode, no_grad and "
        "a recorded gradient",
        "machine": {
            "device": torch.cuda.get_device_name(0),
            "cpu": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            **report.runtime_versions(0),
        },
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for name, value in sorted(medians.items(), key=lambda item: item[1]):
        print(f"{name:44} {value:8.3f} us")
    for name in ("hit_ratio", "miss_extra_us", "layer_hit_ratio", "layer_miss_extra_us"):
        print(name, result[name])
    print(f"wrote {out}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
