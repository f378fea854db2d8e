"""Checkpoints, one story each: of test_autograd_flow.py."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils import checkpoint as checkpoints
from torch.utils.checkpoint import CheckpointPolicy, checkpoint

from .sides import Counting, Matmul, Note, half


def leaves() -> tuple[torch.Tensor, torch.Tensor]:
    return half(seed=1).requires_grad_(), half(seed=2).requires_grad_()


def scaled(product: Matmul, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return product(x, y) * 2


def _checkpointed(
    product: Matmul, note: Note, *, early_stop: bool = True, **options: Any
) -> object:
    x, y = leaves()
    # Two products: early stopping ends the recomputation inside the first or the second.
    both = lambda x, y: product(product(x, y).clamp(-1, 1), y)  # noqa: E731
    with Counting() as operators, checkpoints.set_checkpoint_early_stop(early_stop):
        result = checkpoint(both, x, y, **options)
        result.sum().backward()
    note(operators.seen)
    return result, x.grad, y.grad


def defect_01_checkpoint(product: Matmul, note: Note) -> object:
    return _checkpointed(product, note, use_reentrant=False)


def defect_01_checkpoint_whose_last_word_is_the_product(product: Matmul, note: Note) -> object:
    x, y = leaves()
    result = checkpoint(product, x, y, use_reentrant=False)
    result.sum().backward()
    return result, x.grad, y.grad


def checkpoint_reentrant(product: Matmul, note: Note) -> object:
    return _checkpointed(product, note, use_reentrant=True)


def checkpoint_to_its_end(product: Matmul, note: Note) -> object:
    return _checkpointed(product, note, use_reentrant=False, early_stop=False)


def defect_01_checkpoint_that_checks_nothing(product: Matmul, note: Note) -> object:
    return _checkpointed(product, note, use_reentrant=False, determinism_check="none")


def defect_01_checkpoint_in_a_checkpoint(product: Matmul, note: Note) -> object:
    x, y = leaves()
    inner = functools.partial(checkpoint, product, use_reentrant=False)
    outer = checkpoint(lambda x, y: inner(x, y) + inner(y, x), x, y, use_reentrant=False)
    outer.sum().backward()
    return outer, x.grad, y.grad


def defect_01_checkpoint_backward_twice(product: Matmul, note: Note) -> object:
    x, y = leaves()
    result = checkpoint(functools.partial(scaled, product), x, y, use_reentrant=False).sum()
    result.backward(retain_graph=True)
    result.backward()
    return x.grad, y.grad


def defect_01_checkpoint_and_autograd_grad(product: Matmul, note: Note) -> object:
    x, y = leaves()
    result = checkpoint(functools.partial(scaled, product), x, y, use_reentrant=False)
    return torch.autograd.grad(result.sum(), (y, x))


def defect_01_checkpoint_of_steps(product: Matmul, note: Note) -> object:
    x, y = leaves()
    steps = [lambda x: product(x, y).clamp(-1, 1)] * 4
    result = checkpoints.checkpoint_sequential(steps, 2, x, use_reentrant=False)
    result.sum().backward()
    return result, x.grad, y.grad


def defect_01_checkpoint_that_keeps_products(product: Matmul, note: Note) -> object:
    def policy(context: object, operator: object, *rest: object, **named: object) -> object:
        keep = "mm" in str(operator)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(checkpoints.create_selective_checkpoint_contexts, policy)
    return _checkpointed(product, note, use_reentrant=False, context_fn=contexts)


def checkpoint_of_what_raises(product: Matmul, note: Note) -> object:
    def late(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        product(x, y)
        raise LookupError("of the caller's own")

    return checkpoint(late, *leaves(), use_reentrant=False)


def checkpoint_that_differs_in_recomputation(product: Matmul, note: Note) -> object:
    x, y = leaves()
    sizes = iter((32, 16))
    result = checkpoint(lambda x, y: product(x[: next(sizes)], y), x, y, use_reentrant=False)
    result.sum().backward()
    return x.grad
