"""Linear layers that ask for kernels: `Linear` for models, `StatelessLinear` for libraries that put
a forward into layers of their own.

Imported by users, by `replace` and `warm` beside it, and by the module that
`kernels_layout.export` writes, never by `import hgemm_packs`: it needs torch at import.
"""

from __future__ import annotations

import torch

from ..launcher import linear

__all__ = ["Linear", "StatelessLinear"]


class Linear(torch.nn.Linear):
    """torch.nn.Linear with the kernels of `matmul`: the same parameters, state_dict and results.

    `hgemm_packs.optimize` makes the linear layers of a model such layers in place, and they may be
    made directly, with the arguments of torch.nn.Linear. `weight` is [N, K], `bias` [N] or None. A
    kernel runs a layer on float16 or bfloat16 input [..., K]; where a gradient is recorded, a large
    one without a bias (`matmul` says from where on), and its gradients are products of `matmul`.
    A layer with a bias gets a kernel that adds it, or torch's product.

    Copies and pickles keep the class. Loading a pickle of a whole model needs hgemm_packs, loading
    a state_dict does not. TorchScript knows no such layer: `hgemm_packs.restore` the model first.

    A call raises what torch.nn.functional.linear raises, and FallbackError where
    HGEMM_PACKS_STRICT=1 is set and torch would have run the layer.

    Example:

        from hgemm_packs.nn import Linear

        layer = Linear(4096, 14336, bias=False, device="cuda", dtype=torch.bfloat16)
        with torch.inference_mode():
            y = layer(x)  # [..., 4096] to [..., 14336]
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """`input @ weight.t() + bias`: [..., K] to [..., N]."""
        # `self.weight` is a call of torch.nn.Module.__getattr__, which takes longer than all that a
        # miss does. Pruned and parametrized layers have no parameter of that name.
        own = self._parameters
        weight = own.get("weight")
        if weight is not None and "bias" in own:
            return linear(input, weight, own["bias"])
        return linear(input, self.weight, self.bias)


class StatelessLinear(torch.nn.Module):
    """The forward of `Linear` and nothing else, for libraries that put it into layers of theirs.

    Hugging Face's `kernels` wants a class without members of its own; a pack that is exported for
    it offers this one as its layer `Linear`. `forward` reads `weight` [N, K] and `bias` [N] or None
    of the layer that it is put into. Models are served by `hgemm_packs.optimize`.

    A call raises what a call of `Linear` raises.

    Example:

        layer.forward = types.MethodType(StatelessLinear.forward, layer)
    """

    weight: torch.Tensor
    bias: torch.Tensor | None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """`input @ weight.t() + bias`: [..., K] to [..., N]."""
        return linear(input, self.weight, self.bias)
