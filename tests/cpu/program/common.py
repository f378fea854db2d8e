"""What tests of whole programs multiply, and what they count."""

from __future__ import annotations

from collections.abc import Callable

import torch

import hgemm_packs
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


def assert_torchs_to_the_bit(call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """No kernel runs any of `call` under enabled(), and its result is torch's."""
    a, b = reference.normal(SIDE, SIDE, SIDE, "nn", torch.float16)
    wanted = call(a, b)
    hits = Hits()
    with hgemm_packs.enabled():
        found = call(a, b)
    assert hits() == 0
    assert torch.equal(found, wanted) and found.stride() == wanted.stride()
