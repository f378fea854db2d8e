"""The layer that a pack offers to users of Hugging Face's `kernels`, and README puts into a model.

Imported by users and by the module that `kernels_layout.export` writes, never by hgemm_packs
itself: it needs torch at import. A layer here has a forward and nothing else, for its state is the
replaced layer's.
"""

from __future__ import annotations

import torch

from .launcher import linear


class Linear(torch.nn.Module):
    """torch.nn.Linear's forward with the kernels of `matmul`. With a bias it is torch's own, which
    adds it inside the product: no kernel of a pack does, and an addition of its own would eat the
    gain.

    Raises what torch.nn.functional.linear raises.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return linear(input, self.weight, self.bias)
