"""Linear layers of real language models, and which kernel each would get.

Used by `demo`. The shapes come from manifests/shapes/llm_layers.toml, the decisions from `select`,
the same code that `matmul` asks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..manifest import Row
from ..problem import DeviceInfo, Problem
from ..select import Choice, resolve

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True)
class Layer:
    """One weight of a model, or several of the same shape: [N, K] as nn.Linear stores it."""

    model: str
    names: str
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers to ask about, in one layout, at each number of tokens `m`."""

    m: tuple[int, ...]
    layout: str
    layers: tuple[Layer, ...]

    def problems(self, layer: Layer, dtype: str) -> Iterator[Problem]:
        for m in self.m:
            yield Problem(m, layer.n, layer.k, self.layout, dtype)


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Name -> (N, K) of each weight, single as Transformers holds them and fused as servers do."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    return {
        "q": (q, hidden),
        "k v": (kv, hidden),
        "qkv": (q + 2 * kv, hidden),
        "o": (hidden, q),
        "gate up": (inner, hidden),
        "gate_up": (2 * inner, hidden),
        "down": (hidden, inner),
        "lm_head": (config["vocab_size"], hidden),
    }


def read(path: Path) -> Layers:
    """The layers of a shapes file; weights of equal shape within a model are one entry."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    layers = []
    for config in document["model"]:
        by_shape: dict[tuple[int, int], list[str]] = {}
        for name, shape in _shapes(config).items():
            by_shape.setdefault(shape, []).append(name)
        layers += [
            Layer(config["name"], " ".join(names), n, k) for (n, k), names in by_shape.items()
        ]
    return Layers(tuple(document["m"]), document["layout"], tuple(layers))


@dataclass(frozen=True, slots=True)
class Decision:
    """What one layer call would get: a kernel with its measured row, or cuBLAS."""

    layer: Layer
    problem: Problem
    choice: Choice

    @property
    def row(self) -> Row | None:
        return self.choice.row

    def as_json(self) -> dict[str, Any]:
        kernel, row = self.choice.kernel, self.choice.row
        return {
            "model": self.layer.model,
            "layer": self.layer.names,
            "m": self.problem.m,
            "n": self.problem.n,
            "k": self.problem.k,
            "layout": self.problem.layout,
            "dtype": self.problem.dtype,
            "kernel": kernel.name if kernel else None,
            "speedup_hot": row.hot.speedup if row else None,
            "speedup_cold": row.cold.speedup if row else None,
            "decided": self.choice.code,
        }


def decide(layers: Layers, dtype: str, device: DeviceInfo) -> list[Decision]:
    """Ask the selection about every layer and token count, as `device` would."""
    return [
        Decision(layer, problem, resolve(problem, 0, device))
        for layer in layers.layers
        for problem in layers.problems(layer, dtype)
    ]
