"""Whole language models, torch's linear layers against ours, step by step of serving.

    python -m benchmarks.measure.models PACK OUT.jsonl [--deadline S] [--models ...] ...
    python -m benchmarks.measure.models --summary

The first measures, on one GPU (all in less than ten minutes), and goes on where a run stopped; the
second writes results/models.json from results/models/ and results/serving/ (serving.py fills that).

Models are those of transformers, in their published widths, with LAYERS layers and random weights;
lm_head is there, so it weighs more than in the whole model. "ours" has the same weights in memory
and its linear layers patched as README says. The experts of gpt-oss are no linear layers.

A decode step is one new token of each of `tokens` sequences that have CONTEXT positions in a cache
of keys and values, so each linear layer sees `tokens` rows; a prompt is one sequence of `tokens`.
Both want the logits of the last position alone, as serving does. No position is ever added: each
step overwrites the last ones, so all steps do the same work.

Modes: "eager" steps back to back, where the host's time counts; "graph" replays of a step in a CUDA
graph; "compile" and "reduce-overhead", torch.compile's mode "default" and the one of that name, for
two models of COMPILED_LAYERS layers. The arms run in random order, block by block; a figure is the
median of the blocks' ratios. Eager steps have many blocks, for a host's pauses are longer than any
difference; a graph is captured anew CAPTURES times, and where its memory lies, which makes up to
1%, is random. A figure below 1 + NEAR is measured on: a graph with AGAIN times the blocks and
captures in all, an eager step until the figure is known to SURE, with AGAIN times the blocks at
most. What is left of chance shows in the arm "again" of one model and type: torch's own model once
more. A compiled case counts where torch's own model came to one graph: else its steps ran eagerly.

Values: the two arms' logits may not lie further apart than ALLOWED times what torch's own are off a
float32 run of the same weights, measured for each model and type. Of a model with experts it is
eager steps whose logits count, with torch's choice of experts in both. "served" counts the products
of a step: by kernels of ours, and why the others were torch's.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from benchmarks.measure.language_models import CONTEXT, DTYPES, MODELS, Pair, Step, apart
from benchmarks.measure.model_arms import Logits, count_compiled_graphs, make_arm
from benchmarks.publish import models_summary
from benchmarks.publish.models_summary import COMPILED
from hgemm_packs.generator.campaigns import cases
from hgemm_packs.generator.campaigns.campaign import Line
from hgemm_packs.generator.campaigns.cases import Fields
from hgemm_packs.generator.compile.pack_kernels import Packed

DEVICE = torch.device("cuda", 0)
LAYERS = 12
COMPILED_LAYERS = 2
TOKENS = (1, 3, 8, 16, 37, 64, 100, 256)
PROMPTS = (512, 777, 2048)
#: Tokens of the decode steps that are compiled, and the models: one of two has biases.
COMPILED_TOKENS = (1, 16, 64)
COMPILED_MODELS = ("Llama 3.1 8B", "Qwen2.5 7B")
MODES = ("graph", "eager", *COMPILED)
#: The model and type that is measured against itself as well.
TWICE = ("Llama 3.1 8B", "bf16")
#: Graphs of a case, each with its share of the blocks.
CAPTURES = 3
#: Up to 1 and that a figure is measured on: chance takes from one case and gives to another.
NEAR = 0.02
#: So many times the blocks, and graphs, at most.
AGAIN = {"graph": 3, "eager": 14}
#: Half of the 95% interval at which an eager step is known well enough.
SURE = 0.005
#: Of a block and of all blocks of a case: on the GPU's time, and on the host's, in microseconds.
BLOCKS_OF: dict[str, Any] = {
    "graph": {"target_us": 3_000.0, "budget_us": 100_000.0, "most": 7},
    "eager": {"target_us": 3_000.0, "budget_us": 700_000.0, "most": 100},
    **{mode: {"target_us": 3_000.0, "budget_us": 1_000_000.0, "most": 50} for mode in COMPILED},
}
#: Passes over the models, each with a share of their cases: so a stopped run is a fair sample.
PASSES = 2
#: Two roundings are 1.4 times as far apart as from the truth.
ALLOWED = 3.0
#: torch's grouped product, of experts, waits for the host in other types than bfloat16.
NO_GRAPH = {("gpt-oss 20b", "fp16")}


def every_case(
    models: Iterable[str] = tuple(MODELS),
    dtypes: Iterable[str] = tuple(DTYPES),
    modes: Iterable[str] = MODES,
    tokens: Iterable[int] = (*TOKENS, *PROMPTS),
) -> list[Fields]:
    """Those of the standard set that the arguments name; what is compiled comes last."""
    wanted = set(modes), set(tokens)

    def of(model: str, dtype: str) -> list[Fields]:
        steps = [("decode", n) for n in TOKENS] + [("prompt", n) for n in PROMPTS]
        return [
            _fields(model, dtype, mode, phase, n, LAYERS)
            for phase, n in steps
            for mode in ("graph", "eager")
            if mode in wanted[0] and n in wanted[1]
            if mode == "eager" or (model, dtype) not in NO_GRAPH
        ]

    pairs = [(model, dtype) for dtype in dtypes for model in models]
    # Two by two, for both modes of a step belong together.
    found = [
        case
        for turn in range(PASSES)
        for model, dtype in pairs
        for i, case in enumerate(of(model, dtype))
        if (i // 2) % PASSES == turn
    ]
    return found + [
        _fields(model, dtype, mode, "decode", n, COMPILED_LAYERS)
        for model, dtype in pairs
        if model in COMPILED_MODELS and dtype == "bf16"
        for n in COMPILED_TOKENS
        for mode in COMPILED
        if mode in wanted[0] and n in wanted[1]
    ]


def _fields(model: str, dtype: str, mode: str, phase: str, tokens: int, layers: int) -> Fields:
    return {
        "model": model,
        "dtype": dtype,
        "mode": mode,
        "phase": phase,
        "tokens": tokens,
        "layers": layers,
    }


class ModelBench:
    """Measures cases, one model in memory at a time. `changes` are those of `Pair`."""

    def __init__(self, device: torch.device, seed: int = 0, **changes: Any) -> None:
        self._device, self._seed, self._changes = device, seed, changes
        self._shuffle = random.Random(seed)
        self._known: tuple[Any, ...] = ()
        self._graphs: dict[str, int] = {}
        self._pair: Pair | None = None

    def _pair_of(self, case: Fields) -> Pair:
        known = (case["model"], case["dtype"], case["layers"])
        if self._pair is None or self._known != known:
            self._pair = None
            self._clear()
            self._pair = Pair(*known, self._device, self._seed, **self._changes)
            self._known = known
        return self._pair

    def _clear(self) -> None:
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def measure(self, case: Fields) -> Line:
        """Samples, the products served, and what is wrong."""
        pair = self._pair_of(case)
        with torch.inference_mode():
            return self._measure(pair, case)

    def _measure(self, pair: Pair, case: Fields) -> Line:
        step, mode = Step(pair, case["phase"], case["tokens"]), case["mode"]
        models = {"torch": pair.torch, "ours": pair.ours}
        if (case["model"], case["dtype"]) == TWICE and mode not in COMPILED:
            models["again"] = pair.torch
        samples: cases.Samples = {name: [] for name in models}
        deviations = []
        turns = CAPTURES if mode == "graph" else 1
        for turn in range(turns * AGAIN.get(mode, 1)):
            if turn >= turns and is_settled(mode, samples):
                break
            served: Counter[str] = Counter()  # torch's own layers add nothing
            arms = self._arms(models, step, mode, served, turn)
            logits = self._logits(pair, step, arms)
            deviations.append(apart(logits["ours"], logits["torch"]))
            new, steps = cases.sample_in_turn(
                arms, **BLOCKS_OF[mode], device=self._device, seed=self._seed + turn
            )
            for name, us in new.items():
                samples[name] += us
        kernels = served.pop("kernels", 0)
        others = {name: n for name, n in sorted((served + pair.never_ours()).items()) if n}
        deviation = max(deviations) if all(map(math.isfinite, deviations)) else math.nan
        return {
            "us": samples,
            "steps": steps,
            "served": {"products": kernels + sum(others.values()), "kernels": kernels} | others,
            "deviation": deviation if math.isfinite(deviation) else None,
            "rounding": pair.rounding if math.isfinite(pair.rounding) else None,
            "wrong": verdict(deviation, pair.rounding),
        } | (self._count_graphs() if mode in COMPILED else {})

    @staticmethod
    def _logits(pair: Pair, step: Step, arms: dict[str, Logits]) -> dict[str, torch.Tensor]:
        logits = {name: arms[name]().clone() for name in ("torch", "ours")}
        if pair.has_experts() and all(bool(each.isfinite().all()) for each in logits.values()):
            return pair.logits_of_one_routing(step)
        return logits

    def _count_graphs(self) -> Line:
        """How many graphs each arm came to; torch's own model is one, or its step ran eagerly."""
        return {"graphs": self._graphs, "compiled": self._graphs["torch"] == 1}

    def _arms(
        self, models: dict[str, Any], step: Step, mode: str, served: Counter[str], turn: int
    ) -> dict[str, Logits]:
        """Made in another order each turn, for the first has memory that the others have not."""
        if mode in COMPILED:
            torch._dynamo.reset()
        first = turn % len(models)
        made, self._graphs = {}, {}
        for name in [*models][first:] + [*models][:first]:
            before = count_compiled_graphs()
            made[name] = make_arm(models[name], step, mode, served, self._shuffle)
            self._graphs[name] = count_compiled_graphs() - before
        return made


def is_settled(mode: str, samples: cases.Samples) -> bool:
    """Whether no more blocks are wanted of a case that has had its share."""
    if cases.speedup(samples) > 1.0 + NEAR:
        return True
    return mode == "eager" and cases.half_width(samples) <= SURE


def verdict(deviation: float, rounding: float) -> list[str]:
    """What is wrong with logits that far apart; NaN is."""
    if deviation <= ALLOWED * rounding < math.inf:
        return []
    return [f"logits {deviation:.2e} apart, {ALLOWED:g} times {rounding:.2e} allowed"]


def words(known: Iterable[str]) -> Callable[[str], list[str]]:
    """What argparse makes of a list in one argument; any other word is an error."""
    allowed = list(known)

    def split(text: str) -> list[str]:
        found = text.split(",")
        if not set(found) <= set(allowed):
            raise argparse.ArgumentTypeError(f"{text!r} is not some of {', '.join(allowed)}")
        return found

    return split


def measure(arguments: Sequence[str]) -> int:
    parser = cases.parser(__doc__ or "")
    for name, known in (("models", MODELS), ("dtypes", DTYPES), ("modes", MODES)):
        parser.add_argument(f"--{name}", type=words(known), default=list(known), metavar="A,B")
    parser.add_argument("--tokens", type=words(map(str, (*TOKENS, *PROMPTS))), metavar="1,512")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    tokens = [int(word) for word in options.tokens] if options.tokens else (*TOKENS, *PROMPTS)
    chosen = every_case(options.models, options.dtypes, options.modes, tokens)
    import transformers

    header = {
        "benchmark": "models",
        "protocol": "blocks of whole steps, torch and ours in random order, each graph captured "
        f"{CAPTURES} times; median of pairs; decode steps "
        f"over {CONTEXT} positions of each sequence",
        "settings": {
            "layers": LAYERS,
            "compiled_layers": COMPILED_LAYERS,
            "context": CONTEXT,
            "blocks": BLOCKS_OF,
            "captures": CAPTURES,
            "again": AGAIN,
            "near": NEAR,
            "sure": SURE,
            "seed": options.seed,
        },
        "transformers": transformers.__version__,
    }
    bench = ModelBench(DEVICE, options.seed)
    return cases.main(options, Packed(options.pack), chosen, bench.measure, header)


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] != ["--summary"]:
        return measure(arguments)
    argparse.ArgumentParser(prog="models.py --summary").parse_args(arguments[1:])
    models_summary.write()
    return 0


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is asked of the network: all is random
    sys.exit(main(sys.argv[1:]))
