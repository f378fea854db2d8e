"""A training step: torch's linear layers against ours, and whether both learn the same.

    python -m benchmarks.measure.training OUT.json [--layers 8] [--tokens 4096] [--steps 50]

needs one GPU with 100 GB of memory and a pack on HGEMM_PACKS_PATH. Three models of MODEL's widths
begin with equal weights and see equal batches: torch's, torch's once more, and one that `optimize`
was given. AdamW, bfloat16, one sequence of random tokens a step. The steps of the arms take turns
in random order, so that a figure is of pairs of steps. What torch's own second run is off its first
is what a difference of losses may be: gradients of embeddings are added up in no fixed order.

"served" counts the products of a step of ours, forward and backward: by kernels, and why the others
were torch's.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

import hgemm_packs
from benchmarks.measure.language_models import MODELS, WEIGHT_STD
from benchmarks.measure.model_arms import count_calls
from hgemm_packs.generator.campaigns import cases

MODEL = "Llama 3.1 8B"
ARMS = ("torch", "again", "ours")
#: Steps that are trained and not timed: kernels are loaded, memory is taken.
WARM_STEPS = 5
RATE = 1e-4


def make_models(layers: int, device: torch.device, **changes: Any) -> dict[str, Any]:
    """A model of each arm, with equal weights. `changes` replace fields of the configuration."""
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, sizes = MODELS[MODEL]
    own = {"num_hidden_layers": layers, "tie_word_embeddings": False}
    config = AutoConfig.for_model(kind, **{**sizes, **own, **changes})
    with device:
        first = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="sdpa"
        )
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, weight in first.named_parameters():
            if "norm" in name:
                weight.fill_(1.0)
            else:
                weight.normal_(0.0, WEIGHT_STD, generator=generator)
    models = {"torch": first, "again": copy.deepcopy(first), "ours": copy.deepcopy(first)}
    hgemm_packs.optimize(models["ours"])
    return models


class Trainer:
    """One arm: its model, its optimizer, and what it has seen."""

    def __init__(self, model: Any) -> None:
        self._model = model.train()
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=RATE, fused=model.device.type == "cuda"
        )
        self.losses: list[float] = []
        self.us: list[float] = []
        self.served: dict[str, Counter[str]] = {"forward": Counter(), "backward": Counter()}

    def step(self, ids: torch.Tensor) -> None:
        """Train on [1, tokens] ids, and remember the loss, the time and who multiplied."""
        loss: list[torch.Tensor] = []

        def run() -> None:
            forward: Counter[str] = Counter()
            backward: Counter[str] = Counter()
            with count_calls(forward):
                found = self._model(input_ids=ids, labels=ids, use_cache=False).loss
            with count_calls(backward):
                found.backward()
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            loss.append(found.detach())
            self.served = {"forward": +forward, "backward": +backward}

        self.us.append(cases.block_us(run, 1, ids.device, ahead=0))
        self.losses.append(float(loss[0]))


def train(
    models: Mapping[str, Any], tokens: int, steps: int, device: torch.device, seed: int = 0
) -> dict[str, Trainer]:
    """All arms after WARM_STEPS and `steps` steps on the same batches."""
    shuffle = random.Random(seed)
    generator = torch.Generator(device).manual_seed(seed)
    trainers = {name: Trainer(model) for name, model in models.items()}
    # Few batches again and again, so that there is something to learn.
    vocabulary = next(iter(models.values())).config.vocab_size
    batches = [
        torch.randint(vocabulary, (1, tokens), generator=generator, device=device)
        for _ in range(WARM_STEPS)
    ]
    order = list(trainers)
    for number in range(WARM_STEPS + steps):
        shuffle.shuffle(order)
        for name in order:
            trainers[name].step(batches[number % len(batches)])
    return trainers


def figures(trainers: Mapping[str, Trainer]) -> dict[str, Any]:
    """Torch's step over ours by the median of pairs, and how far losses are apart."""
    us = {name: trainer.us[WARM_STEPS:] for name, trainer in trainers.items()}
    losses = {name: trainer.losses for name, trainer in trainers.items()}

    def apart(one: str, other: str) -> float:
        return max(abs(a - b) for a, b in zip(losses[one], losses[other], strict=True))

    return {
        "step_ratio": round(cases.speedup(us), 4),
        "step_ratio_known_to": round(cases.half_width(us), 4),
        "again_ratio": round(cases.speedup(us, arm="again"), 4),
        "step_ms": {name: round(median(each) / 1e3, 3) for name, each in us.items()},
        "loss_apart": apart("torch", "ours"),
        "loss_apart_of_torch": apart("torch", "again"),
        "served": {way: dict(count) for way, count in trainers["ours"].served.items()},
        "losses": losses,
        "us": {name: [round(each, 1) for each in times] for name, times in us.items()},
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--commit", help="of the sources")
    given = parser.parse_args(arguments)
    device = torch.device("cuda", 0)
    found = figures(train(make_models(given.layers, device), given.tokens, given.steps, device))
    header = {
        "benchmark": "training",
        "model": MODEL,
        "commit": given.commit,
        "settings": {name: getattr(given, name) for name in ("layers", "tokens", "steps")},
        "machine": {
            "device": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    given.out.write_text(json.dumps(header | found, indent=1) + "\n", encoding="utf-8")
    shown = {name: value for name, value in found.items() if name not in ("losses", "us")}
    print(json.dumps(shown, indent=1))
    return 0


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"  # all is random
    sys.exit(main(sys.argv[1:]))
