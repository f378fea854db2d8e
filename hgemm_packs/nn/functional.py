"""`linear` with what usually follows it: bias, activation, residual.

Called by users, and by `report`, which says what a call gets. One kernel computes all of it where a
table names one for the whole; else the product, with its bias, is `launcher.linear` and the rest is
torch's, so that values and gradients are those of torch's composition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from .. import launcher


def silu_gate(x: torch.Tensor) -> torch.Tensor:
    """silu(g) * u of both halves, [..., 2I] to [..., I]."""
    gate, up = x.chunk(2, -1)
    return functional.silu(gate) * up


ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "gated_silu": silu_gate,
}
GATED = "gated_silu"


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """`activation(x @ weight.t() + bias) + residual`: torch.nn.functional.linear and what follows.

    `x` is [..., K], `weight` [N, K], `bias` [N] or None, `residual` anything that can be added to
    the rest or None; all of one type and device as torch wants them. `activation` is "relu",
    "gelu" (by erf), "gelu_tanh", "silu", "gated_silu" or None. For "gated_silu" `weight` is
    [2I, K], a gate of I rows above as many rows of values, and the result silu(gate) * values,
    [..., I].

    Of float16 or bfloat16, where no gradient is recorded, one kernel computes the whole where one
    was measured: a bias with or without an activation, "gated_silu" without a bias, or without
    either a residual of the result's shape, packed and 16-byte aligned. Else a kernel runs the
    product, with its bias, where one was measured, and torch runs it everywhere else; activation
    and residual are then torch's own operations on the rounded result, and gradients always are
    those of the same line written with torch.

    A kernel of the whole rounds once, after the activation or the sum. Its bits differ from those
    of torch's composition, which rounds after each operation; its error, measured against float64,
    is no larger.

    Returns [..., N], or [..., I]. Raises ValueError for an unknown activation and for a gated
    weight whose rows are not even in number, what torch raises for operands that do not fit, and
    FallbackError where HGEMM_PACKS_STRICT=1 is set and torch would have run the product.

    Example:

        x = torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16)
        up = torch.nn.Linear(4096, 14336, device="cuda", dtype=torch.bfloat16)
        with torch.inference_mode():
            y = hgemm_packs.linear(x, up.weight, up.bias, activation="silu")  # [16, 14336]
    """
    if activation is not None:
        check_activation("linear", activation, weight, 0)
    epilogue = epilogue_of(bias, activation, residual)
    if epilogue not in ("none", "bias"):
        addend = residual if epilogue == "residual" else bias
        whole = launcher.fused_linear(x, weight, addend, epilogue)
        if whole is not None:
            return whole if residual is None or addend is residual else whole + residual
    y = launcher.linear(x, weight, bias)
    if activation is not None:
        y = ACTIVATIONS[activation](y)
    return y if residual is None else y + residual


def epilogue_of(bias: object, activation: str | None, residual: object) -> str:
    """As much of a call, from its start on, as a kernel may compute: a name of
    `problem.EPILOGUES`."""
    if activation == GATED:
        return "none" if bias is not None else GATED
    if bias is None:
        return "residual" if activation is None and residual is not None else "none"
    return "bias" if activation is None else f"bias_{activation}"


def check_activation(function: str, activation: str, weight: torch.Tensor, side: int) -> None:
    """Raises ValueError for an activation that `linear` does not know, and for a gated one of an
    odd number of columns, which are a `side` of the weight."""
    if activation not in ACTIVATIONS:
        known = ", ".join(map(repr, ACTIVATIONS))
        raise ValueError(f"{function}: activation is {activation!r}, not one of {known} or None")
    if activation == GATED and weight.dim() and weight.shape[side] % 2:
        shape = list(weight.shape)
        raise ValueError(f"{function}: gated_silu halves the columns of a product with {shape}")
