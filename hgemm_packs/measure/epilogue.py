"""What is computed of a product before it is rounded, as torch computes it in a wider type.

Called by the self-test and by the generator's gates for what is right; `problem.EPILOGUES` has the
names, and the kernels' own functions are in csrc/kernels/common/finish.cuh.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def finish(epilogue: str, sums: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`sums` [..., N] with `bias` [N] added and then the activation, all in the type of `sums`;
    without a bias `epilogue` is "none". Raises KeyError for an unknown epilogue."""
    from torch.nn import functional

    if bias is None and epilogue == "none":
        return sums
    activations: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "bias": lambda x: x,
        "bias_relu": functional.relu,
        "bias_gelu": functional.gelu,
        "bias_gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "bias_silu": functional.silu,
    }
    assert bias is not None, f"{epilogue} needs a bias"
    return activations[epilogue](sums + bias.to(sums.dtype))
