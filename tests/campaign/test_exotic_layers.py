"""Layers with operands that do not fit raise what linear raises."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs import nn
from tests.fake_driver import Started

from .sides import SIDE, half, linear

MISFITS: dict[str, tuple[torch.Tensor, torch.Tensor]] = {
    "sizes": (half(), half(SIDE, 16)),
    "dtypes": (half(), half(dtype=torch.bfloat16)),
    "vector": (half(SIDE), half()),
    "number": (torch.tensor(1.0).half(), half()),
    "weight of one dimension": (half(), half(SIDE)),
    "float": (half().float(), half()),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_layer_raises_what_linear_raises(
    ours: Started, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what does not fit only the type: torch's own layer names other functions."""
    monkeypatch.setattr(nn, "linear", ours.linear)
    x, weight = MISFITS[name]
    errors: list[type[BaseException] | None] = []
    for layer in (torch.nn.functional.linear, lambda x, w: linear(ours, x, w)):
        try:
            layer(x, weight)
            errors.append(None)
        except Exception as error:
            errors.append(type(error))
    assert errors[0] == errors[1]
