"""Torch's control flow through autograd: checkpoints stop a recomputation by an exception of their
own, hooks of saved tensors and of gradients raise as they like, backward runs twice or not at all.

Stories 01 are of a defect: a call that raised inside torch was made again under another name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.graph import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)

from tests.campaign.checkpoints import (
    checkpoint_of_what_raises,
    checkpoint_reentrant,
    checkpoint_that_differs_in_recomputation,
    checkpoint_to_its_end,
    defect_01_checkpoint,
    defect_01_checkpoint_and_autograd_grad,
    defect_01_checkpoint_backward_twice,
    defect_01_checkpoint_in_a_checkpoint,
    defect_01_checkpoint_of_steps,
    defect_01_checkpoint_that_checks_nothing,
    defect_01_checkpoint_that_keeps_products,
    defect_01_checkpoint_whose_last_word_is_the_product,
    leaves,
)
from tests.fake_driver import Started

from .sides import PRODUCTS, Counting, Matmul, Note, assert_same, by_product, half


def defect_01_saving_raises(product: Matmul, note: Note) -> object:
    saved: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor._version)
        if len(saved) == 2:
            raise LookupError("no room")
        return tensor

    try:
        with saved_tensors_hooks(pack, lambda x: x):
            return product(*leaves())
    finally:
        note(saved)


def defect_01_saving_raises_what_is_no_exception(product: Matmul, note: Note) -> object:
    def pack(tensor: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt("at once")

    with saved_tensors_hooks(pack, lambda x: x):
        return product(*leaves())


def unpacking_raises(product: Matmul, note: Note) -> object:
    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        raise LookupError("lost")

    with saved_tensors_hooks(lambda x: x, unpack):
        result = product(*leaves())
    note(result)
    return result.sum().backward()


def saved_elsewhere(product: Matmul, note: Note) -> object:
    x, y = leaves()
    saved: list[torch.Tensor] = []
    with saved_tensors_hooks(
        lambda t: saved.append(t.clone()) or len(saved), lambda i: saved[i - 1]
    ):
        result = product(x, y)
    result.sum().backward()
    with save_on_cpu():
        product(x, y).sum().backward()
    return saved, x.grad, y.grad


def defect_01_hooks_are_forbidden(product: Matmul, note: Note) -> object:
    with disable_saved_tensors_hooks("not in here"):
        note(product(*leaves()))
        with saved_tensors_hooks(lambda x: x, lambda x: x):
            return product(*leaves())


def a_saved_tensor_is_written(product: Matmul, note: Note) -> object:
    x, y = leaves()
    inner = x * 2
    result = product(inner, y)
    with torch.no_grad():
        product(half(seed=3), half(seed=4)).copy_(inner)
        inner.copy_(product(half(seed=3), half(seed=4)))
    return result.sum().backward()


def a_saved_tensor_may_be_written(product: Matmul, note: Note) -> object:
    x, y = leaves()
    with allow_mutation_on_saved_tensors():
        inner = x * 2
        result = product(inner, y)
        inner.mul_(3)
        result.sum().backward()
    return x.grad, y.grad


def a_gradient_hook_raises(product: Matmul, note: Note) -> object:
    def hook(gradient: torch.Tensor) -> torch.Tensor:
        note(gradient)
        raise ArithmeticError("too steep")

    x, y = leaves()
    result = product(x, y)
    result.register_hook(hook)
    return result.sum().backward()


def gradient_hooks_change_and_count(product: Matmul, note: Note) -> object:
    x, y = leaves()
    register_multi_grad_hook((x, y), lambda gradients: note(list(gradients)))
    x.register_post_accumulate_grad_hook(lambda leaf: note(leaf.grad))
    result = product(x, y)
    result.grad_fn.register_prehook(lambda gradients: (gradients[0] * 2,))
    result.sum().backward()
    return x.grad, y.grad


def a_function_multiplies_forward_and_back(product: Matmul, note: Note) -> object:
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            context.save_for_backward(x, y)
            return product(x, y)

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> Any:
            x, y = context.saved_tensors
            return product(gradient.contiguous(), y.t()), product(x.t(), gradient.contiguous())

    x, y = leaves()
    result = Product.apply(x, y)
    result.sum().backward()
    return result, x.grad, y.grad


def a_gradient_of_a_gradient(product: Matmul, note: Note) -> object:
    x, y = leaves()
    (first,) = torch.autograd.grad(product(x, y).sum(), x, create_graph=True)
    first.sum().backward()
    return first, x.grad, y.grad


def an_anomaly(product: Matmul, note: Note) -> object:
    x, y = leaves()
    with torch.autograd.detect_anomaly(check_nan=True):
        result = product(x, y) * torch.full((), float("nan"), dtype=x.dtype)
        return result.sum().backward()


def tangents(product: Matmul, note: Note) -> object:
    x, y = half(seed=1), half(seed=2)
    with forward_ad.dual_level():
        dual = product(forward_ad.make_dual(x, half(seed=3)), y)
        note(list(forward_ad.unpack_dual(dual)))
        return product(forward_ad.make_dual(x, half(seed=3)), y[:16])


def transforms(product: Matmul, note: Note) -> object:
    x, y = half(seed=1), half(seed=2)
    note(torch.func.vjp(product, x, y)[1](half(seed=3)))
    note(torch.func.jvp(product, (x, y), (y, x)))
    note(torch.vmap(product, in_dims=(0, None))(torch.stack([x, y, x]), y))
    return torch.vmap(product, in_dims=(0, None))(x, y)


def no_gradient_inside_a_gradient(product: Matmul, note: Note) -> object:
    x, y = leaves()
    with torch.no_grad():
        note(product(x, y))
        with torch.enable_grad():
            note(product(x, y))
    with torch.inference_mode():
        inner = product(x, y)
        note(inner)
    return product(inner, y)


def a_layer_whose_hooks_raise(product: Matmul, note: Note) -> object:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(half(seed=2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return product(x, self.weight)

    def refuse(module: object, inputs: object, output: torch.Tensor) -> None:
        note(output)
        raise PermissionError("seen enough")

    layer = Layer()
    with torch.no_grad():
        note(layer(half(seed=1)))
    layer(half(seed=1)).sum().backward()
    note(layer.weight.grad)
    layer.register_forward_hook(refuse)
    return layer(half(seed=1))


def a_signal_of_stopping_in_backward(product: Matmul, note: Note) -> object:
    x, y = leaves()

    def stop() -> None:
        raise StopIteration(7)

    result = product(x, y)
    operators = Counting(stop)
    try:
        with operators:
            return result.sum().backward()
    finally:
        note(operators.seen)
        note([x.grad, y.grad])


STORIES: dict[str, Callable[..., object]] = {
    each.__name__: each
    for each in (
        defect_01_checkpoint,
        defect_01_checkpoint_whose_last_word_is_the_product,
        checkpoint_reentrant,
        checkpoint_to_its_end,
        defect_01_checkpoint_that_checks_nothing,
        defect_01_checkpoint_in_a_checkpoint,
        defect_01_checkpoint_backward_twice,
        defect_01_checkpoint_and_autograd_grad,
        defect_01_checkpoint_of_steps,
        defect_01_checkpoint_that_keeps_products,
        checkpoint_of_what_raises,
        checkpoint_that_differs_in_recomputation,
        defect_01_saving_raises,
        defect_01_saving_raises_what_is_no_exception,
        unpacking_raises,
        saved_elsewhere,
        defect_01_hooks_are_forbidden,
        a_saved_tensor_is_written,
        a_saved_tensor_may_be_written,
        a_gradient_hook_raises,
        gradient_hooks_change_and_count,
        a_function_multiplies_forward_and_back,
        a_gradient_of_a_gradient,
        an_anomaly,
        tangents,
        transforms,
        no_gradient_inside_a_gradient,
        a_layer_whose_hooks_raise,
        a_signal_of_stopping_in_backward,
    )
}


@pytest.mark.parametrize("way", PRODUCTS)
@pytest.mark.parametrize("name", STORIES)
def test_the_same_as_torch(ours: Started, name: str, way: str) -> None:
    assert_same(ours, by_product(STORIES[name], way))
