"""`linear` with what usually follows it: bias, activation, residual.

Called by users. The product, with its bias, is `launcher.linear`, by a kernel where one was
measured; the rest is torch's, so that values and gradients are those of torch's composition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from .. import launcher

ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """`activation(x @ weight.t() + bias) + residual`: torch.nn.functional.linear and what follows.

    `x` is [..., K], `weight` [N, K], `bias` [N] or None, `residual` anything that can be added to
    [..., N] or None; all of one type and device as torch wants them. `activation` is "relu",
    "gelu" (by erf), "gelu_tanh", "silu" or None.

    A kernel runs the product of float16 or bfloat16, with its bias, where one was measured and no
    gradient is recorded; torch runs it everywhere else. Activation and residual are torch's own
    operations on the rounded result, so that values and gradients are those of the same line
    written with torch.

    Returns [..., N]. Raises ValueError for an unknown activation, what torch raises for operands
    that do not fit, and FallbackError where HGEMM_PACKS_STRICT=1 is set and torch would have run
    the product.

    Example:

        x = torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16)
        up = torch.nn.Linear(4096, 14336, device="cuda", dtype=torch.bfloat16)
        with torch.inference_mode():
            y = hgemm_packs.linear(x, up.weight, up.bias, activation="silu")  # [16, 14336]
    """
    if activation is not None and activation not in ACTIVATIONS:
        known = ", ".join(map(repr, ACTIVATIONS))
        raise ValueError(f"linear: activation is {activation!r}, not one of {known} or None")
    y = launcher.linear(x, weight, bias)
    if activation is not None:
        y = ACTIVATIONS[activation](y)
    return y if residual is None else y + residual
