"""Layers of models with what follows them: torch's separate kernels and torch.compile's fused ones
against `hgemm_packs.linear`.

    python -m benchmarks.measure.epilogues PACK OUT.jsonl [--tokens 1,16,64] [--deadline S]

measures on one GPU (100 s) and goes on where an earlier run stopped; the lines belong to
results/epilogues/, and `python -m benchmarks.publish.torch_figures` takes them to torch.json.

The layers are those of the models of models.py: projections with a bias, gate and up as one weight
with the SiLU of the one half times the other, and the projections that a residual is added to. An
arm is CALLS calls in a CUDA graph that torch captured, on one set of operands; the arms run block
by block in random order, and a figure is the median of the blocks' ratios. Every layer counts,
whether or not a kernel ran it.

Values: the largest error of ours against float64, in some rows, may be ALLOWED times that of
torch's separate kernels.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.nn import functional

import hgemm_packs
from benchmarks.measure.language_models import DTYPES, MODELS
from benchmarks.measure.model_arms import count_calls
from benchmarks.measure.models import words
from hgemm_packs.generator.campaigns import cases
from hgemm_packs.generator.campaigns.campaign import Line
from hgemm_packs.generator.campaigns.cases import Fields
from hgemm_packs.generator.compile.pack_kernels import Packed

DEVICE = torch.device("cuda", 0)
TOKENS = (1, 16, 64)
CALLS = 16
BLOCKS: dict[str, Any] = {"target_us": 2_000.0, "budget_us": 60_000.0, "most": 11}
#: Rows of the output that are compared with float64.
ROWS = 16
#: One rounding where torch has two or three, but other orders of summation.
ALLOWED = 2.0
WEIGHT_STD = 0.02

Layer = Callable[[torch.Tensor], torch.Tensor]
#: Biases of q, k and v, and of all projections of attention.
BIASED = {"qwen2": ("q", "k v"), "gpt_oss": ("q", "k v", "o")}


def list_layers(model: str) -> list[tuple[str, str, int, int]]:
    """Name, epilogue, outputs and inputs of the layers of a model that have an epilogue."""
    kind, sizes = MODELS[model]
    hidden, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    head = sizes.get("head_dim", hidden // heads)
    attention = {
        "q": (heads * head, hidden),
        "k v": (sizes["num_key_value_heads"] * head, hidden),
        "o": (hidden, heads * head),
    }
    biased = BIASED.get(kind, ())
    found = [(name, "bias", *attention[name]) for name in biased]
    if "o" not in biased:
        found.append(("o", "residual", *attention["o"]))
    if kind != "gpt_oss":  # its experts are no linear layers
        inner = sizes["intermediate_size"]
        found += [("gate up", "gated_silu", 2 * inner, hidden), ("down", "residual", hidden, inner)]
    return found


def every_case(
    models: Iterable[str] = tuple(MODELS),
    dtypes: Iterable[str] = ("bf16",),
    tokens: Iterable[int] = TOKENS,
) -> list[Fields]:
    """Each shape with its epilogue once, named after the first model that has it."""
    found: dict[tuple[Any, ...], Fields] = {}
    for m in tokens:
        for dtype in dtypes:
            for model in models:
                for name, epilogue, n, k in list_layers(model):
                    case = {"epilogue": epilogue, "dtype": dtype, "m": m, "n": n, "k": k}
                    found.setdefault(tuple(case.values()), {"layer": f"{model} {name}", **case})
    return [*found.values()]


def plain_layer(epilogue: str, weight: torch.Tensor, addend: torch.Tensor | None) -> Layer:
    """What a program without us says."""
    if epilogue == "bias":
        return lambda x: functional.linear(x, weight, addend)
    if epilogue == "residual":
        return lambda x: functional.linear(x, weight) + addend

    def gated(x: torch.Tensor) -> torch.Tensor:
        gate, up = functional.linear(x, weight).chunk(2, dim=-1)
        return functional.silu(gate) * up

    return gated


def our_layer(epilogue: str, weight: torch.Tensor, addend: torch.Tensor | None) -> Layer:
    if epilogue == "bias":
        return lambda x: hgemm_packs.linear(x, weight, addend)
    if epilogue == "residual":
        return lambda x: hgemm_packs.linear(x, weight, residual=addend)
    return lambda x: hgemm_packs.linear(x, weight, activation="gated_silu")


def capture(layer: Layer, x: torch.Tensor, served: Counter[str] | None = None) -> Layer:
    """Replays of CALLS calls; `served` is given what became of the products of the capture."""
    for _ in range(3):
        layer(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), count_calls(Counter() if served is None else served):
        for _ in range(CALLS):
            y = layer(x)

    def replay(_: torch.Tensor) -> torch.Tensor:
        graph.replay()
        return y

    return replay


class EpilogueBench:
    """Measures one layer after another."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self._device, self._seed = device, seed

    def _operands(self, case: Fields) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        generator = torch.Generator(self._device).manual_seed(self._seed)
        dtype = DTYPES[case["dtype"]]

        def normal(*shape: int, std: float = 1.0) -> torch.Tensor:
            made = torch.empty(shape, dtype=dtype, device=self._device)
            return made.normal_(0.0, std, generator=generator)

        m, n, k = case["m"], case["n"], case["k"]
        addends = {"bias": (n,), "residual": (m, n)}
        shape = addends.get(case["epilogue"])
        return normal(m, k), normal(n, k, std=WEIGHT_STD), normal(*shape) if shape else None

    def measure(self, case: Fields) -> Line:
        """Samples, who multiplied, and what is wrong."""
        with torch.inference_mode():
            return self._measure(case)

    def _measure(self, case: Fields) -> Line:
        x, weight, addend = self._operands(case)
        epilogue, rows = case["epilogue"], slice(0, ROWS)
        wide = addend.double() if addend is not None else None
        if wide is not None and epilogue == "residual":
            wide = wide[rows]
        truth = plain_layer(epilogue, weight.double(), wide)(x[rows].double())
        plain, ours = plain_layer(epilogue, weight, addend), our_layer(epilogue, weight, addend)
        errors = {
            name: float((layer(x)[rows].double() - truth).abs().max())
            for name, layer in (("torch", plain), ("ours", ours))
        }
        samples, served = self._sample(plain, ours, x)
        right = errors["ours"] <= ALLOWED * errors["torch"] < math.inf
        return {
            "us": samples,
            "served": served,
            "errors": errors,
            "wrong": [] if right else [f"off by {errors['ours']:.2e}, torch {errors['torch']:.2e}"],
        }

    def _sample(
        self, plain: Layer, ours: Layer, x: torch.Tensor
    ) -> tuple[cases.Samples, Counter[str]]:
        torch._dynamo.reset()
        served: Counter[str] = Counter()
        captured = {
            "torch": capture(plain, x),
            "compiled": capture(torch.compile(plain, dynamic=False), x),
            "ours": capture(ours, x, served),
        }
        arms = {name: lambda run=run: run(x) for name, run in captured.items()}
        samples, _ = cases.sample_in_turn(arms, **BLOCKS, device=self._device, seed=self._seed)
        return samples, served


def main(arguments: Sequence[str]) -> int:
    parser = cases.parser(__doc__ or "")
    parser.add_argument("--dtypes", type=words(DTYPES), default=["bf16"], metavar="A,B")
    parser.add_argument("--tokens", type=lambda text: [*map(int, text.split(","))], default=TOKENS)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args(arguments)
    header = {
        "benchmark": "epilogues",
        "protocol": f"{CALLS} calls in a CUDA graph that torch captured, torch, torch.compile and "
        "ours in random order; median of pairs",
        "settings": {"calls": CALLS, "blocks": BLOCKS, "seed": options.seed},
    }
    chosen = every_case(dtypes=options.dtypes, tokens=options.tokens)
    bench = EpilogueBench(DEVICE, options.seed)
    return cases.main(options, Packed(options.pack), chosen, bench.measure, header)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
