"""The layer that a pack offers to users of Hugging Face's `kernels`, and README puts into a model.

Imported by users and by the module that `kernels_layout.export` writes, never by hgemm_packs
itself: it needs torch at import. A layer here has a forward and nothing else, for its state is the
replaced layer's.
"""

from __future__ import annotations

import torch

from .launcher import linear


class Linear(torch.nn.Module):
    """torch.nn.Linear's forward with the kernels of `matmul`, for layers that exist already.

    The class has no parameters of its own: `forward` reads `weight` [N, K] and `bias` [N] or None
    of the layer that it is put into. A kernel runs a layer without a bias on float16 or bfloat16
    input [..., K], where no gradient is recorded. No kernel adds a bias yet: torch runs a layer
    with one, to torch's bits.

    Raises what torch.nn.functional.linear raises, and FallbackError where HGEMM_PACKS_STRICT=1 is
    set and torch would have run the layer.

    Example:

        import types
        from hgemm_packs.nn import Linear

        for layer in model.modules():
            if type(layer) is torch.nn.Linear:
                layer.forward = types.MethodType(Linear.forward, layer)

    And back:

        for layer in model.modules():
            vars(layer).pop("forward", None)
    """

    weight: torch.Tensor
    bias: torch.Tensor | None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """`input @ weight.t() + bias`: [..., K] to [..., N]."""
        return linear(input, self.weight, self.bias)
