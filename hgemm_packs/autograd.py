"""Products whose gradients are products of ours: what C calls where one is recorded.

Called by C on the way of a matmul that has a kernel and is large (`torch_state.LEAST_RECORDED`),
and by autograd when it runs backward. What torch does around a product, saving tensors, hooks and
views, is left to torch; whether a gradient's product has a kernel, to the launcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import launcher
from .settings import is_invariant

_transforms_active = torch._C._are_functorch_transforms_active
_will_run = torch._C._will_engine_execute_node
_unsafe_view = torch.ops.aten._unsafe_view.default


def record(a: torch.Tensor, b: torch.Tensor, linear: bool) -> torch.Tensor | None:
    """`a @ b`, [..., K] and [K, N], with its gradients recorded; of a `linear` call b is [N, K].
    None where torch is to record it: in transforms of functorch, which want a rule of their own
    from every Function, and in inference mode, where nothing is recorded."""
    if _transforms_active() or torch.is_inference_mode_enabled():
        return None
    if linear:
        b = b.t()
    if a.dim() == 2:
        return _apply(a, b)
    # As torch.matmul does it: what is saved is a matrix, and the result no view of anything.
    product = _apply(a.reshape(-1, a.shape[-1]), b)
    result: torch.Tensor = _unsafe_view(product, [*a.shape[:-1], b.shape[1]])
    return result


class Product(torch.autograd.Function):
    """A product of two matrices; its gradients are stored as torch stores them, by column where
    the operand is."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        for_a, for_b = ctx.needs_input_grad
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(b if for_a else None, a if for_b else None)  # torch's order
        ctx.by_column = _is_by_column(a), _is_by_column(b)
        return launcher.matmul(a, b)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        of_a = of_b = None
        (grad,) = grads
        if grad is None:
            return None, None
        if is_invariant():  # of a gradient that is one number everywhere torch makes no matrix
            grad = grad.contiguous()
        b, a = ctx.saved_tensors
        for_a, for_b = _find_wanted(ctx)
        a_by_column, b_by_column = ctx.by_column
        multiply = launcher.matmul
        if for_b:
            of_b = multiply(grad.t(), a).t() if b_by_column else multiply(a.t(), grad)
        if for_a:
            of_a = multiply(b, grad.t()).t() if a_by_column else multiply(grad, b.t())
        return of_a, of_b


# Function.apply itself only asks of functorch, once more.
_apply: Callable[..., torch.Tensor] = super(torch.autograd.Function, Product).apply


def _is_by_column(matrix: torch.Tensor) -> bool:
    return matrix.stride() == (1, matrix.shape[0])


def _find_wanted(ctx: Any) -> tuple[bool, bool]:
    """Which gradients this backward is for. torch.autograd.grad may want one of two, and torch
    tells a Function only which tensors require one."""
    for_a, for_b = ctx.needs_input_grad
    if for_a and for_b:
        for_a, for_b = (_runs(node) for node, _ in ctx.next_functions)
    return for_a, for_b


def _runs(node: Any) -> bool:
    try:
        return bool(_will_run(node))
    except RuntimeError:  # of a leaf that torch.autograd.grad was asked for, or no backward
        return True
