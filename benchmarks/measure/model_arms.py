"""A step of a whole model in a mode, ready to be timed: eager, in a CUDA graph, or compiled.

Used by benchmarks/measure/models.py, which says what the modes are.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.measure.language_models import Step
from benchmarks.publish.models_summary import COMPILED
from hgemm_packs import launcher

WARM_UPS = 3
#: Bytes that a capture leaves free, at most, in torch's pools of small and of large pieces.
GAPS = (2**20, 2**25)

Logits = Callable[[], torch.Tensor]


@contextlib.contextmanager
def count_calls(into: Counter[str]) -> Iterator[None]:
    """What becomes of the calls of `matmul` meanwhile: "kernels", or the reason of a fallback."""
    before = launcher.counters()
    yield
    now = launcher.counters()
    for name, count in now.items():
        if name == "hits" or name.startswith("fallback "):
            word = "kernels" if name == "hits" else name.removeprefix("fallback ")
            into[word] += count - before.get(name, 0)


def count_compiled_graphs() -> int:
    """How many graphs torch has compiled in this process."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def make_arm(
    model: Any, step: Step, mode: str, served: Counter[str], shuffle: random.Random
) -> Logits:
    """A step of `model` in a mode; `served` is given what became of its products in the capture, in
    an eager step, or in the second compiled one: of the first, torch checks what operators return,
    and no kernel runs."""
    for _ in range(WARM_UPS):  # kernels are loaded by the first
        step(model)
    if mode == "graph":
        return capture_step(model, step, served, shuffle)
    eager: Counter[str] = Counter()
    with count_calls(eager):
        step(model)
    if mode not in COMPILED:
        served += eager
        return lambda: step(model)
    compiled = torch.compile(model, mode=COMPILED[mode], dynamic=False)
    step(compiled)
    with count_calls(served):
        step(compiled)
    served["Inductor's product"] += sum(eager.values()) - sum(served.values())
    for _ in range(WARM_UPS):
        step(compiled)
    return lambda: step(compiled)


def capture_step(model: Any, step: Step, served: Counter[str], shuffle: random.Random) -> Logits:
    """Replays of one step, whose logits are NaN until the first. Where its memory lies is random:
    captures of one model would all have theirs at the same places, and so their luck with caches,
    which made 1% of a step without a kernel of ours."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), count_calls(served):
        gaps = [
            torch.empty(shuffle.randrange(1, size), dtype=torch.uint8, device="cuda")
            for size in GAPS
        ]
        logits = step(model)
    logits.fill_(math.nan)

    kept = (graph, gaps)

    def replay() -> torch.Tensor:
        kept[0].replay()
        return logits

    return replay
