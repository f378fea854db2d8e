"""What tests of whole programs multiply, and what they count."""

from __future__ import annotations

import torch

from hgemm_packs import launcher
from tests import reference

SIDE = 32
#: What kernels of the tests compute of the sums that torch has operators for.
SUMS = ("bias", "bias_relu", "bias_gelu", "residual")


def operands(layout: str = "nn", seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return reference.cancelling(SIDE, SIDE, SIDE, layout, torch.float16, seed=seed)


class Hits:
    """How many kernels have run since this was made."""

    def __init__(self) -> None:
        self._before = launcher.counters()["hits"]

    def __call__(self) -> int:
        return launcher.counters()["hits"] - self._before


def one(x: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze(0)


def layer_of(weight: torch.Tensor) -> torch.nn.Linear:
    layer = torch.nn.Linear(SIDE, SIDE, bias=False, dtype=weight.dtype)
    layer.weight.data = weight
    return layer
