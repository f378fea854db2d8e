"""Which kernel each linear layer of real language models would get.

Used by `demo`. The layers come from manifests/shapes/llm_layers.toml, the decisions from `select`,
the same code that `matmul` asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..pack.manifest import Row
from ..problem import DeviceInfo, Problem
from ..select import Selection, resolve
from ..tuning.shapes import Layer, Shapes

LAYOUT = "nt"  # x @ weight.t(), as nn.Linear computes it


@dataclass(frozen=True, slots=True)
class Decision:
    """What one layer call would get: a kernel with its measured row, or cuBLAS."""

    layer: Layer
    problem: Problem
    choice: Selection

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


def decide(shapes: Shapes, dtype: str, device: DeviceInfo) -> list[Decision]:
    """Ask the selection about every layer and token count, as `device` would."""
    return [
        Decision(layer, problem, resolve(problem, 0, device))
        for layer in shapes.layers
        for problem in shapes.of_layer(layer, LAYOUT, dtype)
    ]
