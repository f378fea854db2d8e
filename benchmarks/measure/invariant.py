"""The batch-invariant mode on layers of real models: whether each row keeps its bits at every M,
and what that costs against cuBLAS.

    python -m benchmarks.measure.invariant PACK OUT.json [--commit COMMIT]

needs one GPU and takes it 60 to 90 s. OUT.json is written after each layer, and layers that it has
are not measured again.

A row of C is compared bit by bit with that row of the product of all MOST rows: in products of the
first M rows, of M rows from a random one on, and of the first M rows in a CUDA graph. Times are of
public `matmul` in the mode and of torch.mm, hot, in CUDA graphs that take turns in random order.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import hgemm_packs
from hgemm_packs.measure import timing
from hgemm_packs.measure.operands import DTYPES, Operands, operands
from hgemm_packs.measure.replay import Replay, stage
from hgemm_packs.problem import Problem

#: Layers, N and K: Llama 3.1 8B and 70B by 8, Qwen2.5 7B, Qwen3 8B and 32B, Mistral Small 24B.
LAYERS = (
    (1024, 4096),
    (6144, 4096),
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (1280, 8192),
    (8192, 3584),
    (4608, 3584),
    (3584, 18944),
    (5120, 5120),
)
MOST = 4096
VALUES = 64
BLOCKS, TARGET_US = 5, 300.0

Matmul = Callable[..., torch.Tensor]


def values_of_m() -> list[int]:
    """As many small as large ones, most of them odd: half are 1 to MOST by equal factors, half are
    drawn, and both ends are there."""
    draw = random.Random(0)
    found = {1, MOST} | {round(MOST ** (i / 40)) for i in range(41)}
    while len(found) < VALUES:
        found.add(draw.randrange(1, MOST) | 1)
    return sorted(found)


def count_equal(c: torch.Tensor, wanted: torch.Tensor) -> int:
    """How many rows are the same in every bit."""
    return int((c.view(torch.int16) == wanted.view(torch.int16)).all(dim=1).sum())


def replay(matmul: Matmul, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product as a CUDA graph leaves it behind."""
    out = a.new_empty(len(a), b.shape[1])
    at = stage(a.device.index)
    with at.active():
        # Not torch.cuda.graph, which collects garbage each time.
        graph = Replay(lambda a, b, c: matmul(a, b, out=c), [Operands(a, b, out)], 1)
        out.fill_(math.nan)
        graph.queue()
        at.stream.synchronize()
        graph.free()
    return out


def compare_rows(
    matmul: Matmul, a: torch.Tensor, b: torch.Tensor, values: Iterable[int]
) -> dict[str, int]:
    """Rows compared, and rows that were equal: of [MOST, K] and [K, N]. In the mode."""
    most, draw = len(a), random.Random(1)
    whole = matmul(a, b)
    equal = total = 0
    for m in values:
        start = draw.randrange(most - m + 1)
        equal += count_equal(matmul(a[:m], b), whole[:m])
        equal += count_equal(matmul(a[start : start + m], b), whole[start : start + m])
        total += 2 * m
        if a.is_cuda:
            equal, total = equal + count_equal(replay(matmul, a[:m], b), whole[:m]), total + m
    return {"rows": total, "equal": equal}


def measure_layer(n: int, k: int, dtype: str, values: Sequence[int]) -> dict[str, Any]:
    """One layer at all M: equal rows, and torch's time over ours."""
    (one,) = operands(Problem(MOST, n, k, "nt", dtype), 0, seed=n + k)
    found: dict[str, Any] = {"n": n, "k": k, "dtype": dtype}
    with torch.inference_mode():
        found |= compare_rows(hgemm_packs.matmul, one.a, one.b, values)
    del one
    arms = {
        "torch": timing.torch_mm,
        "ours": lambda a, b, c: hgemm_packs.matmul(a, b, out=c),
    }
    found["us"] = {}
    for m in values:
        problem = Problem(m, n, k, "nt", dtype)
        result = timing.compare(arms, problem, blocks=BLOCKS, target_us=TARGET_US, seed=m)
        found["us"][str(m)] = {arm: round(result.median_us(arm), 3) for arm in arms}
    return found


def figures(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The share of rows that are equal, and torch's time over ours: mean, worst, and of which."""
    rows, equal = (sum(each[name] for each in layers) for name in ("rows", "equal"))
    ratios = {
        f"{m}x{each['n']}x{each['k']} nt {each['dtype']}": us["torch"] / us["ours"]
        for each in layers
        for m, us in each["us"].items()
    }
    worst = min(ratios, key=lambda name: ratios[name])
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    return {
        # Down, so that no row that differs is rounded away.
        "equal": math.floor(equal / rows * 1e6) / 1e6,
        "gmean_vs_cublas": round(mean, 4),
        "worst_vs_cublas": round(ratios[worst], 4),
        "worst_case": worst,
        "rows_compared": rows,
        "products": len(ratios),
        "layers": len({(each["n"], each["k"]) for each in layers}),
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--commit", help="of the sources")
    given = parser.parse_args(arguments)
    os.environ["HGEMM_PACKS_PATH"] = str(given.pack.resolve())
    document: dict[str, Any] = {
        "benchmark": "invariant",
        "commit": given.commit,
        "settings": {"blocks": BLOCKS, "target_us": TARGET_US, "values": values_of_m()},
        "machine": {
            "device": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "layers": [],
    }
    if given.out.exists():
        document["layers"] = json.loads(given.out.read_text(encoding="utf-8"))["layers"]
    done = {(each["n"], each["k"], each["dtype"]) for each in document["layers"]}
    with hgemm_packs.options(batch_invariant=True):
        for dtype in DTYPES:
            for n, k in LAYERS:
                if (n, k, dtype) in done:
                    continue
                layer = measure_layer(n, k, dtype, values_of_m())
                document["layers"].append(layer)
                document["figures"] = figures(document["layers"])
                given.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
                print(n, k, dtype, json.dumps(figures([layer])), flush=True)
    print(json.dumps(document["figures"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
