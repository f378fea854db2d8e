"""Linear layers of a model served in place: `optimize`, and `restore`, which undoes it.

Called by users. A layer is given another class and nothing else: its parameters, buffers, hooks and
attributes stay the objects that they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from . import Linear

M = TypeVar("M", bound=torch.nn.Module)


def optimize(model: M, filter: Callable[[str, torch.nn.Linear], bool] | None = None) -> M:
    """Give the linear layers of `model` the kernels of `matmul`, in place; returns `model`.

    Each torch.nn.Linear of the model, itself included, becomes a `hgemm_packs.nn.Linear`, a
    subclass: the parameters, buffers and hooks are the same objects, the state_dict has the same
    keys, and isinstance(layer, torch.nn.Linear) stays true. A `filter` is asked with the name and
    the layer, as `model.named_modules()` has them, and the layer stays as it is where that is
    false. To call it again does no harm; layers that the model has got since are then replaced.

    Left alone are subclasses of torch.nn.Linear, hence parametrized and quantized layers and the
    output layer of torch.nn.MultiheadAttention, and layers with a `forward` of their own.

    Layers may be of any type and shape and on any device. A call that no kernel is for costs what
    torch.nn.Linear costs: whether one is, is decided below Python.

    Raises TypeError where `model` is no torch.nn.Module.

    Example:

        model = hgemm_packs.optimize(model, lambda name, layer: name != "lm_head")
        with torch.inference_mode():
            y = model(x)
    """
    _check("optimize", model)
    for name, layer in model.named_modules():
        if type(layer) is not torch.nn.Linear or "forward" in vars(layer):
            continue
        if filter is None or filter(name, layer):
            layer.__class__ = Linear
    return model


def restore(model: M) -> M:
    """Undo `optimize`: each `hgemm_packs.nn.Linear` of `model` becomes a torch.nn.Linear again, in
    place; returns `model`.

    Layers that were made as `hgemm_packs.nn.Linear` are no exception. Their parameters, buffers and
    hooks stay the same objects. Subclasses are left alone.

    Raises TypeError where `model` is no torch.nn.Module.

    Example:

        hgemm_packs.restore(model)
        torch.save(model, "model.pt")  # for a place without hgemm_packs
    """
    _check("restore", model)
    layers: list[torch.nn.Module] = [each for each in model.modules() if type(each) is Linear]
    for layer in layers:
        layer.__class__ = torch.nn.Linear
    return model


def _check(function: str, model: object) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{function}: model is a {type(model).__name__}, not a torch.nn.Module")
