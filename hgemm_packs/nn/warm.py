"""What a CUDA graph wants to find before it is captured: `warmup` of a model.

Called by users. It multiplies, and leaves to `dispatch` and C what a first product loads and makes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence

import torch

from .. import launcher, torch_state
from ..settings import is_invariant
from ..torch_hooks import program
from . import Linear

#: Types of a weight that a kernel may read; others, as those of a sharded layer, stand for memory.
PLAIN = (torch.Tensor, torch.nn.Parameter)
#: Rows of a layer's input, and its K where that is given.
Wanted = tuple[int, int | None]


def warmup(model: torch.nn.Module, shapes: Iterable[int | Sequence[int]]) -> int:
    """Load what the linear layers of `model` need for inputs of these shapes, before a CUDA graph
    is captured; returns how many problems a kernel will run.

    Nothing is loaded while a graph is captured: torch runs a call then that wants a kernel for the
    first time (`cold_capture`), and the graph keeps torch's kernel. After a warmup the first
    capture has the kernels, memory for those that need a workspace, and cuBLAS for the rest.

    Each of `shapes` is a number of rows M for all layers, or the shape [..., K] of an input, for
    the layers of this K. The model is not called, and no hook runs. Each different problem of its
    `hgemm_packs.nn.Linear` layers (`optimize` makes them) is multiplied once in inference mode, on
    the current stream of the layer's device, with memory for its operands and one output in
    addition. So are the products of its gradients, of a layer in training mode whose weight wants
    one, where backward may run kernels: behind a forward that `matmul` records, and under
    `enable()`. `counters` counts all these products. Layers that no kernel can ever run are passed
    over: on a CPU the result is 0.

    Raises TypeError where `model` is no torch.nn.Module or a shape holds no whole numbers,
    ValueError for a size below 1 or a shape whose K no layer has, RuntimeError during a capture,
    torch.OutOfMemoryError where memory is short, FallbackError where HGEMM_PACKS_STRICT=1 is set
    and torch would have run a layer, and InvariantError for a layer without a kernel in the
    batch-invariant mode, in which gradients are not warmed up.

    Example:

        hgemm_packs.optimize(model)
        hgemm_packs.warmup(model, [1, 8, (4, 512, 4096)])
        with torch.inference_mode(), torch.cuda.graph(graph):
            y = model(x)
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"warmup: model is a {type(model).__name__}, not a torch.nn.Module")
    wanted = [_read(shape) for shape in shapes]
    layers = [layer for layer in model.modules() if isinstance(layer, Linear)]
    unknown = {k for _, k in wanted if k is not None} - {layer.in_features for layer in layers}
    if unknown:
        raise ValueError(f"warmup: no layer has inputs of last size {min(unknown)}")
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("warmup: the current stream is being captured: call it before that")
    for place in {layer.weight.device for layer in layers if layer.weight.is_cuda}:
        with torch.cuda.device(place):
            torch.cuda.current_blas_handle()  # a capture may have products of torch's, too
    with torch.inference_mode():
        return sum(
            _multiply(rows, layer)
            for layer in _distinct(layers)
            for rows in sorted({m for m, k in wanted if k in (None, layer.in_features)})
        )


def _read(shape: int | Sequence[int]) -> Wanted:
    if isinstance(shape, Sequence):
        *leading, k = map(operator.index, shape or [0])
    else:
        leading, k = [operator.index(shape)], None
    if min([*leading, 1 if k is None else k]) < 1:
        raise ValueError(f"warmup: {shape} has a size below 1")
    return math.prod(leading), k


def _distinct(layers: Iterable[Linear]) -> Iterator[Linear]:
    """One layer for each problem that they ask for at one M."""
    seen = set()
    for layer in layers:
        weight, bias = layer.weight, layer.bias
        if type(weight) not in PLAIN:
            continue
        memory = weight.shape, weight.stride(), weight.data_ptr() % 16
        trains = layer.training and weight.requires_grad
        key = (*memory, weight.dtype, weight.device, bias is None, trains)
        if key not in seen:
            seen.add(key)
            yield layer


def _multiply(rows: int, layer: Linear) -> int:
    """How many products of this layer with this many rows, whatever they hold, a kernel ran."""
    weight = layer.weight
    x = torch.empty((rows, weight.shape[1]), dtype=weight.dtype, device=weight.device)
    if isinstance(launcher.describe(x, weight.t()), str):  # of a type or on a device without any
        return 0
    before = launcher.counters()["hits"]
    grad = launcher.linear(x, weight, layer.bias)
    if _trains(rows, layer):
        launcher.matmul(grad, weight)
        launcher.matmul(grad.t(), x)
    return launcher.counters()["hits"] - before


def _trains(rows: int, layer: Linear) -> bool:
    """Whether backward multiplies by `matmul`, or is torch's in a program that kernels serve."""
    if not layer.training or not layer.weight.requires_grad or is_invariant():
        return False  # in the batch-invariant mode no gradient of a weight is for every M
    recorded = 2 * rows * layer.weight.numel() >= torch_state.LEAST_RECORDED
    return program.is_enabled() or (recorded and layer.bias is None)
